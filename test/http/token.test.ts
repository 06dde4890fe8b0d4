/** GET /token: any valid token may ask what it is. */

import { afterAll, describe, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue } from "../../src/domain/errors.ts";
import type { Scope } from "../../src/domain/token.ts";
import { readError, send, startService } from "../support/service.ts";

const service = await startService();

afterAll(() => service[Symbol.asyncDispose]());

async function grant(name: string, scopes: Scope[], expiresAtMs?: number): Promise<string> {
  const token = mintToken();
  const record = toRecord(token, { name, scopes, createdAtMs: Date.now(), expiresAtMs });
  expect(await service.store.createToken(record)).toBe(true);
  return token;
}

const ask = (token: string): Promise<Response> =>
  send(service, "GET", "/token", { headers: { authorization: `Bearer ${token}` } });

describe("GET /token", () => {
  test.each<[string, Scope[]]>([
    ["reader", ["plants:read"]],
    ["writer", ["plants:write"]],
    ["both", ["plants:read", "plants:write"]],
  ])("tells a %s its name, prefix and scopes, and no more of its secret", async (name, scopes) => {
    const token = await grant(name, scopes);
    const text = await (await ask(token)).text();
    expect(JSON.parse(text)).toEqual({ name, prefix: token.slice(0, 10), scopes });
    expect(text).not.toContain(token.slice(0, 11));
  });

  test("tells when a token expires, and refuses it then", async () => {
    const token = await grant("guest", ["plants:read"], Date.UTC(2999, 0, 1));
    expect(await (await ask(token)).json()).toMatchObject({ expires: "2999-01-01T00:00:00.000Z" });
    const old = await grant("old", ["plants:read"], Date.now() - 1);
    expect(await readError(await ask(old))).toMatchObject({
      status: 401,
      error: catalogue.token_expired.code,
    });
  });

  test("tells the one from the environment that it is", async () => {
    expect(await (await send(service, "GET", "/token")).json()).toEqual({
      name: "PLANTSTORE_TOKEN",
      scopes: ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"],
    });
  });

  test("needs a token, and a valid one", async () => {
    const none = await fetch(`${service.url}/token`);
    expect([none.status, none.headers.get("www-authenticate")]).toEqual([
      401,
      'Bearer realm="plants"',
    ]);
    expect(await readError(await ask(mintToken()))).toMatchObject({
      status: 401,
      error: catalogue.token_invalid.code,
    });
  });
});
