/** Tokens taken over from another store: what every engine does for plantstore copy. */

import { describe, expect, test } from "bun:test";
import { hashToken, makeFirstToken, readTokens } from "../../src/auth/token.ts";
import type { TokenRecord } from "../../src/domain/token.ts";
import { openTestStore } from "../support/database.ts";

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

  test("stores what is not there with every field, and the second time changes nothing", async () => {
    await using store = await openTestStore();
    const tokens = [token("a"), token("b", full), token("c", { scopes: ["plants:write"] })];
    for (let times = 0; times < 2; times++) {
      expect(await store.adoptTokens(tokens)).toEqual([]);
      expect(await readTokens(store)).toEqual(tokens);
    }
    expect(await store.adoptTokens([])).toEqual([]);
    expect(await makeFirstToken(store)).toBeUndefined();
  });

  test("takes over a revocation and a later use where the hash is there, and nothing else", async () => {
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
    const toToken = (more: object, at: number) => token(`t${at}`, { createdAtMs: at, ...more });
    await store.adoptTokens(cases.map(([there], at) => toToken(there, at)));
    expect(await store.adoptTokens(cases.map(([, given], at) => toToken(given, at)))).toEqual([]);
    expect(await readTokens(store)).toEqual(
      cases.map(([there, , due = there], at) => toToken(due, at)),
    );
  });

  test("resolves to those whose name is in use, stores nothing of them, and the rest", async () => {
    await using store = await openTestStore();
    await store.createToken(token("there", { name: "till" }));
    const taken = token("taken", { name: "till" });
    const revoked = token("revoked", { name: "till", revokedAtMs: 5, createdAtMs: 2_000 });
    const other = token("other", { createdAtMs: 3_000 });
    expect(await store.adoptTokens([taken, revoked, other])).toEqual([taken]);
    expect(await readTokens(store)).toEqual([token("there", { name: "till" }), revoked, other]);
  });

  test("takes over revocations first, whatever the order: they free names", async () => {
    await using store = await openTestStore();
    await store.createToken(token("old", { name: "till" }));
    const next = token("new", { name: "till", createdAtMs: 2_000 });
    const old = token("old", { name: "till", revokedAtMs: 5 });
    expect(await store.adoptTokens([next, old])).toEqual([]);
    expect(await readTokens(store)).toEqual([old, next]);
  });
});
