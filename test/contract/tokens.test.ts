/** Tokens over HTTP: made, listed and revoked by clients that may manage them. */

import { describe, expect, test } from "bun:test";
import { hashToken, mintToken, toRecord } from "../../src/auth/token.ts";
import { type Scope, scopes, type TokenSummary } from "../../src/domain/token.ts";
import { expectError } from "../support/expect.ts";
import {
  bearer as authorize,
  getJson,
  grantToken,
  send,
  startService,
  startShared,
  TEST_TOKEN,
  walkPages,
} from "../support/service.ts";

const service = await startShared();

const bearer = (token: string) => ({ headers: authorize(token) });

const ask = (body: unknown, token = TEST_TOKEN): Promise<Response> =>
  send(service, "POST", "/tokens", { ...bearer(token), body: JSON.stringify(body) });

const read = { scopes: ["plants:read"] };
const manage = { scopes: ["tokens:manage", "plants:read"] };

type Made = TokenSummary & { readonly token: string };

const make = async (body: object): Promise<Made> => {
  const response = await ask(body);
  expect(response.status).toBe(201);
  return (await response.json()) as Made;
};

const list = (): Promise<TokenSummary[]> => getJson(service, "/tokens");

const revoke = (id: string, token = TEST_TOKEN, of = service): Promise<Response> =>
  send(of, "DELETE", `/tokens/${id}`, bearer(token));

describe("tokens", () => {
  test("have a life from creation to revocation, with the token shown once", async () => {
    const both = ["plants:read", "plants:write"] as const;
    const terms = { name: "till", rate: "100/s" };
    const made = await make({ ...terms, scopes: both.toReversed(), expires: "90d" });
    const { token, ...summary } = made;
    expect(summary).toEqual({
      ...terms,
      id: hashToken(token).slice(0, 16),
      prefix: token.slice(0, 10),
      scopes: both,
      tags: null,
      created: expect.any(String),
      expires: new Date(Date.parse(made.created) + 90 * 86_400_000).toISOString(),
      lastUsed: null,
      revoked: null,
    });
    expect((await send(service, "GET", "/plants", bearer(token))).status).toBe(200);
    const text = JSON.stringify(await list());
    expect(JSON.parse(text)).toContainEqual(summary);
    expect(text).not.toContain(token.slice(0, 11));
    expect(text).not.toContain(hashToken(token));

    expect((await revoke(made.id)).status).toBe(204);
    const findRevoked = async () => (await list()).find(({ id }) => id === made.id)?.revoked;
    const revoked = await findRevoked();
    expect(revoked).toBeString();
    // Again is fine and changes nothing, and the name is free.
    expect((await revoke(made.id)).status).toBe(204);
    expect(await findRevoked()).toBe(revoked);
    expect((await make({ name: "till", ...read, expires: null })).expires).toBeNull();
    await expectError(await ask({ name: "till", ...read }), "token_name_taken", '"till"');
  });

  test.each<[body: unknown, says: string]>([
    [[], "body: expected an object, got an array"],
    [{}, "name: expected 1 to 64 characters"],
    [{ name: "jwt:alice", ...read }, "not jwt: at the start"],
    [{ name: "a", scopes: "plants:read" }, "scopes: expected one or more of plants:read,"],
    [{ name: "a", ...read, expires: 90 }, "expires: expected seconds"],
    [{ name: "a", ...read, expires: "99999999d" }, "at most 36500d"],
    [{ name: "a", ...read, rate: "100" }, "rate: expected"],
    [{ name: "a", ...read, expiry: "1d" }, '"expiry": unknown'],
  ])("%j creates no token", async (body, says) => {
    const before = (await list()).length;
    await expectError(await ask(body), "invalid_body", says);
    expect((await list()).length).toBe(before);
  });

  test("need a body of JSON, a known id, and no unknown query", async () => {
    const body = JSON.stringify({ name: "a", ...read });
    const plain = { body, headers: { "content-type": "text/plain" } };
    await expectError(await send(service, "POST", "/tokens", plain), "unsupported_media_type");
    await expectError(await send(service, "POST", "/tokens", { body: "{" }), "invalid_json");
    await expectError(await send(service, "GET", "/tokens?limit=0"), "invalid_query", "limit: ");
    const wrong = await send(service, "GET", "/tokens?after=till&name=a");
    await expectError(wrong, "invalid_query", "16 hex", '"name"');
    for (const id of ["0000000000000000", "till", "%00"])
      await expectError(await revoke(id), "token_not_found");
    await expectError(await send(service, "GET", "/tokens/till"), "method_not_allowed");
  });

  test("are listed in pages, each token once", async () => {
    await using own = await startService();
    const records = Array.from({ length: 125 }, (_, index) =>
      toRecord(mintToken(), { name: `t${index}`, scopes: ["plants:read"], createdAtMs: index }),
    );
    await own.store.adoptTokens(records);
    for (const [query, due] of [
      ["", 2],
      ["?limit=10", 13],
      ["?limit=125", 1],
    ] as const) {
      const { items, pages } = await walkPages(own, `/tokens${query}`);
      expect(pages).toBe(due);
      const names = (items as TokenSummary[]).map(({ name }) => name);
      expect(names.toSorted()).toEqual(records.map(({ name }) => name).toSorted());
    }
  });

  test("are not made by one that was revoked a moment ago, while its request was under way", async () => {
    const thief = await make({ name: "thief", scopes: ["tokens:manage"] });
    expect((await send(service, "GET", "/tokens", bearer(thief.token))).status).toBe(200);
    const { readable: body, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const asked = send(service, "POST", "/tokens", { ...bearer(thief.token), body });
    await writer.write(Buffer.from('{"name":"another",'));
    expect((await revoke(thief.id)).status).toBe(204);
    await writer.write(Buffer.from('"scopes":["tokens:manage"]}'));
    await writer.close();
    await expectError(await asked, "token_invalid");
  });

  test("are for tokens with tokens:manage, which cannot hand out what they lack", async () => {
    const both = ["plants:read", "plants:write"];
    const { token: plain, id } = await make({ name: "plain", scopes: both });
    for (const response of [
      await send(service, "GET", "/tokens", bearer(plain)),
      await ask({ name: "b", ...read }, plain),
      await revoke(id, plain),
    ]) {
      expect(response.headers.get("www-authenticate")).toContain('scope="tokens:manage"');
      await expectError(response, "insufficient_scope");
    }
    const { token } = await make({ name: "manager", ...manage });
    const refused = await ask({ name: "b", scopes: both }, token);
    expect(refused.headers.get("www-authenticate")).toContain('scope="plants:write"');
    await expectError(refused, "insufficient_scope", "plants:write");
    expect((await ask({ name: "b", ...manage }, token)).status).toBe(201);
  });
});

test("a token that an older version named like a JWT or like the service's own works, under a name that no token can have", async () => {
  await using own = await startService();
  for (const name of ["jwt:alice", "PLANTSTORE_TOKEN"]) {
    const token = mintToken();
    await own.store.createToken(toRecord(token, { name, scopes, createdAtMs: 0, rate: "1000/s" }));
    const id = name.length;
    const body = JSON.stringify({ id, name: "Fern" });
    expect((await send(own, "POST", "/plants", { ...bearer(token), body })).status).toBe(200);
    const [change] = (await (await send(own, "GET", `/changes?id=${id}`)).json()) as unknown[];
    expect(change).toMatchObject({ id, by: `-${name}` });
    const found = await send(own, "GET", "/token", bearer(token));
    expect(await found.json()).toMatchObject({ name: `-${name}` });
    // It has no more rights than its own.
    const faster = JSON.stringify({ name: "fast", ...read, rate: "none" });
    const refused = await send(own, "POST", "/tokens", { ...bearer(token), body: faster });
    await expectError(refused, "insufficient_scope", "rate: at most 1000/s");
  }
});

const inDays = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString();

test("a manager grants no later expiry and no higher rate than its own", async () => {
  const { token, expires } = await make({ name: "until", ...manage, expires: "30d" });
  for (const later of [undefined, null, inDays(31)]) {
    const refused = await ask({ name: "late", ...read, expires: later }, token);
    expect(refused.headers.get("www-authenticate")).toBe(
      'Bearer realm="plants", error="insufficient_scope"',
    );
    await expectError(refused, "insufficient_scope", `expires: at the latest ${expires}`);
  }
  for (const [name, end] of Object.entries({ same: expires, earlier: "1d" }))
    expect((await ask({ name, ...read, expires: end }, token)).status).toBe(201);
  // test/auth/grant.test.ts has all rates.
  const limited = await make({ name: "limited", scopes, rate: "100/s" });
  const refused = await ask({ name: "fast", ...read, rate: "101/s" }, limited.token);
  await expectError(refused, "insufficient_scope", "rate: at most 100/s");
});

test("the last token that can manage is not revoked, unless the service has PLANTSTORE_TOKEN", async () => {
  const { id } = await make({ name: "alone", scopes: ["tokens:manage"] });
  expect((await revoke(id)).status).toBe(204);

  await using without = await startService({ PLANTSTORE_TOKEN: undefined });
  const grant = async (granted: readonly Scope[], more = {}) => {
    const token = await grantToken(without, granted, more);
    return { token, id: hashToken(token).slice(0, 16) };
  };
  const first = await grant(scopes);
  const till = await grant(["plants:read"]);
  const old = await grant(scopes, { expiresAtMs: 2 });
  await expectError(await revoke(first.id, first.token, without), "last_manager");
  const second = await grant(["tokens:manage"]);
  // Each counts on the other. One stays.
  const both = await Promise.all([
    revoke(first.id, first.token, without),
    revoke(second.id, second.token, without),
  ]);
  expect(new Set(both.map(({ status }) => status))).toEqual(new Set([204, 409]));
  const left = both[0]?.status === 409 ? first : second;
  for (const { id: other } of [till, old])
    expect((await revoke(other, left.token, without)).status).toBe(204);
});
