/** Tokens: authenticating a request, their format `pst_<random>_<checksum>`, and granting new ones. */

import {
  DAY_MS,
  findDurationMs,
  findRate,
  findTimeMs,
  formatTime,
  type Rate,
  UNLIMITED,
} from "../domain/time.ts";
import { isOutage, Refusal, toRefusal } from "../domain/errors.ts";
import { tagsRule } from "../domain/confinement.ts";
import { parseMembers } from "../domain/members.ts";
import type { TokenStore } from "../domain/store.ts";
import { scopes, type TokenRecord, type TokenSummary } from "../domain/token.ts";
import { within } from "../tick.ts";
import type { JwtSettings, JwtVerifier, KeyLog } from "./jwt.ts";

type UsedTokens = Pick<TokenStore, "findToken" | "touchTokens">;

interface CheckedToken {
  readonly record: TokenRecord;
  /** Infinity if the token is not in the store. */
  readonly checkedAtMs: number;
  /** When a later look-up failed. */
  readonly failedAtMs?: number;
}

interface LookUp {
  readonly found: Promise<CheckedToken | undefined>;
  /** Requests with a token that was good wait for it until then. */
  readonly waitUntilMs: number;
}

/** The wall clock can be set back, so the cache ages by a monotonic one. */
const systemClocks = { nowMs: Date.now, monotonicMs: () => performance.now() };

/** Every instance sees a revocation after this, well within the promised 5 seconds. */
const CACHE_MS = 2_000;
/** A token that was good waits this long for a store that does not answer, then its last record counts. */
const WAIT_MS = 50;
/**
 * The same for a token that was checked longer ago than RECENT_MS: it may have been revoked since. So a revocation takes
 * effect within 5 seconds if the store answers within this time.
 */
const WAIT_MS_MAX = 1_000;
const RECENT_MS = 4_000;
const CACHED_TOKENS_MAX = 10_000;
/** Uses that are buffered while the store cannot be written. */
const USED_TOKENS_MAX = 10_000;
/** A header may have any number of spaces before the token: one client could fill the cache with variants. */
const CACHED_HEADER_CHARACTERS_MAX = 256;

/** A revocation ends a stream within the promised 5 seconds, even if its client reads nothing. */
const WATCH_MS = 300;

interface Watch {
  readonly header: string;
  readonly onInvalid: (refusal: Refusal) => void;
}

/** RFC 6750, section 2.1; the scheme's name is case-insensitive by RFC 9110. */
const BEARER = /^bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

/** RFC 7515, section 3.1. Our own tokens have no dot. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

type TokenSettings = Readonly<{ token: string | undefined; tokenStaleSecondsMax: number }>;

/** Without an issuer, the code that verifies JWTs is not loaded. */
export async function openAuthenticator(
  tokens: UsedTokens,
  settings: JwtSettings & TokenSettings,
  log: KeyLog,
) {
  const jwts =
    settings.jwtIssuer === ""
      ? undefined
      : (await import("./jwt.ts")).createJwtVerifier(settings, log);
  return new Authenticator(tokens, settings, systemClocks, jwts);
}

export class Authenticator {
  private readonly tokens: UsedTokens;
  private readonly environment: TokenRecord | undefined;
  private readonly staleMsMax: number;
  private readonly clocks: typeof systemClocks;
  /** Keyed by header, to skip the hash. Only tokens whose hash matched are cached, so timing tells nothing. */
  private readonly cache = new Map<string, CheckedToken>();
  /** What the store last said of each token that it has, by hash; the one checked longest ago first. */
  private readonly known = new Map<string, CheckedToken>();
  private readonly lookUps = new Map<string, LookUp>();
  private used = new Map<string, number>();
  private readonly watched = new Set<Watch>();
  private watching: Timer | undefined;
  private readonly jwts: JwtVerifier | undefined;

  constructor(
    tokens: UsedTokens,
    { token, tokenStaleSecondsMax }: TokenSettings,
    clocks = systemClocks,
    jwts?: JwtVerifier,
  ) {
    this.tokens = tokens;
    this.staleMsMax = tokenStaleSecondsMax * 1000;
    this.clocks = clocks;
    this.jwts = jwts;
    if (token === undefined) return;
    const grant = { name: ENVIRONMENT_NAME, scopes, createdAtMs: 0 };
    // It may be any text, so no prefix of it is shown.
    this.environment = { ...toRecord(token, grant), prefix: "" };
  }

  /** Throws a Refusal without a valid token. Returns at once for a token that was checked within `ageMsMax`. */
  authenticate(header: string | null, ageMsMax = CACHE_MS): TokenRecord | Promise<TokenRecord> {
    const cached = this.cache.get(header ?? "") ?? this.jwts?.find(header ?? "");
    if (cached !== undefined && this.clocks.monotonicMs() - cached.checkedAtMs < ageMsMax)
      return this.judge(cached);
    const token = parseBearer(header);
    // Only hashes are compared. An attacker cannot choose a hash's digits, so timing tells nothing about a token.
    const hash = hashToken(token);
    if (hash === this.environment?.hash)
      return this.remember(header ?? "", { record: this.environment, checkedAtMs: Infinity });
    if (this.jwts !== undefined && JWT.test(token))
      return this.jwts.verify(header ?? "", token).then((checked) => this.judge(checked));
    if (!isWellFormedToken(token)) throw new Refusal("token_invalid");
    return this.lookUp(header ?? "", hash, ageMsMax);
  }

  /** Undefined without an issuer. */
  get keysAgeSeconds(): number | undefined {
    return this.jwts?.keysAgeSeconds;
  }

  /** Undefined without an issuer, or if it has named none. */
  findTokenOrigin(): Promise<string | undefined> | undefined {
    return this.jwts?.findTokenOrigin();
  }

  /** Ends the fetches of the issuer's keys. */
  close(): void {
    this.jwts?.close();
  }

  /** Calls back every WATCH_MS while the token is invalid. Returns a function that stops watching. */
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

  /** Not a closure inside `watch`: the timer would keep a stream in memory. */
  private readonly checkAll = (): void => {
    for (const watch of this.watched) void this.check(watch);
  };

  private async check({ header, onInvalid }: Watch): Promise<void> {
    try {
      // All streams with the token share one look-up.
      await this.authenticate(header, WATCH_MS / 2);
    } catch (error) {
      const refusal = toRefusal(error);
      // A failing store says nothing about the token.
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
      // Retried by the next call. A later use of a token wins, and only the newest uses are kept.
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
    // One in flight may miss a revocation, so `ageMsMax` 0 skips it. It may miss a new token, so we read again.
    const begun = ageMsMax > 0 ? this.lookUps.get(hash) : undefined;
    const lookUp = begun ?? this.read(hash);
    if (ageMsMax > 0 && this.findStale(hash) !== undefined) {
      const waitMs = lookUp.waitUntilMs - this.clocks.monotonicMs();
      if (waitMs > 0) await within(waitMs, lookUp.found).catch(ignoreOutage);
      // What the look-up has found, or what was known before it.
      const known = this.findStale(hash);
      if (known !== undefined) return this.remember(header, known);
    }
    const found = (await lookUp.found) ?? (begun && (await this.read(hash).found));
    if (found !== undefined) return this.remember(header, found);
    this.cache.delete(header);
    throw new Refusal("token_invalid");
  }

  /** The last record of a token, unless it is too old. */
  private findStale(hash: string): CheckedToken | undefined {
    const known = this.known.get(hash);
    const sinceMs = this.clocks.monotonicMs() - this.staleMsMax;
    return known !== undefined && known.checkedAtMs > sinceMs ? known : undefined;
  }

  private read(hash: string): LookUp {
    // Taken before the read: the record may change while it is in flight.
    const checkedAtMs = this.clocks.monotonicMs();
    const last: Partial<CheckedToken> = this.known.get(hash) ?? {};
    const { checkedAtMs: lastMs = -Infinity, failedAtMs = -Infinity } = last;
    const isShort = checkedAtMs < Math.max(lastMs + RECENT_MS, failedAtMs + WAIT_MS_MAX);
    const found = this.tokens
      .findToken(hash)
      .then(
        (record) => this.note(hash, record, checkedAtMs),
        (error: unknown) => {
          const known = this.known.get(hash);
          const nowMs = this.clocks.monotonicMs();
          if (known !== undefined) this.known.set(hash, { ...known, failedAtMs: nowMs });
          throw error;
        },
      )
      .finally(() => this.lookUps.delete(hash));
    // The requests that began it may have stopped waiting.
    found.catch(() => undefined);
    const lookUp = { found, waitUntilMs: checkedAtMs + (isShort ? WAIT_MS : WAIT_MS_MAX) };
    this.lookUps.set(hash, lookUp);
    return lookUp;
  }

  /** Even if no request waits for it any longer: a token that is known to be revoked stays refused. */
  private note(hash: string, record: TokenRecord | undefined, checkedAtMs: number) {
    const known = this.known.get(hash);
    // A later look-up may have overtaken this one.
    if (known !== undefined && known.checkedAtMs > checkedAtMs) return known;
    this.known.delete(hash);
    if (record === undefined) return undefined;
    const [oldest = ""] = this.known.keys();
    if (this.known.size >= CACHED_TOKENS_MAX) this.known.delete(oldest);
    const checked = { record: disclaimName(record), checkedAtMs };
    this.known.set(hash, checked);
    return checked;
  }

  private judge({ record, checkedAtMs }: CheckedToken): TokenRecord {
    const now = this.clocks.nowMs();
    if (record.revokedAtMs !== undefined) throw new Refusal("token_invalid");
    if (record.expiresAtMs !== undefined && record.expiresAtMs <= now)
      throw new Refusal("token_expired");
    if (checkedAtMs !== Infinity) this.used.set(record.hash, now);
    return record;
  }
}

function ignoreOutage(error: unknown): void {
  if (!isOutage(error)) throw error;
}

function parseBearer(header: string | null): string {
  if (header === null || !/^bearer\b/i.test(header)) throw new Refusal("token_missing");
  const token = BEARER.exec(header)?.[1];
  if (token !== undefined) return token;
  throw new Refusal(/^bearer *$/i.test(header) ? "token_missing" : "token_invalid");
}

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 36 characters hold 214 bits; 178 of them stay secret when a prefix is shown. */
const RANDOM_LENGTH = 36;
const CHECKSUM_LENGTH = 6;
const PREFIX_LENGTH = "pst_".length + 6;

const TOKEN = new RegExp(`^(pst_[0-9A-Za-z]{${RANDOM_LENGTH}})_([0-9A-Za-z]{${CHECKSUM_LENGTH}})$`);

export function mintToken(): string {
  const body = `pst_${randomText(RANDOM_LENGTH)}`;
  return `${body}_${checksum(body)}`;
}

/** Refuses typos and truncated pastes without a look-up. */
export function isWellFormedToken(token: string): boolean {
  const match = TOKEN.exec(token);
  return match !== null && checksum(match[1] ?? "") === match[2];
}

/** A token has too many random bits to be guessed from its hash: it needs neither salt nor a slow hash. */
export const hashToken = (token: string): string => Bun.SHA256.hash(token, "hex");

export type TokenGrant = Pick<TokenRecord, "name" | "scopes" | "createdAtMs"> &
  Partial<Pick<TokenRecord, "tags" | "expiresAtMs" | "rate">>;

export const toRecord = (token: string, grant: TokenGrant): TokenRecord => ({
  tags: undefined,
  expiresAtMs: undefined,
  rate: undefined,
  ...grant,
  hash: hashToken(token),
  prefix: token.slice(0, PREFIX_LENGTH),
  lastUsedAtMs: undefined,
  revokedAtMs: undefined,
});

export type Tokens = Pick<TokenStore, "createToken" | "listTokens">;
export type IssuedToken = TokenSummary & { readonly token: string };

/** The token is shown once: the store keeps only its record. Throws a Refusal if the name is in use. */
export async function issueToken(store: Tokens, grant: TokenGrant): Promise<IssuedToken> {
  const token = mintToken();
  const record = toRecord(token, grant);
  if (await store.createToken(record)) return { token, ...summarize(record) };
  throw new Refusal(
    "token_name_taken",
    `A token named ${JSON.stringify(grant.name)} is in use; revoke it first, or choose another name.`,
  );
}

const PAGE_LENGTH = 1_000;

/** All tokens ever made. For commands: a service reads a page at a time. */
export async function readTokens(store: Tokens): Promise<TokenRecord[]> {
  const all: TokenRecord[] = [];
  let page: readonly TokenRecord[];
  do {
    page = await store.listTokens({ after: all.at(-1)?.hash ?? "", limit: PAGE_LENGTH });
    all.push(...page);
  } while (page.length === PAGE_LENGTH);
  return all;
}

/**
 * It is the "who" of the history. The journal ends it with a line break; a command would read a leading hyphen as an
 * option.
 */
const NAME = /^(?![\s-])[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}]{1,64}(?<!\s)$/u;
/** Its name in logs and in the journal. No other token can have it. */
const ENVIRONMENT_NAME = "PLANTSTORE_TOKEN";

/** Whether it is, or looks like, a name that the service gives itself: to the token of its environment, and to JWTs. */
function isReserved(name: string): boolean {
  const shown = name.normalize("NFKC").replaceAll(/\p{Cf}/gu, "");
  return shown === ENVIRONMENT_NAME || /^jwt:/i.test(shown);
}

/** A store may have a token with a reserved name from an older version. It acts under one that no token can be given. */
const disclaimName = (record: TokenRecord): TokenRecord =>
  isReserved(record.name) ? { ...record, name: `-${record.name}` } : record;

const EXPIRY_MS_MAX = 36_500 * DAY_MS;

/** The rules for a new token. `find` gives undefined for anything else. */
export const grantRules = {
  name: {
    expected: `1 to 64 characters without control characters, a hyphen at the start or spaces at the ends, not ${ENVIRONMENT_NAME}, and not jwt: at the start`,
    find: (value: unknown) =>
      typeof value === "string" && NAME.test(value) && !isReserved(value) ? value : undefined,
  },
  scopes: {
    expected: `one or more of ${scopes.join(",")}`,
    find: (value: unknown) =>
      Array.isArray(value) && value.length > 0 && value.every((scope) => scopes.includes(scope))
        ? scopes.filter((scope) => value.includes(scope))
        : undefined,
  },
  tags: tagsRule,
  /** A duration from now, a date (its first moment in UTC), or a full time. */
  expires: {
    optional: true,
    expected:
      "seconds, minutes, hours or days, as in 30m, 12h or 90d, at most 36500d, " +
      "or a date or time in the future, as in 2030-01-31 or 2030-01-31T18:00Z",
    find: (value: unknown, nowMs: number) => {
      if (typeof value !== "string") return undefined;
      const durationMs = findDurationMs(value);
      const timeMs = findTimeMs(/^[\d-]+$/.test(value) ? `${value}T00:00Z` : value) ?? Number.NaN;
      const expiresAtMs = durationMs === undefined ? timeMs : nowMs + durationMs;
      return expiresAtMs > nowMs && expiresAtMs <= nowMs + EXPIRY_MS_MAX ? expiresAtMs : undefined;
    },
  },
  rate: {
    optional: true,
    expected: "a number per s, min or h, as in 100/s, or none",
    find: (value: unknown) =>
      typeof value === "string" && (value === UNLIMITED || findRate(value) !== undefined)
        ? value
        : undefined,
  },
};

/** Throws a Refusal that names every part that is wrong. */
export function parseGrant(input: unknown): TokenGrant {
  const createdAtMs = Date.now();
  const { find, ...rule } = grantRules.expires;
  const expires = { ...rule, find: (demand: unknown) => find(demand, createdAtMs) };
  const { expires: expiresAtMs, ...grant } = parseMembers(input, { ...grantRules, expires });
  return { ...grant, expiresAtMs, createdAtMs };
}

/** What exceeds the creator's own limits. `allRate` is the rate of tokens without one. The operator may grant all. */
export function findExcess(
  grant: TokenGrant,
  { name, expiresAtMs = Infinity, rate }: TokenRecord,
  allRate: string,
): string | undefined {
  if (name === ENVIRONMENT_NAME) return undefined;
  if ((grant.expiresAtMs ?? Infinity) > expiresAtMs)
    return `expires: at the latest ${formatTime(expiresAtMs)}, when the creating token expires`;
  const [own, demand] = [rate, grant.rate].map((text) => findRate(text ?? allRate));
  if (own === undefined || (demand && isWithin(demand, own))) return undefined;
  return `rate: at most ${rate ?? allRate}, the rate of the creating token`;
}

/** Neither the burst nor the sustained rate is higher. */
const isWithin = (demand: Rate, own: Rate): boolean =>
  demand.units <= own.units && demand.units * own.windowSeconds <= own.units * demand.windowSeconds;

const ID_LENGTH = 16;

export const summarize = (token: TokenRecord): TokenSummary => ({
  id: token.hash.slice(0, ID_LENGTH),
  name: token.name,
  prefix: token.prefix,
  scopes: token.scopes,
  tags: token.tags ?? null,
  created: new Date(token.createdAtMs).toISOString(),
  expires: formatTime(token.expiresAtMs),
  lastUsed: formatTime(token.lastUsedAtMs),
  revoked: formatTime(token.revokedAtMs),
  rate: token.rate ?? null,
});

function checksum(text: string): string {
  let rest = Bun.hash.crc32(text);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** Uniform to within 2^-26. */
const randomText = (length: number): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(length)), (random) =>
    ALPHABET.charAt(random % ALPHABET.length),
  ).join("");
