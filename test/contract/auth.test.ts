/** Tokens over HTTP: who gets in, who does not, and with which answer. */

import { describe, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName, Refusal } from "../../src/domain/errors.ts";
import { scopes } from "../../src/domain/token.ts";
import {
  bearer,
  grantToken,
  send,
  startService,
  startShared,
  TEST_TOKEN,
} from "../support/service.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite", "threads", "postgres"];

const service = await startShared();

const ask = (authorization: string): Promise<Response> =>
  send(service, "GET", "/token", { headers: { authorization } });
const show = async (token: string): Promise<unknown> => (await ask(`Bearer ${token}`)).json();

async function expectChallenge(authorization: string, reason: ErrorName): Promise<void> {
  const response = await ask(authorization);
  expect(await response.json()).toMatchObject({ error: catalogue[reason].code });
  expect([response.status, response.headers.get("www-authenticate")]).toEqual([
    catalogue[reason].status,
    `Bearer realm="plants"${reason === "token_missing" ? "" : ', error="invalid_token"'}`,
  ]);
}

describe("a token", () => {
  test("can read its name, prefix and scopes, not its secret", async () => {
    const told = { name: "writer", scopes: ["plants:write"] as const };
    const token = await grantToken(service, told.scopes, told);
    const text = await (await ask(`Bearer ${token}`)).text();
    expect(JSON.parse(text)).toEqual({ ...told, prefix: token.slice(0, 10) });
    expect(text).not.toContain(token.slice(0, 11));
  });

  test("of the environment can read that it is", async () => {
    expect(await show(TEST_TOKEN)).toEqual({ name: "PLANTSTORE_TOKEN", scopes });
  });

  test("can read when it expires", async () => {
    const token = await grantToken(service, scopes, { expiresAtMs: Date.UTC(2999, 0, 1) });
    expect(await show(token)).toMatchObject({ expires: "2999-01-01T00:00:00.000Z" });
  });

  test("that has expired is refused", async () => {
    const old = await grantToken(service, scopes, { expiresAtMs: Date.now() - 1 });
    await expectChallenge(`Bearer ${old}`, "token_expired");
  });

  test("that was good stays good while the store cannot look it up, and a new one has to wait", async () => {
    // Other threads have look-ups of their own.
    await using own = await startService({ PLANTSTORE_WORKERS: "1" });
    const [good, fresh] = [await grantToken(own), await grantToken(own)];
    const statusOf = async (path: string, token = good): Promise<number> =>
      (await send(own, "GET", path, { headers: bearer(token) })).status;
    expect(await statusOf("/plants")).toBe(200);
    let lookUps = 0;
    own.store.findToken = () => {
      lookUps++;
      return Promise.reject(new Refusal("store_unavailable"));
    };
    await until("it is looked up again", async () => {
      expect(await statusOf("/plants")).toBe(200);
      return lookUps > 0;
    });
    expect([await statusOf("/metrics"), await statusOf("/plants", fresh)]).toEqual([200, 503]);
  });

  test("made while the service runs works at once, even where it was refused before", async () => {
    const token = mintToken();
    await expectChallenge(`Bearer ${token}`, "token_invalid");
    await service.store.createToken(toRecord(token, { name: "late", scopes, createdAtMs: 0 }));
    expect((await ask(`Bearer ${token}`)).status).toBe(200);
  });
});

test.each<[string, ErrorName]>([
  ["", "token_missing"],
  [`Bearer ${mintToken().slice(0, -1)}!`, "token_invalid"],
  [`Bearer ${TEST_TOKEN}, Bearer ${TEST_TOKEN}`, "token_invalid"],
])("%j is refused as %s", expectChallenge);

test("no token appears in the log", async () => {
  const token = await grantToken(service);
  await ask(`Bearer ${token}`);
  await fetch(`${service.url}/${token}?token=${token}`, { headers: { "x-request-id": token } });
  await ask(`Bearer ${token}x`);
  const log = service.logLines.join("");
  expect(log).toContain("/pst_[redacted]");
  expect(log).not.toContain(token.slice(0, 20));
  expect(log).not.toContain(TEST_TOKEN);
});
