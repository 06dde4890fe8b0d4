/** JWTs of the configured issuer: the checks of a token, and the issuer's keys, which are fetched in the background. */

import type { JWTPayload } from "jose";
import {
  JOSEAlgNotAllowed,
  JOSEError,
  JWKSMultipleMatchingKeys,
  JWKSNoMatchingKey,
  JWSSignatureVerificationFailed,
  JWTClaimValidationFailed,
  JWTExpired,
} from "jose/errors";
import { createLocalJWKSet } from "jose/jwks/local";
import { jwtVerify } from "jose/jwt/verify";
import { isSecureUrl } from "../domain/address.ts";
import { Refusal } from "../domain/errors.ts";
import { parseJson } from "../domain/plant.ts";
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
/** Of all verified tokens that are cached: about 5,000. */
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

export class JwtVerifier {
  private readonly settings: JwtSettings;
  private readonly log: KeyLog;
  private keys = createLocalJWKSet({ keys: [] });
  private keysJson = "";
  private fetchedAtMs = performance.now();
  private attemptedAtMs = Number.NEGATIVE_INFINITY;
  private remindedAtMs = Number.NEGATIVE_INFINITY;
  /** Whether the last fetch failed; undefined before the first. */
  private hasFailed: boolean | undefined;
  private fetching: Promise<void> | undefined;
  private readonly refreshing: Timer;
  /** Keyed by header, to skip the parse and the hash. */
  private readonly cache = new Map<string, ReturnType<typeof toChecked>>();
  private cachedCharacters = 0;

  constructor(settings: JwtSettings, log: KeyLog) {
    this.settings = settings;
    this.log = log;
    void this.refresh();
    const refreshOld = (): void => {
      if (this.hasFailed !== false || this.keysAgeSeconds >= settings.jwtRefreshSeconds)
        void this.refresh();
    };
    this.refreshing = setInterval(refreshOld, settings.jwtCoolDownSeconds * 1000).unref();
  }

  /** Since the last successful fetch, or else since the start. */
  get keysAgeSeconds(): number {
    return (performance.now() - this.fetchedAtMs) / 1000;
  }

  close(): void {
    clearInterval(this.refreshing);
  }

  /** A token that was verified with the current keys. It may have expired since. */
  find(header: string) {
    return this.cache.get(header);
  }

  /** Rejects with a Refusal that names the failed check. */
  async verify(header: string, token: string) {
    if (token.length > TOKEN_CHARACTERS_MAX) throw refuse("length");
    const { keys, settings } = this;
    const { payload, protectedHeader } = await jwtVerify(token, this.findKey, {
      algorithms,
      issuer: settings.jwtIssuer,
      audience: settings.jwtAudience,
      clockTolerance: SKEW_SECONDS,
      requiredClaims: ["sub", "exp"],
    }).catch((error: unknown) => {
      throw explain(error);
    });
    requireAccessToken(protectedHeader.typ, payload);
    const checked = toChecked(payload);
    // A fetch meanwhile may have dropped the key.
    if (keys === this.keys && header.length === SCHEME.length + token.length)
      this.remember(header, checked);
    return checked;
  }

  private remember(header: string, checked: ReturnType<typeof toChecked>): void {
    if (this.cachedCharacters + header.length > CACHED_CHARACTERS_MAX) this.forgetAll();
    this.cachedCharacters += header.length;
    this.cache.set(header, checked);
  }

  private forgetAll(): void {
    this.cache.clear();
    this.cachedCharacters = 0;
  }

  /** Only keys of the issuer count. A key or its URL in the token's header (jwk, jku, x5c, x5u) is ignored. */
  private readonly findKey = async (...asked: Parameters<typeof this.keys>) => {
    try {
      return await this.keys(...asked);
    } catch (error) {
      if (!(error instanceof JWKSNoMatchingKey)) throw error;
    }
    await this.refresh();
    // The issuer may have published the key since, so the token is not known to be invalid.
    if (this.hasFailed) throw new Refusal("issuer_unavailable");
    return this.keys(...asked);
  };

  /** Joins a fetch in flight, or starts one unless the last began within the cool-down. Never rejects. */
  private async refresh(): Promise<void> {
    const nowMs = performance.now();
    if (
      this.fetching === undefined &&
      nowMs - this.attemptedAtMs >= this.settings.jwtCoolDownSeconds * 1000
    ) {
      this.attemptedAtMs = nowMs;
      this.fetching = fetchKeys(this.settings)
        .then(this.useKeys)
        .catch(this.noteFailure)
        .finally(() => (this.fetching = undefined));
    }
    await this.fetching;
  }

  private readonly useKeys = (keys: readonly object[]): void => {
    const json = JSON.stringify(keys);
    if (json !== this.keysJson) {
      this.keys = createLocalJWKSet({ keys: keys as never });
      this.keysJson = json;
      // A key that the issuer withdrew verifies nothing any more.
      this.forgetAll();
    }
    if (this.hasFailed !== false) this.log.info("issuer_keys_fetched", { keys: keys.length });
    this.fetchedAtMs = performance.now();
    this.remindedAtMs = Number.NEGATIVE_INFINITY;
    this.hasFailed = false;
  };

  private readonly noteFailure = (cause: unknown): void => {
    const nowMs = performance.now();
    if (nowMs - this.remindedAtMs >= REMIND_MS) {
      this.remindedAtMs = nowMs;
      const keysAgeSeconds = Math.round(this.keysAgeSeconds);
      this.log.warn("issuer_keys_not_fetched", { keysAgeSeconds, cause });
    }
    this.hasFailed = true;
  };
}

/** By OpenID Connect Discovery 1.0, section 4. */
async function fetchKeys({ jwtIssuer, jwtFetchSecondsMax }: JwtSettings): Promise<object[]> {
  const signal = AbortSignal.timeout(jwtFetchSecondsMax * 1000);
  const place = `${jwtIssuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const { issuer, jwks_uri: keysUrl } = await readJson(place, signal);
  if (issuer !== jwtIssuer) throw new Error(`${place} names another issuer: ${show(issuer)}`);
  const isPlain = typeof keysUrl === "string" && URL.parse(keysUrl)?.protocol === "http:";
  // An issuer elsewhere must not make this machine its source of keys.
  if (!isSecureUrl(keysUrl) || (isPlain && !jwtIssuer.startsWith("http:")))
    throw new Error(`${place} has a jwks_uri that is not allowed: ${show(keysUrl)}`);
  const { keys } = await readJson(keysUrl, signal);
  const usable = Array.isArray(keys) ? keys.filter(isUsable) : [];
  if (usable.length === 0) throw new Error(`${keysUrl} has no key for ${algorithms.join(", ")}`);
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
  const response = await fetch(url, { signal, redirect: "error" });
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > DOCUMENT_BYTES_MAX)
      throw new Error(`${url} is larger than ${DOCUMENT_BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return (parseJson(Buffer.concat(chunks).toString()) ?? {}) as Record<string, unknown>;
}

/** The check becomes `error_description`, so it is never a text from the token. */
const refuse = (check: string, reason: "token_invalid" | "token_expired" = "token_invalid") =>
  new Refusal(reason, `The JWT failed the check of its ${check}.`, check);

function explain(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof JWTExpired) return refuse("exp", "token_expired");
  if (error instanceof JWTClaimValidationFailed) return refuse(error.claim);
  if (error instanceof JOSEAlgNotAllowed) return refuse("alg");
  if (error instanceof JWSSignatureVerificationFailed) return refuse("signature");
  if (error instanceof JWKSNoMatchingKey || error instanceof JWKSMultipleMatchingKeys)
    return refuse("kid");
  // The runtime's own errors come from a malformed key of the issuer.
  return refuse(error instanceof JOSEError ? "format" : "key");
}

/** RFC 9068, section 4. Many issuers still send `JWT`: then a scope tells an access token from an ID token. */
function requireAccessToken(typ: unknown, { scope, scp }: JWTPayload): void {
  const type = String(typ)
    .toLowerCase()
    .replace(/^application\//, "");
  if (type !== "at+jwt" && (type !== "jwt" || (scope ?? scp) === undefined)) throw refuse("typ");
}

function toChecked({ sub, exp = 0, client_id: client, scope, scp }: JWTPayload) {
  if (typeof sub !== "string" || sub === "") throw refuse("sub");
  const lists = [scope, scp].map((list) => (typeof list === "string" ? list.split(" ") : list));
  const granted = new Set<unknown>(lists.filter(Array.isArray).flat());
  const record: TokenRecord = {
    // The rate limit is kept by hash, so all tokens of a subject share one bucket.
    hash: Bun.SHA256.hash(`jwt:${sub}`, "hex"),
    prefix: "",
    name: toName(sub, client),
    scopes: scopes.filter((one) => granted.has(one)),
    createdAtMs: 0,
    expiresAtMs: Math.min((exp + SKEW_SECONDS) * 1000, TIME_MS_MAX),
    lastUsedAtMs: undefined,
    revokedAtMs: undefined,
    rate: undefined,
  };
  return { record, checkedAtMs: Number.POSITIVE_INFINITY };
}

/**
 * No token of ours can have a name with a colon. A name that was cleaned or cut ends in a hash, so it stays unique, and
 * no other name has a tilde.
 */
function toName(sub: string, client: unknown): string {
  const parts = [sub, ...(typeof client === "string" && client !== sub ? [client] : [])];
  const cleaned = parts.map((part) => part.replaceAll(/[^\x21-\x7d]+/g, "?"));
  const name = `jwt:${cleaned.join(" via ")}`;
  if (name === `jwt:${parts.join(" via ")}` && name.length <= NAME_CHARACTERS_MAX) return name;
  const hash = Bun.SHA256.hash(JSON.stringify(parts), "hex").slice(0, HASH_CHARACTERS);
  return `${name.slice(0, NAME_CHARACTERS_MAX - hash.length - 1)}~${hash}`;
}
