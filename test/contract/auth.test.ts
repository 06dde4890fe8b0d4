/** Tokens over HTTP: who gets in, who does not, and what they are told. */

import { afterAll, describe, expect, test } from "bun:test";
import { hashToken, mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import type { Scope } from "../../src/domain/token.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const service = await startService();

afterAll(() => service[Symbol.asyncDispose]());

async function grant(name: string, scopes: Scope[], expiresAtMs?: number): Promise<string> {
  const token = mintToken();
  const made = await service.store.createToken(
    toRecord(token, { name, scopes, createdAtMs: Date.now(), expiresAtMs }),
  );
  expect(made).toBe(true);
  return token;
}

let nextId = 1;
const createWith = (authorization: string): Promise<Response> =>
  service.create(JSON.stringify({ id: nextId++, name: "a" }), { headers: { authorization } });

async function expectRefusal(
  response: Response,
  reason: ErrorName,
  challenge: string,
): Promise<void> {
  expect(await response.json()).toMatchObject({ error: catalogue[reason].code });
  expect(response.status).toBe(catalogue[reason].status);
  expect(response.headers.get("www-authenticate")).toBe(challenge);
}

const INVALID = 'Bearer realm="plants", error="invalid_token"';

describe("a token", () => {
  test("with plants:write creates plants", async () => {
    const token = await grant("writer", ["plants:write"]);
    expect((await createWith(`Bearer ${token}`)).status).toBe(200);
  });

  test("with plants:read alone is told which scope it lacks", async () => {
    const token = await grant("reader", ["plants:read"]);
    await expectRefusal(
      await createWith(`Bearer ${token}`),
      "insufficient_scope",
      'Bearer realm="plants", error="insufficient_scope", scope="plants:write"',
    );
  });

  test("that has expired is told so", async () => {
    const token = await grant("old", ["plants:write"], Date.now() - 1);
    await expectRefusal(await createWith(`Bearer ${token}`), "token_expired", INVALID);
  });

  test("that is revoked is soon refused, without a restart", async () => {
    const token = await grant("doomed", ["plants:write"]);
    expect((await createWith(`Bearer ${token}`)).status).toBe(200);
    await service.store.revokeToken(hashToken(token), Date.now());
    // test/authenticate.test.ts says after how many seconds, by a clock of its own.
    await until(
      "the token is refused",
      async () => (await createWith(`Bearer ${token}`)).status !== 200,
    );
    await expectRefusal(await createWith(`Bearer ${token}`), "token_invalid", INVALID);
  });

  test("made while the service runs works at once, even where it was refused before", async () => {
    const token = mintToken();
    expect((await createWith(`Bearer ${token}`)).status).toBe(401);
    await service.store.createToken(
      toRecord(token, { name: "late", scopes: ["plants:write"], createdAtMs: Date.now() }),
    );
    expect((await createWith(`Bearer ${token}`)).status).toBe(200);
  });
});

describe("refused tokens", () => {
  test.each([
    ["none", "", "token_missing"],
    ["unknown but well formed", `Bearer ${mintToken()}`, "token_invalid"],
    ["a typo", `Bearer ${mintToken().slice(0, -1)}!`, "token_invalid"],
    ["two in one header", `Bearer ${TEST_TOKEN}, Bearer ${TEST_TOKEN}`, "token_invalid"],
  ] as const)("%s", async (_what, authorization, reason) => {
    const challenge = reason === "token_missing" ? 'Bearer realm="plants"' : INVALID;
    await expectRefusal(await createWith(authorization), reason, challenge);
  });

  test("never appear in the log; neither do accepted ones", async () => {
    const token = await grant("secret", ["plants:write"]);
    await createWith(`Bearer ${token}`);
    await fetch(`${service.url}/${token}?token=${token}`, { headers: { "x-request-id": token } });
    await createWith(`Bearer ${token}x`);
    const log = service.logLines.join("");
    expect(log).toContain("/pst_[redacted]");
    expect(log).not.toContain(token.slice(0, 20));
    expect(log).not.toContain(TEST_TOKEN);
  });
});
