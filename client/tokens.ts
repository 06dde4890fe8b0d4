/** The token of the client, and those of others. */

import { findNext, findUnsentWaitMs, formatPairs, JSON_BODY, PAGE_LENGTH } from "./connection.ts";
import { findJson } from "./errors.ts";
import type { RetryOptions } from "./retry.ts";
import { RevertClient } from "./revert.ts";

/** The token that was sent, as the service knows it. */
export interface TokenFacts {
  readonly name: string;
  /** The first characters of the token; a token from the service's environment has none. */
  readonly prefix?: string;
  readonly scopes: readonly string[];
  /** It sees and changes only plants with one of these tags; undefined for the whole store. */
  readonly tags?: readonly string[];
  /** ISO 8601; undefined if it does not expire. */
  readonly expires?: string;
}

/** A token without its secret. Times are in ISO 8601. */
export interface Token {
  readonly id: string;
  readonly name: string;
  /** The first characters of the secret. */
  readonly prefix: string;
  readonly scopes: readonly string[];
  /** It sees and changes only plants with one of these tags; null for the whole store. */
  readonly tags: readonly string[] | null;
  readonly created: string;
  readonly expires: string | null;
  readonly lastUsed: string | null;
  readonly revoked: string | null;
  /** As in `100/s`; null for the default of the service. */
  readonly rate: string | null;
}

export interface NewToken {
  /** Unique among the tokens in use. */
  readonly name: string;
  readonly scopes: readonly string[];
  /** Up to 32: it sees and changes only plants with one of them. By default the whole store. */
  readonly tags?: readonly string[] | null | undefined;
  /** A duration as in `90d`, a date or a time. By default the token does not expire. */
  readonly expires?: string | null | undefined;
  /** As in `100/s`, or `none`. */
  readonly rate?: string | null | undefined;
}

export interface TokenQuery {
  /** The id of the last token seen; the page begins after it. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface TokenPage {
  readonly tokens: readonly Token[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

export class TokenClient extends RevertClient {
  /**
   * The token of this client, as the service knows it.
   *
   * @operation describeToken
   * @example
   * console.log((await client.describeToken()).scopes.includes("plants:write")); // true
   */
  async describeToken(options?: RetryOptions): Promise<TokenFacts> {
    const facts = findJson((await this.ask("/token", {}, options)).text);
    const { name, scopes } = (facts ?? {}) as Partial<TokenFacts>;
    if (typeof name !== "string" || !Array.isArray(scopes)) throw this.notAPlantStore();
    return facts as TokenFacts;
  }

  /**
   * A page of the tokens, by id.
   *
   * @operation listTokens
   * @example
   * const { tokens, next } = await client.listTokenPage({ limit: 1 });
   * console.log(tokens.length, typeof next); // 1 string
   */
  async listTokenPage(
    { after, limit }: TokenQuery = {},
    options?: RetryOptions,
  ): Promise<TokenPage> {
    const { headers, text } = await this.ask(
      `/tokens${formatPairs({ after, limit })}`,
      {},
      options,
    );
    const tokens = findJson(text);
    const next = findNext(headers);
    if (!Array.isArray(tokens) || !tokens.every(isNamed) || next === null)
      throw this.notAPlantStore();
    return { tokens: tokens as unknown as readonly Token[], next };
  }

  /**
   * All tokens ever made, in the order of their ids.
   *
   * @operation listTokens
   * @example
   * for await (const { name, revoked } of client.listTokens())
   *   if (revoked === null) console.log(name); // till
   */
  async *listTokens(options?: RetryOptions): AsyncGenerator<Token, void> {
    let after: string | undefined;
    do {
      const page: TokenPage = await this.listTokenPage({ after, limit: PAGE_LENGTH }, options);
      yield* page.tokens;
      after = page.next;
    } while (after !== undefined);
  }

  /**
   * Creates a token. Only this answer has the secret. If it was lost, the name is taken: revoke that token.
   *
   * @operation createToken
   * @example
   * const made = await client.createToken({ name: "shop", scopes: ["plants:read"], expires: "90d" });
   * console.log(made.token.startsWith(made.prefix)); // true
   */
  createToken(
    token: NewToken,
    options?: RetryOptions,
  ): Promise<Token & { readonly token: string }> {
    return this.manage("POST", "/tokens", options, token);
  }

  /**
   * Revokes a token, which stops working at once.
   *
   * @operation revokeToken
   * @example
   * for await (const { id, name } of client.listTokens())
   *   if (name === "till") await client.revokeToken(id);
   * console.log(await client.describeToken().then(({ name }) => name)); // PLANTSTORE_TOKEN
   */
  async revokeToken(id: string, options?: RetryOptions): Promise<void> {
    await this.ask(`/tokens/${encodeURIComponent(id)}`, { method: "DELETE" }, options);
  }

  /** A POST is retried only if the service did nothing: a repeat could create a second secret. */
  protected async manage<Answer>(
    method: string,
    path: string,
    options: RetryOptions | undefined,
    body?: object,
  ): Promise<Answer> {
    const init =
      body === undefined ? { method } : { method, headers: JSON_BODY, body: JSON.stringify(body) };
    const findWait = method === "POST" ? findUnsentWaitMs : undefined;
    const answer = findJson((await this.ask(path, init, options, findWait)).text);
    if (!isNamed(answer)) throw this.notAPlantStore();
    return answer as Answer;
  }
}

export const isNamed = (value: unknown): value is { readonly name: string } =>
  typeof (value as { readonly name?: unknown } | null | undefined)?.name === "string";
