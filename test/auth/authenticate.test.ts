/** From a header to its bearer: what is remembered, and for how long. */

import { describe, expect, test } from "bun:test";
import { Authenticator, hashToken, mintToken, toRecord } from "../../src/auth/token.ts";
import { type ErrorName, Refusal } from "../../src/domain/errors.ts";
import type { TokenStore } from "../../src/domain/store.ts";
import { scopes, type TokenRecord } from "../../src/domain/token.ts";
import { reasonOf, rejectionOf } from "../support/expect.ts";

const ENVIRONMENT_TOKEN = "environment-token-0123456789";

/** With a clock that stands still until it is set. */
function makeAuthenticator() {
  const token = mintToken();
  const stored: {
    record: TokenRecord | undefined;
    failure: Refusal | undefined;
    onFind: () => unknown;
  } = {
    failure: undefined,
    onFind: () => undefined,
    record: toRecord(token, { name: "till", scopes, createdAtMs: 0 }),
  };
  let asked = 0;
  const clock = { nowMs: 0 };
  const touched: (readonly [string, number])[] = [];
  const store = {
    findToken: async (hash: string) => {
      asked++;
      const { record } = stored;
      await stored.onFind();
      if (stored.failure !== undefined) throw stored.failure;
      return record && { ...record, hash };
    },
    touchTokens: async (usedAtMs: ReadonlyMap<string, number>) => {
      if (stored.failure !== undefined) throw stored.failure;
      touched.push(...usedAtMs);
    },
  } as unknown as TokenStore;
  const readMs = (): number => clock.nowMs;
  const clocks = { nowMs: readMs, monotonicMs: readMs };
  const settings = { token: ENVIRONMENT_TOKEN, tokenStaleSecondsMax: 60 };
  const authenticator = new Authenticator(store, settings, clocks);
  const authenticate = async (bearer = token, ageMsMax?: number) =>
    authenticator.authenticate(`Bearer ${bearer}`, ageMsMax);
  return { authenticator, authenticate, token, stored, clock, touched, timesAsked: () => asked };
}

const till = expect.objectContaining({ name: "till" });

/** How many headers it would recognise without a look at their token. */
const countRemembered = (authenticator: Authenticator): number =>
  (authenticator as unknown as { cache: Map<string, unknown> }).cache.size;

describe("a header that was good", () => {
  test("is looked up again after two seconds, and refused when its token is revoked", async () => {
    const { authenticator, authenticate, stored, clock, timesAsked } = makeAuthenticator();
    for (let count = 0; count < 5; count++) expect(await authenticate()).toEqual(till);
    expect(timesAsked()).toBe(1);
    stored.record = undefined;
    clock.nowMs = 1_999;
    expect(await authenticate()).toEqual(till);
    clock.nowMs = 2_000;
    expect(await rejectionOf(authenticate())).toMatchObject({ reason: "token_invalid" });
    expect([timesAsked(), countRemembered(authenticator)]).toEqual([2, 0]);
  });

  test("is as old as the start of its look-up, for its token may be revoked while that lasts", async () => {
    const { authenticate, clock, stored, timesAsked } = makeAuthenticator();
    stored.onFind = () => (clock.nowMs += 1_500);
    expect(await authenticate()).toEqual(till);
    clock.nowMs = 1_999;
    expect(await authenticate()).toEqual(till);
    expect(timesAsked()).toBe(1);
    clock.nowMs = 2_000;
    expect(await authenticate()).toEqual(till);
    expect(timesAsked()).toBe(2);
  });

  test("is looked up once for all who ask in the same tick", async () => {
    const { authenticate, timesAsked } = makeAuthenticator();
    const asking = Array.from({ length: 5 }, () => authenticate());
    for (const found of asking) expect(await found).toEqual(till);
    expect(timesAsked()).toBe(1);
  });

  test("is looked up again where it matters, also beside a look-up that began before its token was revoked", async () => {
    const { authenticate, token, stored, timesAsked } = makeAuthenticator();
    const before = authenticate();
    while (timesAsked() === 0) await Promise.resolve();
    stored.record = { ...(stored.record as TokenRecord), revokedAtMs: 1 };
    const refusal = await rejectionOf(authenticate(token, 0));
    expect(refusal).toMatchObject({ reason: "token_invalid" });
    expect(await before).toEqual(till);
  });

  test("is refused at once when its token expires", async () => {
    const { authenticator, authenticate, token, stored, clock } = makeAuthenticator();
    stored.record = { ...(stored.record as TokenRecord), expiresAtMs: 1_000 };
    for (let count = 0; count < 2; count++) expect(await authenticate()).toEqual(till);
    clock.nowMs = 1_000;
    expect(() => authenticator.authenticate(`Bearer ${token}`)).toThrow(Refusal);
  });
});

describe("while the store cannot be asked, a token that was good", () => {
  const unavailable = { reason: "store_unavailable" };
  const invalid = { reason: "token_invalid" };
  const never = new Promise<never>(() => undefined);

  test("stays good for a minute after its last check, and for no longer", async () => {
    const { authenticate, stored, clock } = makeAuthenticator();
    await authenticate();
    stored.failure = new Refusal("store_unavailable");
    for (clock.nowMs of [2_000, 4_000, 59_999]) expect(await authenticate()).toEqual(till);
    clock.nowMs = 60_000;
    expect(await rejectionOf(authenticate())).toMatchObject(unavailable);
    expect(await rejectionOf(authenticate(mintToken()))).toMatchObject(unavailable);
    stored.failure = undefined;
    expect(await authenticate()).toEqual(till);
  });

  test("waits once for the look-up that hangs, which is the only one", async () => {
    const { authenticate, stored, clock, timesAsked } = makeAuthenticator();
    await authenticate();
    stored.onFind = () => never;
    clock.nowMs = 2_000;
    for (const found of [authenticate(), authenticate()]) expect(await found).toEqual(till);
    clock.nowMs = 3_000;
    const ended: string[] = [];
    setImmediate(() => ended.push("tick"));
    for (let count = 0; count < 5; count++)
      void authenticate().then(({ name }) => ended.push(name));
    await new Promise(setImmediate);
    expect(ended).toEqual([...Array.from({ length: 5 }, () => "till"), "tick"]);
    expect(timesAsked()).toBe(2);
  });

  test("waits longer if its last check is old, for it may have been revoked since", async () => {
    const { authenticate, stored, clock } = makeAuthenticator();
    const [old, recent] = [mintToken(), mintToken()];
    await authenticate(old);
    clock.nowMs = 7_000;
    await authenticate(recent);
    const answered = Promise.withResolvers<void>();
    stored.onFind = () => answered.promise;
    stored.record = { ...(stored.record as TokenRecord), revokedAtMs: 1 };
    clock.nowMs = 10_000;
    const waiting = authenticate(old);
    expect(await authenticate(recent)).toEqual(till);
    expect(Bun.peek.status(waiting)).toBe("pending");
    answered.resolve();
    expect(await rejectionOf(waiting)).toMatchObject(invalid);
  });

  test("waits no longer right after a look-up that failed", async () => {
    const { authenticate, stored, clock } = makeAuthenticator();
    const [failed, old] = [mintToken(), mintToken()];
    for (const token of [failed, old]) await authenticate(token);
    clock.nowMs = 10_000;
    stored.failure = new Refusal("store_busy");
    expect(await authenticate(failed)).toEqual(till);
    stored.onFind = () => never;
    clock.nowMs = 10_999;
    const waiting = authenticate(old);
    expect(await authenticate(failed)).toEqual(till);
    expect(Bun.peek.status(waiting)).toBe("pending");
    expect(await waiting).toEqual(till);
  });

  test("is refused once a look-up that took long has found it revoked, in any spelling", async () => {
    const { authenticator, authenticate, token, stored, clock } = makeAuthenticator();
    const spelled = async () => authenticator.authenticate(`bearer  ${token}`);
    for (const found of [authenticate(), spelled()]) expect(await found).toEqual(till);
    const answered = Promise.withResolvers<void>();
    stored.onFind = () => answered.promise;
    stored.record = { ...(stored.record as TokenRecord), revokedAtMs: 1 };
    clock.nowMs = 2_000;
    for (const found of [authenticate(), spelled()]) expect(await found).toEqual(till);
    answered.resolve();
    await new Promise(setImmediate);
    stored.failure = new Refusal("store_unavailable");
    for (clock.nowMs of [2_001, 5_000])
      for (const refused of [authenticate(), spelled()])
        expect(await rejectionOf(refused)).toMatchObject(invalid);
  });

  test("is refused if a later look-up found it revoked, although an earlier one answers last", async () => {
    const { authenticate, token, stored, clock } = makeAuthenticator();
    const answered = Promise.withResolvers<void>();
    stored.onFind = () => answered.promise;
    const early = authenticate();
    stored.onFind = () => undefined;
    stored.record = { ...(stored.record as TokenRecord), revokedAtMs: 1 };
    clock.nowMs = 1;
    expect(await rejectionOf(authenticate(token, 0))).toMatchObject(invalid);
    answered.resolve();
    expect(await rejectionOf(early)).toMatchObject(invalid);
    stored.failure = new Refusal("store_unavailable");
    clock.nowMs = 3_000;
    expect(await rejectionOf(authenticate())).toMatchObject(invalid);
  });

  test("is refused when it expires, where it must be looked up, and for a defect", async () => {
    const { authenticate, token, stored, clock } = makeAuthenticator();
    stored.record = { ...(stored.record as TokenRecord), expiresAtMs: 10_000 };
    await authenticate();
    stored.failure = new Refusal("store_down");
    clock.nowMs = 9_999;
    expect(await authenticate()).toEqual(till);
    expect(await rejectionOf(authenticate(token, 0))).toMatchObject({ reason: "store_down" });
    stored.failure = new Refusal("internal");
    expect(await rejectionOf(authenticate())).toMatchObject({ reason: "internal" });
    stored.failure = new Refusal("store_down");
    clock.nowMs = 10_000;
    expect(await rejectionOf(authenticate())).toMatchObject({ reason: "token_expired" });
  });

  test("stays good although 10,000 others are in use, and so do the latest of more", async () => {
    const { authenticate, token, stored, clock } = makeAuthenticator();
    await authenticate();
    const others = Array.from({ length: 9_999 }, mintToken);
    for (const other of others) await authenticate(other);
    stored.failure = new Refusal("store_unavailable");
    clock.nowMs = 2_000;
    expect(await authenticate(token)).toEqual(till);
    stored.failure = undefined;
    await authenticate(mintToken());
    stored.failure = new Refusal("store_unavailable");
    expect(await rejectionOf(authenticate(token))).toMatchObject(unavailable);
    for (const other of others) expect(await authenticate(other)).toEqual(till);
  });
});

test.each<[string | null, ErrorName | undefined]>([
  ...[null, "", "Basic abc", "xBearer abc", "Bearerx abc", "Bearer", "bearer  "].map(
    (header): [string | null, ErrorName] => [header, "token_missing"],
  ),
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

async function flushInVain({
  authenticator,
  stored,
}: ReturnType<typeof makeAuthenticator>): Promise<void> {
  stored.failure = new Refusal("store_unavailable");
  expect(await rejectionOf(authenticator.flushUses())).toBe(stored.failure);
  stored.failure = undefined;
}

test("the latest use of each token of the store is stored once, even after failures", async () => {
  const scene = makeAuthenticator();
  const { authenticator, authenticate, clock, touched } = scene;
  const [one, other] = [mintToken(), mintToken()];
  clock.nowMs = 1;
  for (const token of [one, other, ENVIRONMENT_TOKEN]) await authenticate(token);
  await flushInVain(scene);
  clock.nowMs = 5;
  await authenticate(one);
  await flushInVain(scene);
  await authenticator.flushUses();
  await authenticator.flushUses();
  expect(Object.fromEntries(touched)).toEqual({ [hashToken(one)]: 5, [hashToken(other)]: 1 });
  expect(touched).toHaveLength(2);
});

test("of uses that could not be stored, the latest 10,000 are kept", async () => {
  const scene = makeAuthenticator();
  const { authenticator, authenticate, clock, touched } = scene;
  for (let count = 0; count < 10_010; count++) {
    clock.nowMs++;
    await authenticate(mintToken());
  }
  await flushInVain(scene);
  await authenticator.flushUses();
  expect(touched).toHaveLength(10_000);
  const times = touched.map(([, atMs]) => atMs);
  expect([Math.min(...times), Math.max(...times)]).toEqual([clock.nowMs - 9_999, clock.nowMs]);
});

test("a watched stream learns that its token is no longer good, and not that a store fails", async () => {
  const { authenticator, token, stored, timesAsked } = makeAuthenticator();
  const refusals: ErrorName[] = [];
  const told = Promise.withResolvers<void>();
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
  stored.record = { ...(stored.record as TokenRecord), expiresAtMs: 0 };
  stored.failure = undefined;
  await told.promise;
  expect(refusals).toEqual(["token_expired"]);
  end();
  const asked = timesAsked();
  // Another one starts the timer again; the first hears nothing more.
  const { promise: again, resolve } = Promise.withResolvers<unknown>();
  const endOther = authenticator.watch({ header: `Bearer ${token}`, onInvalid: resolve });
  await again;
  expect([refusals.length, timesAsked()]).toEqual([1, asked]);
  endOther();
});

test("a watched stream learns that its token expires while the store hangs", async () => {
  const { authenticator, authenticate, token, stored, clock } = makeAuthenticator();
  stored.record = { ...(stored.record as TokenRecord), expiresAtMs: 10_000 };
  await authenticate();
  stored.onFind = () => new Promise(() => undefined);
  clock.nowMs = 10_000;
  const { promise: told, resolve: onInvalid } = Promise.withResolvers<Refusal>();
  const end = authenticator.watch({ header: `Bearer ${token}`, onInvalid });
  expect((await told).reason).toBe("token_expired");
  end();
});
