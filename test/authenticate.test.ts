/** From a header to its bearer: what is remembered, and for how long. */

import { describe, expect, test } from "bun:test";
import { Authenticator } from "../src/auth/authenticate.ts";
import { mintToken, toRecord } from "../src/auth/token.ts";
import { Refusal } from "../src/domain/errors.ts";
import type { TokenStore } from "../src/domain/store.ts";
import { scopes, type TokenRecord } from "../src/domain/token.ts";
import { rejectionOf } from "./support/expect.ts";

const ENVIRONMENT_TOKEN = "environment-token-0123456789";

/** With a clock that stands still until it is set. */
function makeAuthenticator() {
  const token = mintToken();
  const stored: { record: TokenRecord | undefined } = {
    record: toRecord(token, { name: "till", scopes, createdAtMs: 0 }),
  };
  let asked = 0;
  const clock = { nowMs: 0 };
  const store = {
    findToken: async () => {
      asked++;
      return stored.record;
    },
  } as unknown as TokenStore;
  const authenticator = new Authenticator(store, ENVIRONMENT_TOKEN, {
    nowMs: () => clock.nowMs,
    monotonicMs: () => clock.nowMs,
  });
  return { authenticator, token, stored, clock, timesAsked: () => asked };
}

/** How many headers it would recognise without a look at their token. */
const countRemembered = (authenticator: Authenticator): number =>
  (authenticator as unknown as { cache: Map<string, unknown> }).cache.size;

describe("a header that was good", () => {
  test("is remembered, but not one that is as long as only an attacker would make it", () => {
    const { authenticator } = makeAuthenticator();
    for (let spaces = 1; spaces < 2_000; spaces++)
      expect(authenticator.authenticate(`Bearer${" ".repeat(spaces)}${ENVIRONMENT_TOKEN}`)).toEqual(
        expect.objectContaining({ name: "PLANTSTORE_TOKEN" }),
      );
    expect(countRemembered(authenticator)).toBeWithin(1, 256);
  });

  test("is looked up again after two seconds, and refused when its token is revoked", async () => {
    const { authenticator, token, stored, clock, timesAsked } = makeAuthenticator();
    const header = `Bearer ${token}`;
    for (let count = 0; count < 5; count++)
      expect(await authenticator.authenticate(header)).toMatchObject({ name: "till" });
    expect(timesAsked()).toBe(1);
    stored.record = undefined;
    clock.nowMs = 1_999;
    expect(await authenticator.authenticate(header)).toMatchObject({ name: "till" });
    clock.nowMs = 2_000;
    const refusal = await rejectionOf(Promise.resolve(authenticator.authenticate(header)));
    expect((refusal as Refusal).reason).toBe("token_invalid");
    expect(timesAsked()).toBe(2);
  });

  test("is looked up once for all who ask in the same tick", async () => {
    const { authenticator, token, timesAsked } = makeAuthenticator();
    const asking = Array.from({ length: 5 }, () => authenticator.authenticate(`Bearer ${token}`));
    for (const found of asking) expect(await found).toMatchObject({ name: "till" });
    expect(timesAsked()).toBe(1);
  });

  test("is looked up again where it matters, also beside a look-up that began before its token was revoked", async () => {
    const { authenticator, token, stored, timesAsked } = makeAuthenticator();
    const header = `Bearer ${token}`;
    const before = authenticator.authenticate(header);
    while (timesAsked() === 0) await Promise.resolve();
    stored.record = { ...(stored.record as TokenRecord), revokedAtMs: 1 };
    const refusal = await rejectionOf(Promise.resolve(authenticator.authenticate(header, 0)));
    expect((refusal as Refusal).reason).toBe("token_invalid");
    expect(await before).toMatchObject({ name: "till" });
  });

  test("is refused at once when its token expires", async () => {
    const { authenticator, token, stored, clock } = makeAuthenticator();
    stored.record = { ...(stored.record as TokenRecord), expiresAtMs: 1_000 };
    const header = `Bearer ${token}`;
    expect(await authenticator.authenticate(header)).toMatchObject({ name: "till" });
    expect(await authenticator.authenticate(header)).toMatchObject({ name: "till" });
    clock.nowMs = 1_000;
    expect(() => authenticator.authenticate(header)).toThrow(Refusal);
  });
});
