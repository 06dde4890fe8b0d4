/** Rates and durations as they are written, and the account of a token by a clock that the test sets. */

import { expect, test } from "bun:test";
import { createRateLimiter, RateLimited, RATES_BYTES } from "../../src/auth/rate-limit.ts";
import { findDurationMs, findRate } from "../../src/domain/time.ts";

test.each([
  ["1/s", { units: 1, windowSeconds: 1 }],
  ["6000/min", { units: 6000, windowSeconds: 60 }],
  ["1000000000/h", { units: 1_000_000_000, windowSeconds: 3600 }],
])("the rate %j is %p", (text, rate) => expect(findRate(text)).toEqual(rate));

test.each([
  ["1s", 1_000],
  ["90s", 90_000],
  ["15m", 900_000],
  ["12h", 43_200_000],
  ["999999999d", 999_999_999 * 86_400_000],
])("the duration %j is %p ms", (text, ms) => expect(findDurationMs(text)).toBe(ms));

test("nothing else is a rate or a duration", () => {
  const rates = " 100 0/s -1/s 1.5/s 100/m 100/day 1e3/s 1000000001/s x1/s 1/sx none".split(" ");
  expect(rates.filter((text) => findRate(text) !== undefined)).toEqual([]);
  const durations = " 90 0s -1s 1.5h 1000000000d x1s 1sx 1w".split(" ");
  expect(durations.filter((text) => findDurationMs(text) !== undefined)).toEqual([]);
});

/** Its first 13 bits of 64 say where a token's account is. */
const tokenOf = (first64: bigint) => ({
  hash: first64.toString(16).padStart(16, "0").padEnd(64, "0"),
  rate: undefined,
});
const till = tokenOf(5n);

function makeLimiter(rate: string, memory?: ArrayBuffer) {
  const clock = { ns: 1_000_000_000_000n };
  const limiter = createRateLimiter(rate, memory, () => clock.ns);
  const takeAll = (token = till): number => {
    for (let count = 0; ; count++)
      try {
        limiter.take(token);
      } catch (error) {
        if (error instanceof RateLimited) return count;
        throw error;
      }
  };
  return { clock, takeAll, ...limiter };
}

const never = new AbortController().signal;

async function* blocks(...lengths: number[]): AsyncGenerator<number[]> {
  for (const length of lengths) yield Array.from({ length }, (_, index) => index);
}

test("a token gets its units again with time, and never more than all", () => {
  const { clock, takeAll } = makeLimiter("10/s");
  expect(takeAll()).toBe(10);
  clock.ns += 350_000_000n;
  expect(takeAll()).toBe(3);
  clock.ns += 60_000_000_000n;
  expect(takeAll()).toBe(10);
});

test.each([
  ["behind it", 5n],
  ["at the end", 8_191n],
  ["of the hash that is zero", 0n],
])("a token has its own account if others begin at the same place, %s", (_name, place) => {
  const { takeAll } = makeLimiter("4/h");
  const all = Array.from({ length: 20 }, (_, nth) => tokenOf(place + BigInt(nth) * 8_192n));
  expect(all.map(takeAll)).toEqual(all.map(() => 4));
  expect(all.map(takeAll)).toEqual(all.map(() => 0));
});

test("a token shares an account, and takes no other's place, when all places are in use", () => {
  const memory = new ArrayBuffer(RATES_BYTES);
  const slots = new BigInt64Array(memory);
  const { clock, takeAll } = makeLimiter("4/h", memory);
  const inUse = clock.ns + 1n;
  for (let at = 0; at < slots.length; at += 2) slots.set([-1n, inUse], at);
  expect(takeAll()).toBe(4);
  expect(takeAll(tokenOf(5n + 8_192n))).toBe(0);
  expect(takeAll(tokenOf(6n))).toBe(4);
  expect(slots.filter((_, index) => index % 2 === 0).every((key) => key === -1n)).toBe(true);
  // The accounts of 5 and 6, and no other.
  expect([slots[11], slots[13]].every((time) => time !== inUse)).toBe(true);
  expect(slots.filter((time, index) => index % 2 === 1 && time !== inUse)).toHaveLength(2);
});

test("a token gets the place of one that has all its units again, and never that of another", () => {
  const { clock, takeAll } = makeLimiter("4/s");
  for (let place = 8_192n; place < 16_384n; place++) expect(takeAll(tokenOf(place))).toBe(4);
  clock.ns += 2_000_000_000n;
  const known = tokenOf(8_198n);
  expect(takeAll(known)).toBe(4);
  const newer = [2n, 3n, 4n].map((round) => tokenOf(5n + round * 8_192n));
  expect(newer.map(takeAll)).toEqual([4, 4, 4]);
  expect([known, ...newer].map(takeAll)).toEqual([0, 0, 0, 0]);
});

test("an empty block of a batch is passed on, and costs nothing", async () => {
  const { pace, takeAll } = makeLimiter("100/s");
  const parts: number[][] = [];
  for await (const part of pace(blocks(0, 3, 0), till, never)) parts.push(part);
  expect(parts.map(({ length }) => length)).toEqual([0, 3, 0]);
  expect(takeAll()).toBe(97);
});

test("a token may owe one part of a batch, and waits until it is paid and a little longer", async () => {
  const { pace, takeAll } = makeLimiter("100/s");
  const startedAtMs = performance.now();
  const parts: number[][] = [];
  for await (const part of pace(blocks(100, 5), till, never)) parts.push(part);
  // 5 units take 50 ms, and a quarter of that is for others. A timer may fire a millisecond early.
  expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(61);
  expect(parts.map(({ length }) => length)).toEqual([...Array<number>(10).fill(10), 5]);
  expect(takeAll()).toBe(0);
});
