/** Tokens have the form `pst_<random>_<checksum>`. */

import { Refusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/members.ts";
import type { TokenStore } from "../domain/store.ts";
import { type Scope, scopes, type TokenRecord, type TokenSummary } from "../domain/token.ts";
import { DAY_MS, findDurationMs, findRate, type Rate, UNLIMITED } from "../domain/rate.ts";

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
export function hashToken(token: string): string {
  return Bun.SHA256.hash(token, "hex");
}

/** What a new token may do, and until when. */
export type TokenGrant = Pick<TokenRecord, "name" | "scopes" | "createdAtMs"> &
  Partial<Pick<TokenRecord, "expiresAtMs" | "rate">>;

export const toRecord = (token: string, grant: TokenGrant): TokenRecord => ({
  expiresAtMs: undefined,
  rate: undefined,
  ...grant,
  hash: hashToken(token),
  prefix: token.slice(0, PREFIX_LENGTH),
  lastUsedAtMs: undefined,
  revokedAtMs: undefined,
});

export type IssuedToken = TokenSummary & { readonly token: string };

/** The token is shown once: the store keeps only its record. Throws a Refusal if the name is in use. */
export async function issueToken(
  store: Pick<TokenStore, "createToken">,
  grant: TokenGrant,
): Promise<IssuedToken> {
  const token = mintToken();
  const record = toRecord(token, grant);
  if (await store.createToken(record)) return { token, ...summarize(record) };
  throw new Refusal(
    "token_name_taken",
    `A token named ${JSON.stringify(grant.name)} is in use; revoke it first, or choose another name.`,
  );
}

/** Also those that are revoked or expired. */
export const hasTokens = async (tokens: Pick<TokenStore, "listTokens">): Promise<boolean> =>
  (await tokens.listTokens({ after: "", limit: 1 })).length > 0;

/**
 * A store that has never had a token gets one, so the first request needs no other command. If several services start
 * first, one makes it: two tokens in use cannot have the same name. `keep` gets the token before the store does; what
 * it has kept is disposed of if no token is made.
 */
export async function makeFirstToken(
  tokens: TokenStore,
  keep?: (token: string) => Disposable,
): Promise<string | undefined> {
  if (await hasTokens(tokens)) return undefined;
  const token = mintToken();
  const record = toRecord(token, { name: "first", scopes, createdAtMs: Date.now() });
  const kept = keep?.(token);
  if (await tokens.createToken(record)) return token;
  kept?.[Symbol.dispose]();
  return undefined;
}

const PAGE_LENGTH = 1_000;

/** All tokens ever made, oldest first. For commands: a service reads a page at a time. */
export async function readTokens(store: Pick<TokenStore, "listTokens">): Promise<TokenRecord[]> {
  const all: TokenRecord[] = [];
  let page: readonly TokenRecord[];
  do {
    page = await store.listTokens({ after: all.at(-1)?.hash ?? "", limit: PAGE_LENGTH });
    all.push(...page);
  } while (page.length === PAGE_LENGTH);
  return all.toSorted(
    (one, other) => one.createdAtMs - other.createdAtMs || (one.name < other.name ? -1 : 1),
  );
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
/** What the token of the environment is called in logs and in the journal. No other token can pass for it. */
export const ENVIRONMENT_NAME = "PLANTSTORE_TOKEN";
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/;
const EXPIRY_MS_MAX = 36_500 * DAY_MS;

/** The runtime takes 30 February for 2 March. */
const isDay = (text: string): boolean =>
  new Date(Date.parse(text) || 0).toISOString().startsWith(text);

const isScope = (value: unknown): boolean => scopes.includes(value as Scope);

/** What each part of a new token has to be. `find` gives undefined for anything else. */
export const grantRules = {
  name: {
    expected: `1 to 64 characters out of A-Z a-z 0-9 . _ @ -, the first a letter or digit, not ${ENVIRONMENT_NAME}`,
    find: (value: unknown) =>
      typeof value === "string" && NAME.test(value) && value !== ENVIRONMENT_NAME
        ? value
        : undefined,
  },
  scopes: {
    expected: `one or more of ${scopes.join(",")}`,
    find: (value: unknown) =>
      Array.isArray(value) && value.length > 0 && value.every(isScope)
        ? scopes.filter((scope) => value.includes(scope))
        : undefined,
  },
  /** A duration from now, or a date, which means its first moment in UTC, or a full time. */
  expires: {
    optional: true,
    expected:
      "seconds, minutes, hours or days, as in 30m, 12h or 90d, at most 36500d, " +
      "or a date or time in the future, as in 2030-01-31 or 2030-01-31T18:00Z",
    find: (value: unknown, nowMs: number) => {
      if (typeof value !== "string") return undefined;
      const durationMs = findDurationMs(value);
      const isTime = TIME.test(value) && isDay(value.slice(0, "2030-01-31".length));
      const timeMs = isTime ? Date.parse(value) : Number.NaN;
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
export function parseGrant(given: unknown): TokenGrant {
  const createdAtMs = Date.now();
  const { find, ...rule } = grantRules.expires;
  const expires = { ...rule, find: (asked: unknown) => find(asked, createdAtMs) };
  const { expires: expiresAtMs, ...grant } = parseMembers(given, { ...grantRules, expires });
  return { ...grant, expiresAtMs, createdAtMs };
}

/**
 * What the grant has that its maker lacks, for people; undefined if there is nothing. `allRate` is the rate of tokens
 * without one of their own. The operator's own token may hand out anything.
 */
export function findExcess(
  grant: TokenGrant,
  { name, expiresAtMs = Infinity, rate }: TokenRecord,
  allRate: string,
): string | undefined {
  if (name === ENVIRONMENT_NAME) return undefined;
  if ((grant.expiresAtMs ?? Infinity) > expiresAtMs)
    return `expires: at the latest ${iso(expiresAtMs)}, when the token that asks for it expires`;
  const [own, asked] = [rate, grant.rate].map((text) => findRate(text ?? allRate));
  if (own === undefined || (asked && isWithin(asked, own))) return undefined;
  return `rate: at most ${rate ?? allRate}, the rate of the token that asks for it`;
}

/** Neither at once nor in the long run. */
const isWithin = (asked: Rate, own: Rate): boolean =>
  asked.units <= own.units && asked.units * own.windowSeconds <= own.units * asked.windowSeconds;

const ID_LENGTH = 16;

export const summarize = (token: TokenRecord): TokenSummary => ({
  id: token.hash.slice(0, ID_LENGTH),
  name: token.name,
  prefix: token.prefix,
  scopes: token.scopes,
  created: new Date(token.createdAtMs).toISOString(),
  expires: iso(token.expiresAtMs),
  lastUsed: iso(token.lastUsedAtMs),
  revoked: iso(token.revokedAtMs),
  rate: token.rate ?? null,
});

export const iso = (ms: number | undefined): string | null =>
  ms === undefined ? null : new Date(ms).toISOString();

function checksum(text: string): string {
  let rest = Bun.hash.crc32(text);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** Every character is as likely as the others, to within 2^-26. */
const randomText = (length: number): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(length)), (random) =>
    ALPHABET.charAt(random % ALPHABET.length),
  ).join("");
