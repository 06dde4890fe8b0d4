/** JWTs: which are accepted, what they may do, and which check refuses each forged one (RFC 8725). */

import { afterAll, describe, expect, test } from "bun:test";
import { exportSPKI, importJWK } from "jose";
import { Authenticator } from "../../src/auth/token.ts";
import { createJwtVerifier } from "../../src/auth/jwt.ts";
import { catalogue, type Refusal } from "../../src/domain/errors.ts";
import type { TokenStore } from "../../src/domain/store.ts";
import { plantScopes } from "../../src/domain/token.ts";
import { AUDIENCE, makeKey, secondsFromNow, startIssuer } from "../support/issuer.ts";
import { limits } from "../support/limits.ts";
import { grantToken, send, sendPlant, startService, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";

const issuer = await startIssuer();
const keys = {
  RS256: await makeKey("rsa", "RS256"),
  PS256: await makeKey("pss", "PS256"),
  EdDSA: await makeKey("edwards", "EdDSA"),
  ES256: issuer.key,
};
issuer.documents.keys = { keys: Object.values(keys).map(({ publicJwk }) => publicJwk) };
/** Someone else's issuer. */
const attacker = await startIssuer();
const service = await startService(issuer.settings);

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await issuer[Symbol.asyncDispose]();
  await attacker[Symbol.asyncDispose]();
});

const ask = (token: string, path = "/token", at: TestService = service): Promise<Response> =>
  send(at, "GET", path, { headers: { authorization: `Bearer ${token}` } });

/** The name and scopes that the service sees. */
const identify = async (token: string): Promise<unknown> => {
  const response = await ask(token);
  expect(response.status).toBe(200);
  return response.json();
};

const nameOf = async (claims: Readonly<Record<string, unknown>>): Promise<string> =>
  ((await identify(await issuer.sign(claims))) as { readonly name: string }).name;

describe("a JWT", () => {
  test.each(Object.keys(keys) as (keyof typeof keys)[])("signed by %s is accepted", async (alg) => {
    const token = await issuer.sign({}, {}, keys[alg]);
    for (let times = 0; times < 2; times++)
      expect(await identify(token)).toMatchObject({ name: "jwt:alice" });
  });

  test.each<[claims: object, shown: object, header?: object]>([
    [{ aud: ["https://other.example", AUDIENCE] }, {}],
    [{}, {}, { typ: "application/AT+JWT" }],
    [{}, {}, { typ: "JWT" }],
    [{ scope: undefined, scp: ["plants:read"] }, {}, { typ: "JWT" }],
    // Within the skew.
    [{ exp: secondsFromNow(-1), nbf: secondsFromNow(50) }, {}],
    // Later than any date.
    [{ exp: 1e300 }, { expires: "+275760-09-13T00:00:00.000Z" }],
    [{ scope: "plants:read openid profile" }, { scopes: ["plants:read"] }],
    [{ scope: undefined, scp: "plants:write plants:read" }, { scopes: [...plantScopes] }],
    [{ scope: undefined, scp: ["tokens:manage", 7, null] }, { scopes: ["tokens:manage"] }],
    [{ scope: "openid" }, { scopes: [] }],
    [{ scope: { "plants:read": true } }, { scopes: [] }],
    [{ scope: undefined }, { scopes: [] }],
    [{ plantstore_tags: ["indoor", "bulbs", "indoor"] }, { tags: ["bulbs", "indoor"] }],
  ])("with %j is accepted as %j", async (claims, shown, header = {}) => {
    expect(await identify(await issuer.sign({ ...claims }, { ...header }))).toMatchObject(shown);
  });

  test.each<[unknown, unknown, string | RegExp]>([
    ["alice", "console", "jwt:alice via console"],
    ["nightly", "nightly", "jwt:nightly"],
    ["auth0|5f7c", undefined, "jwt:auth0|5f7c"],
    ["PLANTSTORE_TOKEN", undefined, "jwt:PLANTSTORE_TOKEN"],
    ["alice", { id: 1 }, "jwt:alice"],
    ["a\nb\u0000 ü", undefined, /^jwt:a\?b\?~[0-9a-f]{16}$/],
    ["alice via console", undefined, /^jwt:alice\?via\?console~[0-9a-f]{16}$/],
    ["x".repeat(5_000), "c", /^jwt:x{79}~[0-9a-f]{16}$/],
  ])("of the subject %j and the client %j has a short, clean name", async (sub, client, name) => {
    const shown = await nameOf({ sub, client_id: client });
    expect(shown).toMatch(name);
    if (typeof name === "string") expect(shown).toBe(name);
    expect(shown.length).toBeLessThanOrEqual(100);
  });

  test("has a name that no other subject can have", async () => {
    const cleaned = await nameOf({ sub: "alice smith" });
    const forger = cleaned.slice("jwt:".length);
    expect(forger).toMatch(/^[\x21-\x7e]+$/);
    expect(await nameOf({ sub: forger })).not.toBe(cleaned);
  });

  test("is in the journal and the log by its name, and never as a token", async () => {
    const token = await issuer.sign({ sub: "journal" });
    const rose = { id: 77n, name: "Rose", tag: null };
    expect((await sendPlant(service.url, rose, token)).status).toBe(200);
    const changes = await (await ask(token, "/changes?by=jwt:journal")).json();
    expect(changes).toMatchObject([{ id: 77, by: "jwt:journal" }]);
    await ask(token, `/${token}`);
    const log = service.logLines.join("");
    expect(log).toContain('"token":"jwt:journal"');
    expect(log).toContain("/eyJ[redacted]");
    expect(log).not.toContain(token.slice(0, 40));
  });

  test("leaves our own tokens as they are", async () => {
    const own = await grantToken(service, ["plants:read"]);
    expect(await identify(own)).toMatchObject({ scopes: ["plants:read"] });
  });
});

const encode = (value: unknown): string =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

const [, payload = ""] = (await issuer.sign()).split(".");

/** A token with sound claims, and any head and signature. */
const assemble = (head: object, signature = "c2ln"): string =>
  `${encode({ typ: "at+jwt", kid: "rsa", ...head })}.${payload}.${signature}`;

function signHmac(secret: string): string {
  const signed = assemble({ alg: "HS256" }, "").slice(0, -1);
  return `${signed}.${new Bun.CryptoHasher("sha256", secret).update(signed).digest("base64url")}`;
}

const toPem = async (key: typeof issuer.key): Promise<string> =>
  exportSPKI((await importJWK({ ...key.publicJwk, ext: true })) as CryptoKey);

const signOther = async (): Promise<string> =>
  (await issuer.sign({ sub: "bob" })).replace(/\..*\./, `.${payload}.`);

const unencoded = { alg: "ES256", kid: "first", b64: false, crit: ["b64"] };

const withKey = (kid: unknown, head: object = {}): Promise<string> =>
  issuer.sign({}, { ...head, kid }, attacker.key);

const forged: readonly (readonly [what: string, check: string, make: () => unknown])[] = [
  ...["indoor", null, false, {}, [], [1], Array.from({ length: 33 }, (_, tag) => `t${tag}`)].map(
    (claim) =>
      [
        `with the tags ${JSON.stringify(claim)?.slice(0, 20)}`,
        "plantstore_tags",
        () => issuer.sign({ plantstore_tags: claim }),
      ] as const,
  ),
  ["without a signature, by alg none", "alg", () => assemble({ alg: "none" }, "")],
  ["signed by HMAC with the public key", "alg", async () => signHmac(await toPem(keys.RS256))],
  ["by an algorithm that is not pinned", "alg", () => assemble({ alg: "RS512" })],
  ["without an algorithm", "format", () => assemble({})],
  ["signed by another key under our kid", "signature", () => withKey("first")],
  ["with a changed payload", "signature", signOther],
  ["with an empty signature", "signature", () => assemble({ alg: "RS256" }, "")],
  ["with a kid of another kind of key", "kid", () => assemble({ alg: "ES256", kid: "rsa" })],
  ["with an unknown kid", "kid", () => withKey("unknown")],
  ["with a kid that is a path", "kid", () => withKey("../../../dev/null")],
  ["with a kid that is no string", "kid", () => assemble({ alg: "ES256", kid: { $ne: 1 } })],
  ["with its own key in jwk", "kid", () => withKey("mine", { jwk: attacker.key.publicJwk })],
  ["with jku", "signature", () => withKey("first", { jku: `${attacker.url}/keys` })],
  ["with an unknown crit", "format", () => assemble({ alg: "RS256", crit: ["x"], x: 1 })],
  ["with a payload that is not encoded", "signature", () => assemble(unencoded)],
  ["with a head that is no JSON", "format", () => `${encode("{")}.${payload}.c2ln`],
  ["of another issuer", "iss", () => issuer.sign({ iss: attacker.url })],
  ["of an issuer with a slash more", "iss", () => issuer.sign({ iss: `${issuer.url}/` })],
  ["without an issuer", "iss", () => issuer.sign({ iss: undefined })],
  ["for another audience", "aud", () => issuer.sign({ aud: "https://other.example" })],
  ["for no audience", "aud", () => issuer.sign({ aud: [] })],
  ["without an audience", "aud", () => issuer.sign({ aud: undefined })],
  ["that is an ID token", "typ", () => issuer.sign({ scope: undefined }, { typ: "JWT" })],
  ["that is a logout token", "typ", () => issuer.sign({}, { typ: "logout+jwt" })],
  ["without a type", "typ", () => issuer.sign({}, { typ: undefined })],
  ["with a type that is no string", "typ", () => issuer.sign({}, { typ: 7 })],
  ["that expired", "exp", () => issuer.sign({ exp: secondsFromNow(-61) })],
  ["that never expires", "exp", () => issuer.sign({ exp: undefined })],
  ["with an expiry that is text", "exp", () => issuer.sign({ exp: "tomorrow" })],
  ["that is not valid yet", "nbf", () => issuer.sign({ nbf: secondsFromNow(300) })],
  ["without a subject", "sub", () => issuer.sign({ sub: undefined })],
  ["with an empty subject", "sub", () => issuer.sign({ sub: "" })],
  ["with a subject that is no string", "sub", () => issuer.sign({ sub: { name: "alice" } })],
  ["of more than 8,192 characters", "length", () => issuer.sign({ padding: "x".repeat(8_000) })],
];

describe("a forged JWT", () => {
  test.each(forged)("%s is refused for its %s", async (what, check, make) => {
    const response = await ask((await make()) as string, "/plants");
    const { code } = catalogue[what === "that expired" ? "token_expired" : "token_invalid"];
    const message = `The JWT failed the check of its ${check}.`;
    expect([response.status, await response.json()]).toEqual([401, { error: code, message }]);
    expect(response.headers.get("www-authenticate")).toBe(
      `Bearer realm="plants", resource_metadata="${AUDIENCE}/.well-known/oauth-protected-resource", ` +
        `error="invalid_token", error_description="${message}"`,
    );
  });

  test("with five parts, or a part that is not base64url, is no token at all", async () => {
    const token = await issuer.sign();
    for (const other of [`${token}.a.b`, `${token}=`, token.replace(".", "+."), "a.b", "..."]) {
      const response = await ask(other);
      expect(await response.json()).toMatchObject({ error: catalogue.token_invalid.code });
    }
  });

  test("makes the service ask neither the attacker nor, within the cool-down, the issuer", async () => {
    expect(attacker.asked).toEqual([]);
    expect(issuer.asked).toHaveLength(2);
  });
});

test("the rate of tokens is one for all JWTs of a subject", async () => {
  await using limited = await startService({ ...issuer.settings, PLANTSTORE_RATE_LIMIT: "2/h" });
  const askAs = async (sub: string): Promise<number> =>
    (await ask(await issuer.sign({ sub, jti: crypto.randomUUID() }), "/token", limited)).status;
  expect([await askAs("a"), await askAs("a"), await askAs("a")]).toEqual([200, 200, 429]);
  expect(await askAs("b")).toBe(200);
});

const openVerifier = () =>
  createJwtVerifier(service.config, { info: () => undefined, warn: () => undefined });

describe("a stream", () => {
  test("learns when its JWT expires, though it was verified before", async () => {
    const jwts = openVerifier();
    const clock = { nowMs: Date.now() };
    const clocks = { nowMs: () => clock.nowMs, monotonicMs: () => performance.now() };
    const authenticator = new Authenticator({} as TokenStore, service.config, clocks, jwts);
    const header = `Bearer ${await issuer.sign()}`;
    expect(await authenticator.authenticate(header)).toMatchObject({ name: "jwt:alice" });
    // The first one waited for the keys, so it is not cached.
    expect(await authenticator.authenticate(header)).toMatchObject({ name: "jwt:alice" });
    expect(authenticator.authenticate(header)).toMatchObject({ name: "jwt:alice" });
    const ended = Promise.withResolvers<Refusal>();
    const unwatch = authenticator.watch({ header, onInvalid: ended.resolve });
    clock.nowMs += 661_000;
    expect((await ended.promise).reason).toBe("token_expired");
    unwatch();
    // A use of a JWT is not written to the store, which does not know it.
    await authenticator.flushUses();
    authenticator.close();
  });

  test("ends when the issuer withdraws the key of its JWT", async () => {
    await using own = await startIssuer();
    const eager = limits({ jwtRefreshSeconds: 0, jwtCoolDownSeconds: 0.05 });
    await using following = await startService({ ...own.settings, ...eager });
    const token = await own.sign();
    const response = await send(following, "GET", "/changes", {
      headers: { authorization: `Bearer ${token}`, accept: "text/event-stream" },
    });
    expect(response.status).toBe(200);
    own.documents.keys = { keys: [(await makeKey("second")).publicJwk] };
    await response.text().catch(() => undefined);
    const isRefused = async () => (await ask(token, "/token", following)).status === 401;
    await until("the token is refused", isRefused);
  });
});

test("verified tokens are cached up to 4 MiB, and under one spelling of the header", async () => {
  const jwts = openVerifier();
  const verified: string[] = [];
  const countCached = (): number =>
    verified.filter((header) => jwts.find(header) !== undefined).length;
  const token = await issuer.sign({ padding: "x".repeat(5_000) });
  await jwts.verify(`Bearer  ${token}`, token);
  expect(jwts.find(`Bearer  ${token}`)).toBeUndefined();
  for (let count = 0; count < 700; count++) {
    const header = `Bearer ${await issuer.sign({ padding: "x".repeat(5_000), jti: String(count) })}`;
    verified.push(header);
    await jwts.verify(header, header.slice("Bearer ".length));
    if (count === 300) expect(countCached()).toBe(301);
  }
  expect(countCached()).toBeWithin(1, 650);
  jwts.close();
});
