/** Rate limits: a token bucket for each token. */

import { setTimeout } from "node:timers/promises";
import { Refusal } from "../domain/errors.ts";
import { findRate, type Rate } from "../domain/time.ts";
import type { TokenRecord } from "../domain/token.ts";
import { sharedNow } from "../tick.ts";

type Limited = Pick<TokenRecord, "hash" | "rate">;

export interface RateState extends Rate {
  readonly remaining: number;
  readonly resetSeconds: number;
}

export class RateLimited extends Refusal {
  readonly state: RateState;
  readonly retryAfterSeconds: number;

  constructor(state: RateState, retryAfterSeconds: number, message?: string) {
    super("rate_limited", message);
    this.state = state;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Each slot holds a token's key and the time when its bucket is full again, in nanoseconds. */
const SLOT_BITS = 13;
const SLOTS = 2 ** SLOT_BITS;
const SLOT_LENGTH = 2;
/** Slots that one token may have: with many tokens, a search through all would take milliseconds. */
const PROBES_MAX = 32;
export const RATES_BYTES = SLOTS * SLOT_LENGTH * BigInt64Array.BYTES_PER_ELEMENT;

const NS_PER_SECOND = 1_000_000_000;

const readClockNs = (): bigint => BigInt(Math.round(sharedNow() * 1e6));
/** The clocks of two threads differ by less than this. */
const CLOCK_NS_MAX = 1_000_000;

interface Bucket extends Rate {
  readonly hash: string;
  readonly windowNs: number;
  readonly unitNs: number;
}

/** Batches in flight per rate-limited token: a throttled batch holds memory that others need. */
const BATCHES_MAX = 4;
const BATCHES_FULL = `The token has ${BATCHES_MAX} batches in flight, the limit for a token with a rate.`;
const BATCH_RETRY_SECONDS = 1;

/** Threads can share the memory. `fallback` is the rate of tokens without their own; "" is none. */
export function createRateLimiter(
  fallback: string,
  memory: ArrayBufferLike = new ArrayBuffer(RATES_BYTES),
  now = readClockNs,
) {
  const { tryTake } = createBuckets(memory, now);
  const closing = new AbortController();
  /** The hash of the token of each rate-limited batch in flight on this thread. */
  const batches: string[] = [];

  /** Throws if the bucket is empty. Returns what is left if that is less than a tenth. */
  function take(token: Limited): RateState | undefined {
    const bucket = bucketOf(token);
    if (bucket === undefined) return undefined;
    const { state, isTaken, waitNs } = tryTake(bucket, 1);
    if (!isTaken) throw new RateLimited(state, Math.ceil(waitNs / NS_PER_SECOND));
    return state.remaining < state.units / 10 ? state : undefined;
  }

  function requireBatch(token: Limited | undefined): void {
    const bucket = token && bucketOf(token);
    const begun = batches.filter((hash) => hash === bucket?.hash).length;
    if (bucket === undefined || begun < BATCHES_MAX) return;
    throw new RateLimited(tryTake(bucket, 0).state, BATCH_RETRY_SECONDS, BATCHES_FULL);
  }

  async function* pace<Line>(
    blocks: AsyncIterable<Line[]>,
    token: Limited | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<Line[]> {
    const bucket = token && bucketOf(token);
    if (bucket === undefined) return yield* blocks;
    // Other batches may have started since this request was admitted.
    requireBatch(token);
    batches.push(bucket.hash);
    const ending = AbortSignal.any([signal, closing.signal]);
    // Large enough to share a commit, small enough to leave units for the token's other requests.
    const length = Math.ceil(bucket.units / Math.max(10, bucket.windowSeconds));
    try {
      for await (const block of blocks) {
        if (block.length === 0) yield block;
        for (let start = 0; start < block.length; start += length) {
          const part = block.slice(start, start + length);
          await payFor(part.length, bucket, ending);
          yield part;
        }
      }
    } finally {
      batches.splice(batches.indexOf(bucket.hash), 1);
    }
  }

  /** Borrows missing units. Single requests are refused until the debt is paid; then the batch pauses for them. */
  async function payFor(units: number, bucket: Bucket, signal: AbortSignal): Promise<void> {
    for (let isTaken = false; !isTaken;) {
      const tried = tryTake(bucket, units, units);
      ({ isTaken } = tried);
      if (tried.waitNs <= 0) continue;
      const pauseNs = (units * bucket.unitNs * (1 + Math.random())) / 4;
      const waitMs = (tried.waitNs + pauseNs) / 1e6;
      await setTimeout(waitMs, undefined, { signal }).catch(() => undefined);
      signal.throwIfAborted();
    }
  }

  function bucketOf({ hash, rate: own }: Limited): Bucket | undefined {
    const text = own ?? fallback;
    const rate = text === "" ? undefined : findRate(text);
    if (rate === undefined) return undefined;
    const windowNs = rate.windowSeconds * NS_PER_SECOND;
    return { ...rate, hash, windowNs, unitNs: windowNs / rate.units };
  }

  /** Batches that wait for their rate fail with `shutting_down`. */
  const close = (): void => closing.abort(new Refusal("shutting_down"));
  return { take, requireBatch, pace, close };
}

/** One token bucket for each token, stored as the time when it will be full: taking a unit postpones that time. */
function createBuckets(memory: ArrayBufferLike, now: typeof readClockNs) {
  const slots = new BigInt64Array(memory);

  /** `waitNs` is the time until the units can be taken, or until borrowed units are paid back. */
  function tryTake(bucket: Bucket, units: number, unitsOwed = 0) {
    const { windowNs, unitNs, windowSeconds } = bucket;
    for (;;) {
      const slot = findSlot(bucket.hash);
      const nowNs = now();
      const fullAt = Atomics.load(slots, slot);
      const emptyNs = Math.max(0, Number(fullAt - nowNs));
      const afterNs = emptyNs + units * unitNs;
      const waitNs = afterNs - unitsOwed * unitNs - windowNs;
      const describe = (ns: number): RateState => ({
        units: bucket.units,
        windowSeconds,
        remaining: Math.max(0, Math.floor((windowNs - ns) / unitNs)),
        resetSeconds: Math.ceil(ns / NS_PER_SECOND),
      });
      if (waitNs > CLOCK_NS_MAX) return { state: describe(emptyNs), isTaken: false, waitNs };
      const next = nowNs + BigInt(Math.round(afterNs));
      if (Atomics.compareExchange(slots, slot, fullAt, next) === fullAt)
        return { state: describe(afterNs), isTaken: true, waitNs: afterNs - windowNs };
    }
  }

  /**
   * The slot of a token's time. A full bucket is as good as none, so its slot may pass to another token. If no slot is
   * free, tokens share one. A token whose slot passes to another while it takes units pays them from the other's bucket.
   */
  function findSlot(hash: string): number {
    const key = BigInt.asIntN(64, BigInt(`0x${hash.slice(0, 16)}`)) || 1n;
    const first = Number(BigInt.asUintN(SLOT_BITS, key));
    let free: { readonly at: number; readonly found: bigint } | undefined;
    for (let count = 0; count < PROBES_MAX; count++) {
      const at = ((first + count) % SLOTS) * SLOT_LENGTH;
      const found = Atomics.load(slots, at);
      if (found === key) return at + 1;
      if (free === undefined && Atomics.load(slots, at + 1) <= now()) free = { at, found };
      // No slot becomes unused again, so the token has none further on.
      if (found === 0n) break;
    }
    if (free === undefined) return first * SLOT_LENGTH + 1;
    const { at, found } = free;
    const before = Atomics.compareExchange(slots, at, found, key);
    return before === found || before === key ? at + 1 : findSlot(hash);
  }

  return { tryTake };
}
