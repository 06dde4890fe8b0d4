/** JWTs of the configured issuer: the checks of a token, and the issuer's keys, which are fetched in the background. */

import type { JWTPayload } from "jose";
import { JOSEError, JWKSNoMatchingKey, JWTClaimValidationFailed, JWTExpired } from "jose/errors";
import { createLocalJWKSet } from "jose/jwks/local";
import { jwtVerify } from "jose/jwt/verify";
import { isSecureUrl } from "../address.ts";
import { readWhole } from "../answer.ts";
import { tagsRule } from "../domain/confinement.ts";
import { Refusal } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";
import { scopes, type TokenRecord } from "../domain/token.ts";

export interface JwtSettings
  extends
    Readonly<Record<"jwtIssuer" | "jwtAudience", string>>,
    Readonly<Record<"jwtRefreshSeconds" | "jwtCoolDownSeconds" | "jwtFetchSecondsMax", number>> {}

type Note = (event: string, fields: Readonly<Record<string, unknown>>) => void;
export type KeyLog = Readonly<Record<"info" | "warn", Note>>;

/** RFC 8725, section 3.1: pinned, and asymmetric only. With HMAC the issuer's public key would be a shared secret. */
const algorithms = ["RS256", "PS256", "ES256", "EdDSA"];
const SKEW_SECONDS = 60;
const TOKEN_CHARACTERS_MAX = 8_192;
/** The size of the cache of verified tokens: about 5,000 of them. */
const CACHED_CHARACTERS_MAX = 4_194_304;
/** No other spelling of a header is cached: one client could fill the cache with variants. */
const SCHEME = "Bearer ";
const NAME_CHARACTERS_MAX = 100;
/** 64 bits: a subject with the name of another cannot be found by trying. */
const HASH_CHARACTERS = 16;
const DOCUMENT_BYTES_MAX = 262_144;
/** During an outage the log repeats the failure at this interval. */
const REMIND_MS = 3_600_000;
/** The largest Date. */
const TIME_MS_MAX = 8.64e15;

export type JwtVerifier = ReturnType<typeof createJwtVerifier>;

export function createJwtVerifier(settings: JwtSettings, log: KeyLog) {
  /** Keyed by header, to skip the parse and the hash. */
  const cache = new Map<string, ReturnType<typeof toChecked>>();
  let cachedCharacters = 0;
  const forgetAll = (): void => {
    cache.clear();
    cachedCharacters = 0;
  };
  // A key that the issuer withdrew verifies nothing.
  const keys = new IssuerKeys(settings, log, forgetAll);

  return {
    get keysAgeSeconds(): number {
      return keys.ageSeconds;
    },

    close: (): void => keys.close(),
    findTokenOrigin: () => keys.findTokenOrigin(),

    /** A token that was verified with the current keys. It may have expired since. */
    find: (header: string) => cache.get(header),

    /** Rejects with a Refusal that names the failed check. */
    async verify(header: string, token: string) {
      if (token.length > TOKEN_CHARACTERS_MAX) throw refuse("length");
      const keysBefore = keys.now;
      const { payload, protectedHeader } = await jwtVerify(
        token,
        (...lookUp) => keys.find(...lookUp),
        {
          algorithms,
          issuer: settings.jwtIssuer,
          audience: settings.jwtAudience,
          clockTolerance: SKEW_SECONDS,
          requiredClaims: ["sub", "exp"],
        },
      ).catch((error: unknown) => {
        throw toTokenRefusal(error);
      });
      requireAccessToken(protectedHeader.typ, payload);
      const checked = toChecked(payload);
      // A fetch meanwhile may have dropped the key.
      if (keys.now !== keysBefore || header.length !== SCHEME.length + token.length) return checked;
      if (cachedCharacters + header.length > CACHED_CHARACTERS_MAX) forgetAll();
      cachedCharacters += header.length;
      cache.set(header, checked);
      return checked;
    },
  };
}

type KeySet = ReturnType<typeof createLocalJWKSet>;

/** The issuer's keys. They are fetched now and in the background. `onChange` is called when there are others. */
class IssuerKeys {
  /** Only keys of the issuer count. A key or its URL in the token's header (jwk, jku, x5c, x5u) is ignored. */
  now: KeySet = createLocalJWKSet({ keys: [] });
  readonly #settings: JwtSettings;
  readonly #log: KeyLog;
  readonly #onChange: () => void;
  readonly #coolDownMs: number;
  #json = "";
  #fetchedAtMs = performance.now();
  #attemptedAtMs = Number.NEGATIVE_INFINITY;
  #remindedAtMs = Number.NEGATIVE_INFINITY;
  /** How the last fetch ended; undefined before the first has. */
  #outcome: "fetched" | "unanswered" | "unusable" | undefined;
  #tokenOrigin: string | undefined;
  #fetching: Promise<void> | undefined;
  readonly #firstFetch: Promise<void>;
  readonly #refreshing: ReturnType<typeof setInterval>;

  constructor(settings: JwtSettings, log: KeyLog, onChange: () => void) {
    this.#settings = settings;
    this.#log = log;
    this.#onChange = onChange;
    this.#coolDownMs = settings.jwtCoolDownSeconds * 1000;
    this.#firstFetch = this.#refresh();
    this.#refreshing = setInterval(() => this.#refreshOld(), this.#coolDownMs).unref();
  }

  /** Since the last successful fetch, or else since the start. */
  get ageSeconds(): number {
    return (performance.now() - this.#fetchedAtMs) / 1000;
  }

  close(): void {
    clearInterval(this.#refreshing);
  }

  /** The origin of the issuer's token endpoint; undefined if it has not named one. Waits for the first fetch. */
  async findTokenOrigin(): Promise<string | undefined> {
    await this.#firstFetch;
    return this.#tokenOrigin;
  }

  async find(...lookUp: Parameters<KeySet>) {
    try {
      return await this.now(...lookUp);
    } catch (error) {
      if (!(error instanceof JWKSNoMatchingKey)) throw error;
    }
    await this.#refresh();
    const outcome = this.#outcome;
    // The issuer may have published the key since, so the token is not known to be invalid.
    if (outcome === "unanswered" || outcome === "unusable")
      throw new Refusal("issuer_unavailable", `The JWT's key is unknown, and ${faults[outcome]}`);
    return this.now(...lookUp);
  }

  #refreshOld(): void {
    const isOld = this.ageSeconds >= this.#settings.jwtRefreshSeconds;
    if (this.#outcome !== "fetched" || isOld) void this.#refresh();
  }

  /** Joins a fetch in flight, or starts one unless the last began within the cool-down. Never rejects. */
  async #refresh(): Promise<void> {
    const nowMs = performance.now();
    if (this.#fetching === undefined && nowMs - this.#attemptedAtMs >= this.#coolDownMs) {
      this.#attemptedAtMs = nowMs;
      this.#fetching = fetchKeys(this.#settings, (origin) => (this.#tokenOrigin = origin))
        .then((fetched) => this.#use(fetched))
        .catch((cause: unknown) => this.#noteFailure(cause))
        .finally(() => (this.#fetching = undefined));
    }
    await this.#fetching;
  }

  #use(fetched: readonly object[]): void {
    const json = JSON.stringify(fetched);
    if (json !== this.#json) {
      this.now = createLocalJWKSet({ keys: fetched as never });
      this.#json = json;
      this.#onChange();
    }
    if (this.#outcome !== "fetched")
      this.#log.info("issuer_keys_fetched", { keys: fetched.length });
    this.#fetchedAtMs = performance.now();
    this.#remindedAtMs = Number.NEGATIVE_INFINITY;
    this.#outcome = "fetched";
  }

  #noteFailure(cause: unknown): void {
    const nowMs = performance.now();
    if (nowMs - this.#remindedAtMs >= REMIND_MS) {
      this.#remindedAtMs = nowMs;
      const keysAgeSeconds = Math.round(this.ageSeconds);
      this.#log.warn("issuer_keys_not_fetched", { keysAgeSeconds, cause });
    }
    this.#outcome = cause instanceof UnusableAnswer ? "unusable" : "unanswered";
  }
}

const faults = {
  unanswered: "the issuer does not answer.",
  unusable: "the issuer's answer has no key that can be used; the log of the service says why.",
};

/** The issuer has answered, but not with its keys. */
class UnusableAnswer extends Error {}

/** By OpenID Connect Discovery 1.0, section 4. */
async function fetchKeys(
  { jwtIssuer, jwtFetchSecondsMax }: JwtSettings,
  onTokenOrigin: (origin: string) => void,
): Promise<object[]> {
  const signal = AbortSignal.timeout(jwtFetchSecondsMax * 1000);
  const place = `${jwtIssuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const found = await readJson(place, signal);
  const { issuer, jwks_uri: keysUrl, token_endpoint: tokenUrl } = found;
  if (issuer !== jwtIssuer)
    throw new UnusableAnswer(`${place} names another issuer: ${show(issuer)}`);
  // An issuer elsewhere must not make this machine its source of keys.
  const isAllowed = (url: unknown): url is string =>
    isSecureUrl(url) && (jwtIssuer.startsWith("http:") || new URL(url).protocol === "https:");
  if (isAllowed(tokenUrl)) onTokenOrigin(new URL(tokenUrl).origin);
  if (!isAllowed(keysUrl))
    throw new UnusableAnswer(`${place} has a jwks_uri that is not allowed: ${show(keysUrl)}`);
  const { keys } = await readJson(keysUrl, signal);
  const usable = Array.isArray(keys) ? keys.filter(isUsable) : [];
  if (usable.length === 0)
    throw new UnusableAnswer(`${keysUrl} has no key for ${algorithms.join(", ")}`);
  return usable;
}

const show = (value: unknown): string => JSON.stringify(value ?? null).slice(0, 200);

/** Base64url characters of the modulus of an RSA key of 2,048 bits, the least that jose accepts. */
const RSA_CHARACTERS_MIN = 342;

function isUsable(key: unknown): boolean {
  const { kty, crv, n, d } = (key ?? {}) as Readonly<Record<string, unknown>>;
  // A private key was published by mistake: anyone may sign with it.
  if (d !== undefined) return false;
  if (kty === "RSA") return typeof n === "string" && n.length >= RSA_CHARACTERS_MIN;
  return (kty === "EC" && crv === "P-256") || (kty === "OKP" && crv === "Ed25519");
}

async function readJson(url: string, signal: AbortSignal): Promise<Record<string, unknown>> {
  const response = await fetch(url, { signal, redirect: "manual" });
  if (!response.ok) throw new UnusableAnswer(`${url} answers ${response.status}`);
  const document = await readWhole(response.body ?? [], DOCUMENT_BYTES_MAX);
  if (document === undefined)
    throw new UnusableAnswer(`${url} is larger than ${DOCUMENT_BYTES_MAX} bytes`);
  try {
    return (parseJson(document.toString(), url) ?? {}) as Record<string, unknown>;
  } catch (error) {
    throw new UnusableAnswer((error as Error).message);
  }
}

/** The check becomes `error_description`, so it is never a text from the token. */
const refuse = (check: string, reason: "token_invalid" | "token_expired" = "token_invalid") =>
  new Refusal(reason, `The JWT failed the check of its ${check}.`, check);

/** By the code of the library's error. */
const checks: Readonly<Record<string, string>> = {
  ERR_JOSE_ALG_NOT_ALLOWED: "alg",
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: "signature",
  ERR_JWKS_NO_MATCHING_KEY: "kid",
  ERR_JWKS_MULTIPLE_MATCHING_KEYS: "kid",
};

function toTokenRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof JWTExpired) return refuse("exp", "token_expired");
  if (error instanceof JWTClaimValidationFailed) return refuse(error.claim);
  // The runtime's own errors come from a malformed key of the issuer.
  return refuse(error instanceof JOSEError ? (checks[error.code] ?? "format") : "key");
}

/** RFC 9068, section 4. Many issuers still send `JWT`: then a scope tells an access token from an ID token. */
function requireAccessToken(typ: unknown, { scope, scp }: JWTPayload): void {
  const type = String(typ)
    .toLowerCase()
    .replace(/^application\//, "");
  if (type !== "at+jwt" && (type !== "jwt" || (scope ?? scp) === undefined)) throw refuse("typ");
}

/** The claim with the tags that a JWT is confined to. Without it, a JWT is for the whole store. */
const TAGS_CLAIM = "plantstore_tags";

function toChecked(payload: JWTPayload) {
  const { sub, exp = 0, client_id: client, scope, scp, [TAGS_CLAIM]: claimed } = payload;
  const tags = claimed === undefined ? undefined : tagsRule.find(claimed);
  // Ignoring a claim that is not understood would open the whole store.
  if (claimed !== undefined && tags === undefined) throw refuse(TAGS_CLAIM);
  if (typeof sub !== "string" || sub === "") throw refuse("sub");
  const lists = [scope, scp].map((list) => (typeof list === "string" ? list.split(" ") : list));
  const granted = new Set<unknown>(lists.filter(Array.isArray).flat());
  const record: TokenRecord = {
    // The rate limit is kept by hash, so all tokens of a subject share one bucket.
    hash: Bun.SHA256.hash(`jwt:${sub}`, "hex"),
    prefix: "",
    name: toName(sub, client),
    scopes: scopes.filter((one) => granted.has(one)),
    tags,
    createdAtMs: 0,
    expiresAtMs: Math.min((exp + SKEW_SECONDS) * 1000, TIME_MS_MAX),
    lastUsedAtMs: undefined,
    revokedAtMs: undefined,
    rate: undefined,
  };
  return { record, checkedAtMs: Number.POSITIVE_INFINITY };
}

/**
 * No token of ours acts under a name that begins with `jwt:` (`isReserved` in token.ts). A name that was cleaned or cut
 * ends in a hash, so it stays unique, and no other JWT's name has a tilde.
 */
function toName(sub: string, client: unknown): string {
  const parts = [sub, ...(typeof client === "string" && client !== sub ? [client] : [])];
  const cleaned = parts.map((part) => part.replaceAll(/[^\x21-\x7d]+/g, "?"));
  const name = `jwt:${cleaned.join(" via ")}`;
  if (name === `jwt:${parts.join(" via ")}` && name.length <= NAME_CHARACTERS_MAX) return name;
  const hash = Bun.SHA256.hash(JSON.stringify(parts), "hex").slice(0, HASH_CHARACTERS);
  return `${name.slice(0, NAME_CHARACTERS_MAX - hash.length - 1)}~${hash}`;
}
