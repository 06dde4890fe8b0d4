/** Requests to one service, and what their failures mean. */

import {
  type ErrorName,
  explainAnswer,
  explainLoss,
  findWaitMs,
  mayBeDone,
  ServiceError,
} from "./errors.ts";
import { isAborted, retry, type RetryOptions, SilenceGuard } from "./retry.ts";

export const NDJSON_TYPE = "application/x-ndjson";
export const JSON_BODY = { "content-type": "application/json" };

/** The limit of pages that are read one after another. */
export const PAGE_LENGTH = 1_000;

/** No user, query or fragment: fetch would reject or drop them. */
const URL_PATTERN = /^https?:\/\/[^/@?#\s]+(\/[^?#\s]*)?$/i;

/** To the same machine, packing takes longer than sending. */
const LOOPBACK = /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])(?=[:/]|$)/i;

/** For operations that are not idempotent: undefined if the attempt may have taken effect. */
export const findUnsentWaitMs = (error: unknown): number | undefined =>
  mayBeDone(error as ServiceError) ? undefined : findWaitMs(error);

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/** The retry options are the defaults of every operation. */
export interface ClientOptions extends RetryOptions {
  /** Replaces the platform's `fetch`, for a proxy, a certificate or a test. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
  /**
   * Whether batches are sent in gzip, and answers are asked for in a coding. By default only to other machines; a
   * browser always asks. A service that does not accept gzip gets batches as they are.
   */
  readonly compress?: boolean | undefined;
  /** Sent with every request, for example for a proxy. They cannot override the token. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

export interface WriteOptions extends RetryOptions {
  /** Names the writes that belong together, in the journal: 1 to 100 characters. */
  readonly batch?: string | undefined;
}

export class Connection {
  protected readonly url: string;
  private readonly token: string;
  protected readonly options: RetryOptions;
  private readonly fetch: NonNullable<ClientOptions["fetch"]>;
  private readonly headers: Readonly<Record<string, string>>;
  private wasReached = false;
  private wasAnswered = false;
  protected isCompressing: boolean;
  private readonly wantsPlain: boolean;

  /** `url` is the address of the service, with its base path. */
  constructor(
    url: string,
    token: string,
    {
      fetch: send = (...values) => fetch(...values),
      headers = {},
      compress,
      ...options
    }: ClientOptions = {},
  ) {
    if (!URL_PATTERN.test(url))
      throw new TypeError("url: expected the address of a service, as in http://127.0.0.1:8080");
    this.url = url.replace(/\/+$/, "");
    this.token = token;
    this.options = options;
    this.fetch = send;
    this.headers = headers;
    this.isCompressing = compress ?? !LOOPBACK.test(url);
    this.wantsPlain = !this.isCompressing;
  }

  /**
   * One request, without retries. Resolves to an answer with a status of 2xx. Rejects with a ServiceError or the reason
   * of an abort.
   *
   * @example
   * const response = await client.request("/plants/1", { headers: { accept: "application/json" } });
   * console.log(await response.text()); // {"id":1,"name":"Rose","tag":"shrub"}
   */
  async request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(this.headers);
    new Headers(init.headers).forEach((value, name) => headers.set(name, value));
    headers.set("authorization", `Bearer ${this.token}`);
    if (this.wantsPlain) headers.set("accept-encoding", "identity");
    let response: Response;
    try {
      response = await this.fetch(`${this.url}${path}`, {
        ...init,
        headers,
        cache: "no-store",
        credentials: "omit",
        // Following a redirect would send the token to another address.
        redirect: "manual",
      });
    } catch (error) {
      throw this.explainLoss(error, init.signal);
    }
    this.wasReached = this.wasAnswered = true;
    if (response.ok) return response;
    throw await explainAnswer(this.url, response);
  }

  /**
   * Yields the complete lines of an answer, in blocks, as they arrive. A last line without a newline was cut off and is
   * dropped. After an abort the answer gets `graceMs` to finish.
   */
  protected async *readLines(
    path: string,
    init: RequestInit & { readonly headers: { readonly accept: string } },
    signal: AbortSignal | undefined,
    graceMs = 0,
  ): AsyncGenerator<string[], void> {
    const guard = new SilenceGuard(signal, graceMs);
    try {
      const answer = this.request(path, { ...init, signal: guard.signal });
      const { headers, body } = await guard.watch(answer);
      if (!headers.get("content-type")?.startsWith(init.headers.accept))
        throw this.notAPlantStore();
      const reader = (body as ReadableStream<Uint8Array>).getReader();
      const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
      for (let rest = ""; ;) {
        const { done, value } = await guard.watch(reader.read()).catch((error: unknown) => {
          throw this.explainLoss(error, guard.signal);
        });
        if (done) return;
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop() as string;
        if (lines.length > 0) yield lines;
      }
    } finally {
      guard.close();
    }
  }

  /** Reads a whole answer, with retries. */
  protected ask(
    path: string,
    init: RequestInit,
    options: RetryOptions = {},
    findWait = findWaitMs,
  ): Promise<Answer> {
    const settings = { ...this.options, ...options };
    const { signal = null } = settings;
    const attempt = async (): Promise<Answer> => {
      const response = await this.request(path, { ...init, signal });
      const text = await response.text().catch((error: unknown) => {
        throw this.explainLoss(error, signal);
      });
      return { status: response.status, headers: response.headers, text };
    };
    return retry(attempt, settings, findWait);
  }

  /** `missing` is the error for a resource that does not exist. */
  protected async removeAt(
    path: string,
    missing: ErrorName,
    headers: Readonly<Record<string, string>>,
    options: RetryOptions = {},
  ): Promise<void> {
    let wasLost = false;
    const onRetry = (error: Error, waitMs: number): void => {
      wasLost ||= mayBeDone(error as ServiceError);
      (options.onRetry ?? this.options.onRetry)?.(error, waitMs);
    };
    try {
      // If a reused connection closes, Bun's fetch repeats a DELETE without telling, and the answer would be 404.
      const init = { method: "DELETE", headers, keepalive: false };
      const { status } = await this.ask(path, init, { ...options, onRetry });
      if (status !== 204) throw this.notAPlantStore();
    } catch (error) {
      const isGone = error instanceof ServiceError && error.reason === missing;
      // A retry after a lost answer finds the resource gone.
      if (!isGone || !wasLost) throw error;
    }
  }

  protected notAPlantStore(): ServiceError {
    return new ServiceError({ message: `${this.url} does not answer as a plant store does.` });
  }

  protected explainLoss(cause: unknown, signal: AbortSignal | null | undefined): Error {
    if (isAborted(signal)) return signal.reason as Error;
    const { wasReached, wasAnswered } = this;
    const failure = explainLoss(this.url, { wasReached, wasAnswered }, cause);
    this.wasReached ||= failure.isTransient;
    return failure;
  }
}

/** Starts with a question mark, or is empty. */
export function formatPairs(values: Readonly<Record<string, unknown>>): string {
  const present = Object.entries(values).filter(([, value]) => value !== undefined);
  const pairs = present.map(([name, value]): [string, string] => [name, String(value)]);
  return present.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

/** The `after` of `Link: <…after=…>; rel="next"`; undefined without a link, null if the link has no `after`. */
export function findNext(
  headers: Headers,
  name: "after" | "cursor" = "after",
): string | undefined | null {
  const link = /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
  if (link === undefined) return undefined;
  return new URLSearchParams(link.replace(/^[^?]*/, "")).get(name);
}

/** Keeps ids exact. Matches members only, because a quote inside a JSON string is escaped. */
export const quoteIds = (json: string): string => json.replaceAll(/"id":(-?\d+)/g, '"id":"$1"');
