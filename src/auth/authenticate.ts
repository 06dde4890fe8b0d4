import { Refusal, toRefusal } from "../domain/errors.ts";
import type { ServedStore } from "../domain/store.ts";
import { scopes, type TokenRecord } from "../domain/token.ts";
import { ENVIRONMENT_NAME, hashToken, isWellFormedToken, toRecord } from "./token.ts";

interface CheckedToken {
  readonly record: TokenRecord;
  readonly checkedAtMs: number;
}

/** The time of day can be set back, so the cache ages by a clock that cannot. */
const systemClocks = { nowMs: Date.now, monotonicMs: () => performance.now() };

/** Every instance obeys a revocation after this, well within the promised 5 seconds. */
const CACHE_MS = 2_000;
const CACHED_TOKENS_MAX = 10_000;
/** Whose uses are kept while they cannot be written. */
const USED_TOKENS_MAX = 10_000;
/** A header may have any number of spaces before the token: one client could fill the cache with its variants. */
const CACHED_HEADER_CHARACTERS_MAX = 256;

/** So a revocation ends a stream within the promised 5 seconds, also if its client takes nothing. */
const WATCH_MS = 300;

/** A stream, and what it is told when its token is no longer good. */
interface Watch {
  readonly header: string;
  readonly onInvalid: (refusal: Refusal) => void;
}

/** RFC 6750, section 2.1; the scheme's name is case-insensitive by RFC 9110. */
const BEARER = /^bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

export class Authenticator {
  private readonly tokens: Pick<ServedStore, "findToken" | "touchTokens">;
  private readonly environment: TokenRecord | undefined;
  private readonly clocks: typeof systemClocks;
  /**
   * Good tokens by their header, so a returning client is not hashed. Only a header whose hash matched gets in here, so
   * the time that a look-up takes tells an attacker nothing.
   */
  private readonly cache = new Map<string, CheckedToken>();
  private readonly lookUps = new Map<string, Promise<CheckedToken | undefined>>();
  private used = new Map<string, number>();
  private readonly watched = new Set<Watch>();
  private watching: Timer | undefined;

  constructor(
    tokens: Pick<ServedStore, "findToken" | "touchTokens">,
    environmentToken: string | undefined,
    clocks = systemClocks,
  ) {
    this.tokens = tokens;
    const grant = { name: ENVIRONMENT_NAME, scopes, createdAtMs: 0 };
    // It may be any text, so no part of it is shown.
    this.environment =
      environmentToken === undefined
        ? undefined
        : { ...toRecord(environmentToken, grant), prefix: "" };
    this.clocks = clocks;
  }

  /** Throws a Refusal without a valid token. Returns at once for a token that was checked within `ageMsMax`. */
  authenticate(header: string | null, ageMsMax = CACHE_MS): TokenRecord | Promise<TokenRecord> {
    const cached = this.cache.get(header ?? "");
    if (cached !== undefined && this.clocks.monotonicMs() - cached.checkedAtMs < ageMsMax)
      return this.judge(cached);
    const token = parseBearer(header);
    // Only hashes are compared. An attacker cannot choose a hash's digits, so the time a comparison
    // takes tells nothing about a token.
    const hash = hashToken(token);
    if (hash === this.environment?.hash)
      return this.remember(header ?? "", { record: this.environment, checkedAtMs: Infinity });
    if (!isWellFormedToken(token)) throw new Refusal("token_invalid");
    return this.lookUp(header ?? "", hash, ageMsMax);
  }

  /** Calls back, again and again, when the token is no longer good. Returns what ends it. */
  watch(watch: Watch): () => void {
    this.watched.add(watch);
    this.watching ??= setInterval(this.checkAll, WATCH_MS).unref();
    return () => {
      this.watched.delete(watch);
      if (this.watched.size > 0) return;
      clearInterval(this.watching);
      this.watching = undefined;
    };
  }

  /** Not made where a stream is known: the timer would keep it in memory. */
  private readonly checkAll = (): void => {
    for (const watch of this.watched) void this.check(watch);
  };

  private async check({ header, onInvalid }: Watch): Promise<void> {
    try {
      // One look for all streams with the token.
      await this.authenticate(header, WATCH_MS / 2);
    } catch (error) {
      const refusal = toRefusal(error);
      // A store that cannot be asked says nothing about the token.
      if (refusal.reason === "token_invalid" || refusal.reason === "token_expired")
        onInvalid(refusal);
    }
  }

  /** Stores which tokens were used since the last call that succeeded. */
  async flushUses(): Promise<void> {
    if (this.used.size === 0) return;
    const { used } = this;
    this.used = new Map();
    try {
      await this.tokens.touchTokens(used);
    } catch (error) {
      // For the next call. A later use of the same token wins, and the newest are kept.
      const kept = [...new Map([...used, ...this.used])].toSorted(([, one], [, two]) => one - two);
      this.used = new Map(kept.slice(-USED_TOKENS_MAX));
      throw error;
    }
  }

  private remember(header: string, token: CheckedToken): TokenRecord {
    if (this.cache.size >= CACHED_TOKENS_MAX) this.cache.clear();
    if (header.length <= CACHED_HEADER_CHARACTERS_MAX) this.cache.set(header, token);
    return this.judge(token);
  }

  private async lookUp(header: string, hash: string, ageMsMax: number): Promise<TokenRecord> {
    // A look-up that is under way may not see a revocation. If it began before the token was made, it does not find it.
    const begun = ageMsMax > 0 ? this.lookUps.get(hash) : undefined;
    const found = (begun && (await begun)) ?? (await this.read(hash));
    if (found !== undefined) return this.remember(header, found);
    this.cache.delete(header);
    throw new Refusal("token_invalid");
  }

  /** Concurrent requests with the same token share one look-up. */
  private read(hash: string): Promise<CheckedToken | undefined> {
    // The record may have changed since the question was sent.
    const checkedAtMs = this.clocks.monotonicMs();
    const lookUp = this.tokens
      .findToken(hash)
      .then((record) => record && { record, checkedAtMs })
      .finally(() => this.lookUps.delete(hash));
    this.lookUps.set(hash, lookUp);
    return lookUp;
  }

  /** Throws a Refusal if the token has been revoked or has expired. */
  private judge({ record }: CheckedToken): TokenRecord {
    const now = this.clocks.nowMs();
    if (record.revokedAtMs !== undefined) throw new Refusal("token_invalid");
    if (record.expiresAtMs !== undefined && record.expiresAtMs <= now)
      throw new Refusal("token_expired");
    if (record !== this.environment) this.used.set(record.hash, now);
    return record;
  }
}

function parseBearer(header: string | null): string {
  if (header === null || !/^bearer\b/i.test(header)) throw new Refusal("token_missing");
  const token = BEARER.exec(header)?.[1];
  if (token !== undefined) return token;
  throw new Refusal(/^bearer *$/i.test(header) ? "token_missing" : "token_invalid");
}
