/** The issuer's keys: fetched in the background, rotated, and kept while the issuer is down, slow or lying. */

import { afterAll, describe, expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { AUDIENCE, type Issuer, makeKey, startIssuer } from "../support/issuer.ts";
import { limits } from "../support/limits.ts";
import { startProvider } from "../support/provider.ts";
import {
  getText,
  readMetric,
  send,
  sendPlant,
  startService,
  type TestService,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const ask = (service: TestService, token: string, more: Record<string, string> = {}) =>
  send(service, "GET", "/token", { headers: { authorization: `Bearer ${token}`, ...more } });

const statusOf = async (service: TestService, token: string): Promise<number> =>
  (await ask(service, token)).status;

/** Resolves when the service has logged this event. */
const untilLogged = ({ logLines }: TestService, event: string): Promise<void> =>
  until(event, () => logLines.some((line) => line.includes(`"event":"${event}"`)));

/** It is asked and does not answer, until it is let go. */
function hold({ documents }: Issuer): () => void {
  const { discovery } = documents;
  const held = Promise.withResolvers<unknown>();
  documents.discovery = held.promise;
  return () => held.resolve(discovery);
}

/** Every attempt may fetch, and fetches recur. */
const eager = limits({ jwtRefreshSeconds: 0, jwtCoolDownSeconds: 0.02 });
/** No fetch after the first, within a test. */
const reluctant = limits({ jwtCoolDownSeconds: 3_600 });

const sharedIssuer = await startIssuer();
const sharedService = await startService({ ...sharedIssuer.settings, ...eager });

afterAll(async () => {
  await sharedService[Symbol.asyncDispose]();
  await sharedIssuer[Symbol.asyncDispose]();
});

test("tokens of a real provider are accepted with their scopes, until one with its next key has arrived", async () => {
  await using provider = await startProvider();
  const atOnce = limits({ jwtCoolDownSeconds: 0 });
  await using service = await startService({ ...provider.settings, ...atOnce });
  const old = await provider.grant("plants:read tokens:manage");
  expect(await (await ask(service, old)).json()).toMatchObject({
    name: "jwt:nightly",
    scopes: ["plants:read", "tokens:manage"],
  });
  await provider.rotate();
  // Known keys serve without a question.
  expect(await statusOf(service, old)).toBe(200);
  expect(await statusOf(service, await provider.grant("plants:read"))).toBe(200);
  expect(await statusOf(service, old)).toBe(401);
});

describe("an unknown key id", () => {
  test("fetches once for all requests that wait, and not again within the cool-down", async () => {
    await using issuer = await startIssuer();
    const letGo = hold(issuer);
    await using service = await startService({ ...issuer.settings, ...reluctant });
    const second = await makeKey("second");
    const token = await issuer.sign({}, {}, second);
    const statuses = Array.from({ length: 10 }, () => statusOf(service, token));
    await until("the issuer is asked", () => issuer.asked.length > 0);
    letGo();
    expect(await Promise.all(statuses)).toEqual(Array.from({ length: 10 }, () => 401));
    issuer.documents.keys = { keys: [second.publicJwk] };
    expect(await statusOf(service, token)).toBe(401);
    expect(issuer.asked).toEqual(["/.well-known/openid-configuration", "/keys"]);
  });

  test("of a token without one is no matter if the issuer has one key of its kind", async () => {
    const token = await sharedIssuer.sign({}, { kid: undefined });
    expect(await statusOf(sharedService, token)).toBe(200);
    await using other = await startIssuer();
    other.documents.keys = { keys: [other.key.publicJwk, (await makeKey("second")).publicJwk] };
    await using choosing = await startService(other.settings);
    const response = await ask(choosing, await other.sign({}, { kid: undefined }));
    expect(await response.json()).toMatchObject({ message: expect.stringContaining("kid") });
  });
});

describe("an issuer that is down", () => {
  test("at the start keeps only its own tokens waiting until it answers", async () => {
    const { port } = new URL((await startIssuer().then(stop)).url);
    const issuer = await startIssuer(Number(port)).then(stop);
    await using service = await startService({ ...issuer.settings, ...eager });
    await untilLogged(service, "issuer_keys_not_fetched");
    expect((await send(service, "GET", "/readyz")).status).toBe(200);
    expect((await send(service, "GET", "/token")).status).toBe(200);
    const refused = await ask(service, await issuer.sign());
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(await refused.json()).toEqual({
      error: catalogue.issuer_unavailable.code,
      message: "The JWT's key is unknown, and the issuer does not answer.",
    });
    await using again = await startIssuer(Number(port));
    const token = await again.sign();
    await until("the token is accepted", async () => (await statusOf(service, token)) === 200);
    await untilLogged(service, "issuer_keys_fetched");
  });

  test("later ends no token of a known key, while the log and a metric show the age of its keys", async () => {
    await using issuer = await startIssuer();
    await using service = await startService({ ...issuer.settings, ...eager });
    expect(await statusOf(service, await issuer.sign())).toBe(200);
    await stop(issuer);
    await untilLogged(service, "issuer_keys_not_fetched");
    expect(await statusOf(service, await issuer.sign({ jti: "new" }))).toBe(200);
    expect(await statusOf(service, await issuer.sign({}, { kid: "unknown" }))).toBe(503);
    expect(await readMetric(service, "plantstore_jwt_keys_age_seconds")).toBeGreaterThan(0);
    const line = service.logLines.find((one) => one.includes("issuer_keys_not_fetched"));
    expect(JSON.parse(line ?? "")).toMatchObject({ level: "warn", keysAgeSeconds: 0 });
    // An outage is logged once an hour.
    expect(service.logLines.filter((one) => one.includes("issuer_keys_not_"))).toHaveLength(1);
  });
});

test("a service without an issuer has neither the metric nor the metadata", async () => {
  await using service = await startService();
  expect(await getText(service, "/metrics")).not.toMatch(/^plantstore_jwt/m);
  const response = await send(service, "GET", "/.well-known/oauth-protected-resource");
  expect(response.status).toBe(404);
});

test("an issuer that is slow delays no token of a known key", async () => {
  await using issuer = await startIssuer();
  await using service = await startService({
    ...issuer.settings,
    ...limits({ jwtRefreshSeconds: 0, jwtCoolDownSeconds: 0.02, jwtFetchSecondsMax: 1 }),
  });
  await untilLogged(service, "issuer_keys_fetched");
  // Neither a head nor, then, the rest of a body arrives.
  issuer.documents.discovery = new Promise(() => undefined);
  const asked = issuer.asked.length;
  await until("a fetch hangs", () => issuer.asked.length > asked + 1);
  expect(await statusOf(service, await issuer.sign({ jti: "2" }))).toBe(200);
  expect(await statusOf(service, await issuer.sign({}, { kid: "unknown" }))).toBe(503);
  await untilLogged(service, "issuer_keys_not_fetched");
});

test("made-up JWTs that wait for the issuer leave memory to others", async () => {
  await using issuer = await startIssuer();
  const letGo = hold(issuer);
  await using service = await startService({
    ...issuer.settings,
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "8388608",
    ...limits({ drainSecondsMax: 0.1 }),
  });
  const large = { id: 1n, name: "x".repeat(1_000_000), tag: null };
  const token = await issuer.sign({}, { kid: "made-up" });
  const waiting = Array.from({ length: 8 }, () => sendPlant(service.url, large, token));
  const refused = await Promise.race(waiting);
  expect(await refused.json()).toMatchObject({ error: catalogue.overloaded.code });
  const small = { ...large, name: "y".repeat(500_000) };
  expect((await sendPlant(service.url, small)).status).toBe(200);
  letGo();
  await Promise.all(waiting);
});

const stop = async (issuer: Issuer): Promise<Issuer> => {
  await issuer[Symbol.asyncDispose]();
  return issuer;
};

describe("an issuer that lies", () => {
  const { url, key, documents } = sharedIssuer;
  const truth = { ...documents };
  const refer = (to: string, keys: string) => ({ discovery: { issuer: to, jwks_uri: keys } });
  const publish = (keys: unknown) => ({ keys: { keys } });
  const endless = new Response(new Uint8Array(300_000));
  const nested = `{"keys":[{"kty":"EC","crv":"P-256","x":${"[".repeat(1e5)}${"]".repeat(1e5)}}]}`;

  test.each<[what: string, says: RegExp, lie: Partial<Issuer["documents"]>]>([
    ["about its name", /another issuer: \\"https:\/\/o/, refer("https://o.example", `${url}/keys`)],
    ["with keys by plain http elsewhere", /jwks_uri.*not allowed/, refer(url, "http://192.0.2.1/")],
    ["with null", /names another issuer: null/, { discovery: null }],
    [
      "with a page",
      /openid-configuration is not valid JSON/,
      { discovery: new Response("<html>") },
    ],
    ["with a redirect", /answers 302/, { keys: Response.redirect(`${url}/other`) }],
    ["with a failure", /answers 500/, { keys: new Response("", { status: 500 }) }],
    ["with a document without end", /larger than 262144 bytes/, { keys: endless }],
    ["with no keys", /has no key for RS256/, publish([])],
    ["with keys that are no list", /has no key/, publish("all")],
    ["with a shared secret", /has no key/, publish([{ kty: "oct", k: "c2VjcmV0", kid: "first" }])],
    ["with a short key", /has no key/, publish([{ kty: "RSA", n: "AQAB", e: "AQAB" }])],
    [
      "with a key that is nested deeply",
      /\/keys is nested deeper than 1000/,
      { keys: new Response(nested) },
    ],
    ["with a private key", /has no key/, publish([{ ...key.publicJwk, d: "AQAB" }, null, 7])],
  ])("%s is refused", async (_what, says, lie) => {
    await untilLogged(sharedService, "issuer_keys_fetched");
    sharedService.logLines.length = 0;
    Object.assign(documents, lie);
    await untilLogged(sharedService, "issuer_keys_not_fetched");
    expect(sharedService.logLines.find((line) => line.includes("_not_fetched"))).toMatch(says);
    expect(sharedService.logLines.join("")).not.toContain("The body");
    // The keys from before still count.
    const token = await sharedIssuer.sign({ jti: crypto.randomUUID() });
    expect(await statusOf(sharedService, token)).toBe(200);
    const unknown = await ask(sharedService, await sharedIssuer.sign({}, { kid: "unknown" }));
    expect([unknown.status, await unknown.json()]).toEqual([
      503,
      {
        error: catalogue.issuer_unavailable.code,
        message: expect.stringContaining("the issuer's answer has no key that can be used"),
      },
    ]);
    Object.assign(documents, truth);
  });

  test("with a malformed key has its tokens refused", async () => {
    await using issuer = await startIssuer();
    issuer.documents.keys = { keys: [{ ...issuer.key.publicJwk, x: "AQAB", y: "AQAB" }] };
    await using service = await startService(issuer.settings);
    const message = "The JWT failed the check of its key.";
    const response = await ask(service, await issuer.sign());
    expect([response.status, await response.json()]).toEqual([
      401,
      { error: catalogue.token_invalid.code, message },
    ]);
  });
});

const THREADS = process.platform === "linux" ? 3 : 1;

test("every HTTP thread accepts the tokens of the issuer", async () => {
  const settings = { ...sharedIssuer.settings, PLANTSTORE_WORKERS: String(THREADS) };
  await using threaded = await startService(settings);
  const token = await sharedIssuer.sign();
  const threads = new Set<string>();
  for (let count = 0; threads.size < THREADS && count < 1_000; count++) {
    const response = await ask(threaded, token, { connection: "close", "x-request-id": "?" });
    expect(response.status).toBe(200);
    threads.add((response.headers.get("x-request-id") ?? "").replace(/-.*/, ""));
  }
  expect(threads.size).toBe(THREADS);
});

test("the metadata names the issuer, the audience and the scopes, and is in the description", async () => {
  const response = await fetch(`${sharedService.url}/.well-known/oauth-protected-resource`);
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(await response.json()).toEqual({
    resource: AUDIENCE,
    authorization_servers: [sharedIssuer.url],
    scopes_supported: ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"],
    bearer_methods_supported: ["header"],
    resource_name: "Plant Store",
  });
  const missing = await fetch(`${sharedService.url}/plants`);
  expect(missing.headers.get("www-authenticate")).toBe(
    `Bearer realm="plants", resource_metadata="${AUDIENCE}/.well-known/oauth-protected-resource"`,
  );
  const description = await (await fetch(`${sharedService.url}/openapi.json`)).json();
  expect(description).toHaveProperty(["paths", "/.well-known/oauth-protected-resource", "get"]);
});

test("the metadata of an audience with a path is where its URL says, also outside of the base path", async () => {
  await using shop = await startService({
    ...sharedIssuer.settings,
    PLANTSTORE_JWT_AUDIENCE: `${AUDIENCE}/shop`,
    PLANTSTORE_BASE_PATH: "/shop",
  });
  const missing = await fetch(`${shop.url}/plants`);
  const [, url = ""] =
    /resource_metadata="([^"]+)"/.exec(missing.headers.get("www-authenticate") ?? "") ?? [];
  expect(url).toBe(`${AUDIENCE}/.well-known/oauth-protected-resource/shop`);
  const own = `${shop.url}/.well-known/oauth-protected-resource`;
  for (const place of [new URL(new URL(url).pathname, shop.url), own])
    expect(await (await fetch(place)).json()).toMatchObject({ resource: `${AUDIENCE}/shop` });
});
