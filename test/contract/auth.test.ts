/** Tokens over HTTP: who gets in, who does not, and what they are told. */

import { afterAll, describe, expect, test } from "bun:test";
import { Authenticator } from "../../src/auth/authenticate.ts";
import { hashToken, mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName, Refusal } from "../../src/domain/errors.ts";
import type { Scope } from "../../src/domain/token.ts";
import { rejectionOf } from "../support/expect.ts";
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
    ["another scheme", "Basic dXNlcjpwYXNz", "token_missing"],
    ["the scheme alone", "Bearer", "token_missing"],
    ["a word that begins like the scheme", "Bearers abc", "token_missing"],
    ["unknown but well formed", `Bearer ${mintToken()}`, "token_invalid"],
    ["a typo", `Bearer ${mintToken().slice(0, -1)}!`, "token_invalid"],
    ["cut short", `Bearer ${TEST_TOKEN.slice(0, -1)}`, "token_invalid"],
    ["with something after it", `Bearer ${TEST_TOKEN} x`, "token_invalid"],
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

describe("the cache of tokens", () => {
  const record = toRecord("whatever", { name: "n", scopes: ["plants:write"], createdAtMs: 0 });

  test("asks the store again after two seconds, whatever the time of day does, and notes uses once for many", async () => {
    const token = mintToken();
    const asked: string[] = [];
    const touched: unknown[] = [];
    const store = {
      ...service.store,
      findToken: async (hash: string) => {
        asked.push(hash);
        return { ...record, hash };
      },
      touchTokens: async (usedAtMs: ReadonlyMap<string, number>) => void touched.push(...usedAtMs),
    };
    let now = 1_000_000;
    let clockOffsetMs = 0;
    const authenticator = new Authenticator(store, undefined, {
      nowMs: () => now + clockOffsetMs,
      monotonicMs: () => now,
    });
    await authenticator.authenticate(`Bearer ${token}`);
    now += 1_999;
    await authenticator.authenticate(`Bearer ${token}`);
    expect(asked).toHaveLength(1);
    now += 1;
    await authenticator.authenticate(`Bearer ${token}`);
    expect(asked).toHaveLength(2);
    clockOffsetMs = -3_600_000;
    now += 2_000;
    await authenticator.authenticate(`Bearer ${token}`);
    expect(asked).toHaveLength(3);
    clockOffsetMs = 0;
    await authenticator.authenticate(`Bearer ${token}`);
    await authenticator.flushUses();
    await authenticator.flushUses();
    expect(touched).toEqual([[hashToken(token), now]]);
  });

  test("keeps uses that could not be written, the latest of each token, and of at most 10,000", async () => {
    const touched: (readonly [string, number])[] = [];
    let isBroken = true;
    const store = {
      ...service.store,
      findToken: async (hash: string) => ({ ...record, hash }),
      touchTokens: async (usedAtMs: ReadonlyMap<string, number>) => {
        if (isBroken) throw new Refusal("store_unavailable");
        touched.push(...usedAtMs);
      },
    };
    let now = 1;
    const clocks = { nowMs: () => now, monotonicMs: () => now };
    const authenticator = new Authenticator(store, undefined, clocks);
    const [one, other] = [mintToken(), mintToken()];
    await authenticator.authenticate(`Bearer ${one}`);
    await authenticator.authenticate(`Bearer ${other}`);
    expect(await rejectionOf(authenticator.flushUses())).toBeInstanceOf(Refusal);
    now = 5;
    await authenticator.authenticate(`Bearer ${one}`);
    expect(await rejectionOf(authenticator.flushUses())).toBeInstanceOf(Refusal);
    isBroken = false;
    await authenticator.flushUses();
    await authenticator.flushUses();
    expect(new Map(touched)).toEqual(
      new Map([
        [hashToken(one), 5],
        [hashToken(other), 1],
      ]),
    );
    expect(touched).toHaveLength(2);

    isBroken = true;
    touched.length = 0;
    for (let count = 0; count < 10_010; count++) {
      now++;
      await authenticator.authenticate(`Bearer ${mintToken()}`);
    }
    const lastMs = now;
    expect(await rejectionOf(authenticator.flushUses())).toBeInstanceOf(Refusal);
    isBroken = false;
    await authenticator.flushUses();
    expect(touched).toHaveLength(10_000);
    expect(Math.max(...touched.map(([, atMs]) => atMs))).toBe(lastMs);
    expect(Math.min(...touched.map(([, atMs]) => atMs))).toBe(lastMs - 9_999);
  });
});
