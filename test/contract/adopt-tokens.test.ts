/** Tokens taken over from another store, and plants counted: what every engine does for plantstore copy. */

import { describe, expect, test } from "bun:test";
import { hashToken, makeFirstToken, readTokens } from "../../src/auth/token.ts";
import { resolveConfig } from "../../src/config.ts";
import type { Store } from "../../src/domain/store.ts";
import type { TokenRecord } from "../../src/domain/token.ts";
import { openStore } from "../../src/store/open.ts";
import { openTestDatabase } from "../support/database.ts";

const { config } = resolveConfig({}, {});

async function withStore(use: (store: Store) => Promise<void>): Promise<void> {
  await using database = await openTestDatabase();
  const store = await openStore(database.url, config);
  try {
    await use(store);
  } finally {
    await store.close();
  }
}

const token = (name: string, more: Partial<TokenRecord> = {}): TokenRecord => ({
  hash: hashToken(name),
  prefix: `pst_${name}`,
  name,
  scopes: ["plants:read"],
  createdAtMs: 1_000,
  expiresAtMs: undefined,
  lastUsedAtMs: undefined,
  revokedAtMs: undefined,
  rate: undefined,
  ...more,
});

describe("adoptTokens", () => {
  const full = { expiresAtMs: 2 ** 45, lastUsedAtMs: 2_000, revokedAtMs: 3_000 };

  test("stores what is not there with every field, and the second time changes nothing", () =>
    withStore(async (store) => {
      const tokens = [token("a"), token("b", full), token("c", { scopes: ["plants:write"] })];
      for (let times = 0; times < 2; times++) {
        expect(await store.adoptTokens(tokens)).toEqual([]);
        expect(await readTokens(store)).toEqual(tokens);
      }
      expect(await store.adoptTokens([])).toEqual([]);
      expect(await makeFirstToken(store)).toBeUndefined();
    }));

  test.each<[string, Partial<TokenRecord>, Partial<TokenRecord>, Partial<TokenRecord>]>([
    ["a revocation", {}, { revokedAtMs: 5 }, { revokedAtMs: 5 }],
    ["no revocation back", { revokedAtMs: 5 }, {}, { revokedAtMs: 5 }],
    ["no other time of it", { revokedAtMs: 5 }, { revokedAtMs: 4 }, { revokedAtMs: 5 }],
    ["a first use", {}, { lastUsedAtMs: 5 }, { lastUsedAtMs: 5 }],
    ["a later use", { lastUsedAtMs: 4 }, { lastUsedAtMs: 5 }, { lastUsedAtMs: 5 }],
    ["no earlier use", { lastUsedAtMs: 5 }, { lastUsedAtMs: 4 }, { lastUsedAtMs: 5 }],
    ["no missing use", { lastUsedAtMs: 5 }, {}, { lastUsedAtMs: 5 }],
    ["nothing else", {}, { name: "z", expiresAtMs: 5, scopes: ["plants:write"] }, {}],
  ])("takes over %s where the hash is there", (_, there, given, expected) =>
    withStore(async (store) => {
      await store.adoptTokens([token("a", there)]);
      expect(await store.adoptTokens([token("a", given)])).toEqual([]);
      expect(await readTokens(store)).toEqual([token("a", expected)]);
    }),
  );

  test("resolves to those whose name is in use, stores nothing of them, and the rest", () =>
    withStore(async (store) => {
      await store.createToken(token("there", { name: "till" }));
      const taken = token("taken", { name: "till" });
      const revoked = token("revoked", { name: "till", revokedAtMs: 5, createdAtMs: 2_000 });
      const other = token("other", { createdAtMs: 3_000 });
      expect(await store.adoptTokens([taken, revoked, other])).toEqual([taken]);
      expect(await readTokens(store)).toEqual([token("there", { name: "till" }), revoked, other]);
    }));

  test("takes over revocations first, whatever the order: they free names", () =>
    withStore(async (store) => {
      await store.createToken(token("old", { name: "till" }));
      const next = token("new", { name: "till", createdAtMs: 2_000 });
      const old = token("old", { name: "till", revokedAtMs: 5 });
      expect(await store.adoptTokens([next, old])).toEqual([]);
      expect(await readTokens(store)).toEqual([old, next]);
    }));
});

test("countPlants counts them", () =>
  withStore(async (store) => {
    // Another query, because an answer may be up to two seconds old.
    expect(await store.countPlants({ tag: "t" })).toEqual({ count: 0, exact: true });
    const ids = [-(2n ** 63n), 0n, 2n ** 63n - 1n];
    await Promise.all(ids.map((id) => store.createPlant({ id, name: "a", tag: undefined })));
    await store.removePlant(0n, {});
    expect(await store.countPlants()).toEqual({ count: 2, exact: true });
  }));
