/** From an Authorization header to what its bearer may do. */

import { Refusal } from "../domain/errors.ts";
import type { TokenStore } from "../domain/store.ts";
import { type Scope, scopes, type TokenRecord } from "../domain/token.ts";
import { hashToken, isWellFormedToken } from "./token.ts";

/** Who the bearer of the request's token is, and what they may do. */
export interface Principal {
  readonly name: string;
  /** The token's first characters; of the one from the environment nothing is shown. */
  readonly prefix: string | undefined;
  readonly scopes: readonly Scope[];
  readonly expiresAtMs: number | undefined;
}

const environmentPrincipal: Principal = {
  name: "PLANTSTORE_TOKEN",
  prefix: undefined,
  scopes,
  expiresAtMs: undefined,
};

interface CachedToken {
  readonly record: TokenRecord;
  readonly checkedAtMs: number;
}

/** The time of day, which may be set back, and one that only goes on, by which the cache ages. */
interface Clocks {
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
}

/** A revocation is in force after this, in every instance: well within the 5 seconds that we promise. */
const CACHE_MS = 2_000;
const CACHED_TOKENS_MAX = 10_000;
/** Any number of spaces may stand before a token: whoever has one could make up headers without end. */
const CACHED_HEADER_CHARACTERS_MAX = 256;

/** RFC 6750, section 2.1; the scheme's name is case-insensitive by RFC 9110. */
const BEARER = /^bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

export class Authenticator {
  private readonly tokens: TokenStore;
  private readonly environmentHash: string | undefined;
  private readonly clocks: Clocks;
  private readonly cache = new Map<string, CachedToken>();
  private readonly lookUps = new Map<string, Promise<CachedToken | undefined>>();
  /**
   * Of tokens that were good, by header, so that a client that comes again and again is hashed once. What is
   * compared here is what equals in its hash, which nobody can work towards without the token.
   */
  private readonly hashes = new Map<string, string>();
  private used = new Map<string, number>();

  constructor(
    tokens: TokenStore,
    environmentToken: string | undefined,
    clocks: Clocks = { nowMs: Date.now, monotonicMs: () => performance.now() },
  ) {
    this.tokens = tokens;
    this.environmentHash = environmentToken === undefined ? undefined : hashToken(environmentToken);
    this.clocks = clocks;
  }

  /** Throws a Refusal where no valid token comes. Answers at once for a token seen lately. */
  authenticate(header: string | null): Principal | Promise<Principal> {
    const known = this.hashes.get(header ?? "");
    const seen = known === undefined ? undefined : this.findSeen(known);
    if (seen !== undefined) return seen;
    const token = parseBearer(header);
    // Only hashes are compared. Nobody can choose a hash's digits, so the time a comparison
    // takes tells nothing about a token.
    const hash = hashToken(token);
    const principal = this.findSeen(hash);
    if (principal !== undefined) {
      this.remember(header ?? "", hash);
      return principal;
    }
    if (!isWellFormedToken(token)) throw new Refusal("token_invalid");
    return this.lookUp(hash);
  }

  /** Writes down which tokens were used since the last call. */
  async flushUses(): Promise<void> {
    if (this.used.size === 0) return;
    const uses = [...this.used].map(([hash, usedAtMs]) => ({ hash, usedAtMs }));
    this.used = new Map();
    await this.tokens.touchTokens(uses);
  }

  /** The bearer of a token seen lately; throws where it is no good any more. */
  private findSeen(hash: string): Principal | undefined {
    if (hash === this.environmentHash) return environmentPrincipal;
    const cached = this.cache.get(hash);
    if (cached === undefined || this.clocks.monotonicMs() - cached.checkedAtMs >= CACHE_MS)
      return undefined;
    return this.judge(cached.record);
  }

  private remember(header: string, hash: string): void {
    if (header.length > CACHED_HEADER_CHARACTERS_MAX) return;
    if (this.hashes.size >= CACHED_TOKENS_MAX) this.hashes.clear();
    this.hashes.set(header, hash);
  }

  private async lookUp(hash: string): Promise<Principal> {
    // One that was begun before the token was made does not find it.
    const found = (await this.lookUps.get(hash)) ?? (await this.find(hash));
    if (found === undefined) {
      this.cache.delete(hash);
      throw new Refusal("token_invalid");
    }
    if (this.cache.size >= CACHED_TOKENS_MAX) this.cache.clear();
    this.cache.set(hash, found);
    return this.judge(found.record);
  }

  /** However many requests come with a token at one time, it is looked for once. */
  private find(hash: string): Promise<CachedToken | undefined> {
    const lookUp = this.read(hash).finally(() => this.lookUps.delete(hash));
    this.lookUps.set(hash, lookUp);
    return lookUp;
  }

  private async read(hash: string): Promise<CachedToken | undefined> {
    // What is found may be as old as the question.
    const checkedAtMs = this.clocks.monotonicMs();
    const record = await this.tokens.findToken(hash);
    return record === undefined ? undefined : { record, checkedAtMs };
  }

  private judge(record: TokenRecord): Principal {
    const now = this.clocks.nowMs();
    if (record.revokedAtMs !== undefined) throw new Refusal("token_invalid");
    if (record.expiresAtMs !== undefined && record.expiresAtMs <= now)
      throw new Refusal("token_expired");
    this.used.set(record.hash, now);
    return record;
  }
}

function parseBearer(header: string | null): string {
  if (header === null || !/^bearer\b/i.test(header)) throw new Refusal("token_missing");
  const token = BEARER.exec(header)?.[1];
  if (token !== undefined) return token;
  throw new Refusal(/^bearer *$/i.test(header) ? "token_missing" : "token_invalid");
}
