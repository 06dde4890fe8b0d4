/** What every engine owes the service beyond plants: tokens, neighbours, and an end. */

import { describe, expect, test } from "bun:test";
import { makeFirstToken } from "../../src/auth/first-token.ts";
import { hashToken, readTokens } from "../../src/auth/token.ts";
import { Refusal } from "../../src/domain/errors.ts";
import type { Store } from "../../src/domain/store.ts";
import type { TokenRecord } from "../../src/domain/token.ts";
import { openTestDatabase, openTestStore } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { makeWebhook } from "../support/receiver.ts";
import { grantToken } from "../support/service.ts";

export const groups = ["sqlite", "postgres", "serializable"];

/** A store lists tokens by hash. */
const readInOrder = async (store: Store): Promise<TokenRecord[]> =>
  (await readTokens(store)).toSorted(
    (one, other) => one.createdAtMs - other.createdAtMs || (one.name < other.name ? -1 : 1),
  );

const plant = { id: 1n, name: "a", tag: undefined };

const makeToken = (name: string, more: Partial<TokenRecord> = {}): TokenRecord => ({
  hash: hashToken(name),
  prefix: `pst_${name}`,
  name,
  scopes: ["plants:read"],
  tags: undefined,
  createdAtMs: 1_000,
  expiresAtMs: undefined,
  lastUsedAtMs: undefined,
  revokedAtMs: undefined,
  rate: undefined,
  ...more,
});

test("a plant that breaks a rule is refused by the store itself, whichever way it came in", async () => {
  await using store = await openTestStore();
  await store.createPlant(plant);
  for (const text of ["\0", "\ud800"])
    for (const bad of [{ ...plant, name: text } as const, { ...plant, tag: text } as const]) {
      const refused = { reason: "invalid_plant" };
      expect(await rejectionOf(store.createPlant({ ...bad, id: 2n }))).toMatchObject(refused);
      expect(await rejectionOf(store.replacePlant(bad, {}))).toMatchObject(refused);
      const patch = { name: bad.name, tag: bad.tag ?? null };
      expect(await rejectionOf(store.patchPlant(1n, patch, {}))).toMatchObject(refused);
      const [first, second] = await store.createPlants([{ ...bad, id: 2n }, plant]);
      expect([first, second]).toMatchObject([refused, "replayed"]);
    }
  expect(await store.findPlant(1n)).toEqual(plant);
  expect(await store.findPlant(2n)).toBeUndefined();
});

describe("tokens in the store", () => {
  test("keep one with a scope, also if two stores revoke the last two at once", async () => {
    await using one = await openTestStore();
    await using other = await openTestStore({}, one.database);
    for (let round = 0; round < 5; round++) {
      const [first, second] = [makeToken(`first${round}`), makeToken(`second${round}`)];
      for (const each of [first, second]) await one.createToken(each);
      const revoked = await Promise.all([
        one.revokeToken(first.hash, 7, "plants:read"),
        other.revokeToken(second.hash, 7, "plants:read"),
      ]);
      expect(revoked.toSorted()).toEqual([false, true]);
      const left = revoked[0] ? second : first;
      expect((await one.findToken(left.hash))?.revokedAtMs).toBeUndefined();
      expect(await one.revokeToken(left.hash, 8)).toBe(true);
    }
    // One that has expired by then does not count.
    const [last, expired] = [makeToken("last"), makeToken("expired", { expiresAtMs: 7 })];
    for (const each of [last, expired]) await one.createToken(each);
    expect(await one.revokeToken(last.hash, 7, "plants:read")).toBe(false);
    expect(await one.revokeToken(last.hash, 6, "plants:read")).toBe(true);
  });

  test("are counted if they expire between two times", async () => {
    await using store = await openTestStore();
    for (const expiresAtMs of [10, 20, 20, undefined])
      await grantToken({ store }, [], { expiresAtMs });
    const revoked = await grantToken({ store }, [], { expiresAtMs: 15 });
    await store.revokeToken(hashToken(revoked), 1);
    expect(await store.countExpiring(10, 20)).toBe(0);
    expect(await store.countExpiring(9, 20)).toBe(1);
    expect(await store.countExpiring(10, 21)).toBe(2);
  });

  test("remember their latest use, whatever order the uses arrive in", async () => {
    await using store = await openTestStore();
    const token = makeToken("n");
    await store.createToken(token);
    await store.touchTokens(new Map([[token.hash, 20]]));
    await store.touchTokens(new Map([[token.hash, 10]]));
    expect((await store.findToken(token.hash))?.lastUsedAtMs).toBe(20);
  });
});

describe("tokens that are taken over from another store", () => {
  const full = { expiresAtMs: 2 ** 45, lastUsedAtMs: 2_000, revokedAtMs: 3_000 };

  test("stores what is not there with every field, once", async () => {
    await using store = await openTestStore();
    const scopes = ["plants:write"] as const;
    const tokens = [
      makeToken("a"),
      makeToken("b", full),
      makeToken("c", { scopes, tags: ["", "a,b", "ü"] }),
    ];
    for (let times = 0; times < 2; times++) {
      expect(await store.adoptTokens(tokens)).toEqual([]);
      expect(await readInOrder(store)).toEqual(tokens);
    }
    expect(await store.adoptTokens([])).toEqual([]);
    expect(await makeFirstToken(store)).toBeUndefined();
  });

  test("takes over only a revocation and a later use where the hash is there", async () => {
    const cases: [there: Partial<TokenRecord>, given: Partial<TokenRecord>, due?: object][] = [
      [{}, { revokedAtMs: 5 }, { revokedAtMs: 5 }],
      [{ revokedAtMs: 5 }, {}],
      [{ revokedAtMs: 5 }, { revokedAtMs: 4 }],
      [{}, { lastUsedAtMs: 1 }, { lastUsedAtMs: 1 }],
      [{ lastUsedAtMs: 4 }, { lastUsedAtMs: 5 }, { lastUsedAtMs: 5 }],
      [{ lastUsedAtMs: 5 }, { lastUsedAtMs: 4 }],
      [{ lastUsedAtMs: 5 }, {}],
      [{}, { name: "z", expiresAtMs: 5, scopes: ["plants:write"] }],
    ];
    await using store = await openTestStore();
    const toToken = (more: object, at: number) => makeToken(`t${at}`, { createdAtMs: at, ...more });
    await store.adoptTokens(cases.map(([there], at) => toToken(there, at)));
    expect(await store.adoptTokens(cases.map(([, given], at) => toToken(given, at)))).toEqual([]);
    expect(await readInOrder(store)).toEqual(
      cases.map(([there, , due = there], at) => toToken(due, at)),
    );
  });

  test("stores all but those whose name is in use", async () => {
    await using store = await openTestStore();
    const there = makeToken("there", { name: "till" });
    await store.createToken(there);
    const taken = makeToken("taken", { name: "till" });
    const revoked = makeToken("revoked", { name: "till", revokedAtMs: 5, createdAtMs: 2_000 });
    const other = makeToken("other", { createdAtMs: 3_000 });
    expect(await store.adoptTokens([taken, revoked, other])).toEqual([taken]);
    expect(await readInOrder(store)).toEqual([there, revoked, other]);
  });

  test("takes over revocations first, whatever the order: they free names", async () => {
    await using store = await openTestStore();
    await store.createToken(makeToken("old", { name: "till" }));
    const next = makeToken("new", { name: "till", createdAtMs: 2_000 });
    const old = makeToken("old", { name: "till", revokedAtMs: 5 });
    expect(await store.adoptTokens([next, old])).toEqual([]);
    expect(await readInOrder(store)).toEqual([old, next]);
  });
});

test("a webhook is stored, replaced and removed by its version", async () => {
  await using store = await openTestStore();
  const first = makeWebhook("shop", { version: "1" });
  const second = makeWebhook("shop", { version: "2", cursor: 5 });
  // The second time as a write whose answer was lost.
  const putTwice = async (...given: Parameters<typeof store.putWebhook>) => {
    for (let times = 0; times < 2; times++) expect(await store.putWebhook(...given)).toBe(true);
  };
  await putTwice(first, undefined);
  expect(await store.putWebhook(second, undefined)).toBe(false);
  await putTwice(second, first);
  expect(await store.putWebhook({ ...first, version: "3" }, first)).toBe(false);
  expect(await store.listWebhooks()).toEqual([second]);
  expect(await store.putWebhook(undefined, first)).toBe(false);
  await putTwice(undefined, second);
  expect(await store.listWebhooks()).toEqual([]);
});

test("there are at most 32 webhooks", async () => {
  await using store = await openTestStore();
  const all = Array.from({ length: 32 }, (_, index) => makeWebhook(`shop-${index + 10}`));
  for (const one of all) expect(await store.putWebhook(one, undefined)).toBe(true);
  expect(await store.putWebhook(makeWebhook("one-more"), undefined)).toBe(false);
  expect(await store.listWebhooks()).toEqual(all);
});

test("a closed store refuses reads and writes for good", async () => {
  await using store = await openTestStore();
  await store.close();
  expect(await store.createPlants([plant])).toMatchObject([{ reason: "shutting_down" }]);
  expect(await rejectionOf(store.createPlant(plant))).toMatchObject({ reason: "shutting_down" });
  expect(await rejectionOf(readTokens(store))).toMatchObject({ reason: "shutting_down" });
});

test("plants that are too large together are read and changed one after the other", async () => {
  await using store = await openTestStore();
  const small = Array.from({ length: 12 }, (_, id) => ({ ...plant, id: BigInt(id) }));
  const large = small.map((one) => ({ ...one, name: "x".repeat(1_000_000) }));
  await store.createPlants(large);
  const again = await store.createPlants([...small, ...large, ...small]);
  expect(again.map((outcome) => (outcome instanceof Refusal ? outcome.reason : outcome))).toEqual([
    ...small.map(() => "id_taken" as const),
    ...large.map(() => "replayed" as const),
    ...small.map(() => "id_taken" as const),
  ]);
  const found = [undefined, ...large, undefined].map((one) => store.findPlant(one?.id ?? 99n));
  expect(await Promise.all(found)).toEqual([undefined, ...large, undefined]);
  const missing = rejectionOf(store.removePlant(99n, {}));
  await Promise.all([
    ...small.slice(0, 6).map((one) => store.replacePlant(one, {})),
    ...small.slice(6).map(({ id }) => store.removePlant(id, {})),
  ]);
  expect(await missing).toMatchObject({ reason: "plant_not_found" });
  expect(await store.database.readPlants()).toEqual(
    small.slice(0, 6).map(({ id, name }) => ({ id, name, tag: null })),
  );
});

test("two stores on one database see each other's plants", async () => {
  await using one = await openTestStore();
  await using other = await openTestStore({}, one.database);
  const ids = Array.from({ length: 200 }, (_, index) => BigInt(index));
  const outcomes = await Promise.all(
    [one, other].flatMap((store) => ids.map((id) => store.createPlant({ ...plant, id }))),
  );
  expect(outcomes.filter((outcome) => outcome === "created")).toHaveLength(200);
});

test("of stores that are opened on one database at once, one makes the first token", async () => {
  await using opened = new AsyncDisposableStack();
  const database = opened.use(await openTestDatabase());
  const stores = await Promise.all(
    Array.from({ length: 4 }, async () => opened.use(await openTestStore({}, database))),
  );
  const made = await Promise.all(stores.map((store) => makeFirstToken(store)));
  expect(made.filter((token) => token !== undefined)).toHaveLength(1);
  expect(await readTokens(stores[0] as Store)).toHaveLength(1);
});
