/** From a header to its bearer: what is remembered, and for how long. */

import { describe, expect, test } from "bun:test";
import { Authenticator, hashToken, mintToken, toRecord } from "../src/auth/token.ts";
import { type ErrorName, Refusal } from "../src/domain/errors.ts";
import type { TokenStore } from "../src/domain/store.ts";
import { scopes, type TokenRecord } from "../src/domain/token.ts";
import { reasonOf, rejectionOf } from "./support/expect.ts";

const ENVIRONMENT_TOKEN = "environment-token-0123456789";

/** With a clock that stands still until it is set. */
function makeAuthenticator() {
  const token = mintToken();
  const stored: { record: TokenRecord | undefined; failure: Refusal | undefined } = {
    failure: undefined,
    record: toRecord(token, { name: "till", scopes, createdAtMs: 0 }),
  };
  let asked = 0;
  const clock = { nowMs: 0 };
  const store = {
    findToken: async () => {
      asked++;
      if (stored.failure !== undefined) throw stored.failure;
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
    expect([timesAsked(), countRemembered(authenticator)]).toEqual([2, 0]);
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

test.each<[string | null, ErrorName | undefined]>([
  [null, "token_missing"],
  ["", "token_missing"],
  ["Basic abc", "token_missing"],
  ["xBearer abc", "token_missing"],
  ["Bearerx abc", "token_missing"],
  ["Bearer", "token_missing"],
  ["bearer  ", "token_missing"],
  ["Bearer abc", "token_invalid"],
  ["Bearer a b", "token_invalid"],
  // A JWT, where there is no issuer.
  ["Bearer eyJhbGciOiJub25lIn0.e30.c2ln", "token_invalid"],
  ["Bearer a, Bearer b", "token_invalid"],
  ["Bearer a bearer ", "token_invalid"],
  [`Bearer=${ENVIRONMENT_TOKEN}`, "token_invalid"],
  [`Bearer x${ENVIRONMENT_TOKEN}`, "token_invalid"],
  [`Bearer ${ENVIRONMENT_TOKEN}`, undefined],
  [`bEARER   ${ENVIRONMENT_TOKEN}  `, undefined],
])("the header %j is refused as %p", (header, reason) => {
  const { authenticator } = makeAuthenticator();
  expect(reasonOf(() => authenticator.authenticate(header))).toBe(reason);
});

test("what is remembered ends at headers of 256 characters, and at 10,000 of them", () => {
  const { authenticator } = makeAuthenticator();
  const space = (length: number): string => " ".repeat(length - 6 - ENVIRONMENT_TOKEN.length);
  for (const length of [256, 257])
    void authenticator.authenticate(`Bearer${space(length)}${ENVIRONMENT_TOKEN}`);
  expect(countRemembered(authenticator)).toBe(1);
  let most = 0;
  for (let spelling = 0; spelling < 64; spelling++) {
    const scheme = Array.from("bearer", (letter, bit) =>
      (spelling >> bit) % 2 === 0 ? letter : letter.toUpperCase(),
    ).join("");
    for (let length = 40; length < 200; length++)
      void authenticator.authenticate(`${scheme}${space(length)}${ENVIRONMENT_TOKEN}`);
    most = Math.max(most, countRemembered(authenticator));
  }
  expect(most).toBeWithin(9_000, 10_001);
  expect(countRemembered(authenticator)).toBeLessThan(9_000);
});

test("uses are stored once, not those of the environment; if they could not be, the latest of each token and of at most 10,000 are kept", async () => {
  const touched: (readonly [string, number])[] = [];
  let isBroken = true;
  const record = toRecord("whatever", { name: "n", scopes, createdAtMs: 0 });
  const store = {
    findToken: async (hash: string) => ({ ...record, hash }),
    touchTokens: async (usedAtMs: ReadonlyMap<string, number>) => {
      if (isBroken) throw new Refusal("store_unavailable");
      touched.push(...usedAtMs);
    },
  } as unknown as TokenStore;
  let now = 1;
  const clocks = { nowMs: () => now, monotonicMs: () => now };
  const authenticator = new Authenticator(store, ENVIRONMENT_TOKEN, clocks);
  const [one, other] = [mintToken(), mintToken()];
  await authenticator.authenticate(`Bearer ${one}`);
  await authenticator.authenticate(`Bearer ${other}`);
  void authenticator.authenticate(`Bearer ${ENVIRONMENT_TOKEN}`);
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

test("a stream that is watched is told of a token that is no longer good, and not of a store that fails", async () => {
  const { authenticator, token, stored, timesAsked } = makeAuthenticator();
  const refusals: ErrorName[] = [];
  const told = Promise.withResolvers<void>();
  const good = { ...(stored.record as TokenRecord) };
  stored.failure = new Refusal("store_unavailable");
  const onInvalid = ({ reason }: Refusal): void => {
    refusals.push(reason);
    told.resolve();
  };
  const end = authenticator.watch({ header: `Bearer ${token}`, onInvalid });
  // One that leaves does not end it for the others.
  authenticator.watch({ header: `Bearer ${token}`, onInvalid: () => undefined })();
  while (timesAsked() < 2) await Bun.sleep(5);
  expect(refusals).toEqual([]);
  stored.record = { ...good, expiresAtMs: 0 };
  stored.failure = undefined;
  await told.promise;
  expect(refusals).toEqual(["token_expired"]);
  end();
  const asked = timesAsked();
  // Another one starts the timer again; the first is told no more.
  const { promise: again, resolve } = Promise.withResolvers<unknown>();
  const endOther = authenticator.watch({ header: `Bearer ${token}`, onInvalid: resolve });
  await again;
  expect([refusals.length, timesAsked()]).toEqual([1, asked]);
  endOther();
});
