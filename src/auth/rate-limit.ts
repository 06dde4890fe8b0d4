/** How much a token may ask for. */

import { setTimeout } from "node:timers/promises";
import { Refusal } from "../domain/errors.ts";
import type { Principal } from "./authenticate.ts";

export interface Rate {
  /** What a token may use at once, and again in each window. */
  readonly units: number;
  readonly windowSeconds: number;
}

const windows: Readonly<Record<string, number>> = { s: 1, min: 60, h: 3_600 };
const UNITS_MAX = 1_000_000_000;

/** Turns the limit off for one token. */
export const UNLIMITED = "none";

/** As in 100/s, 6000/min or 100000/h. */
export function findRate(text: string): Rate | undefined {
  const [, count, unit] = /^([1-9]\d{0,9})\/(s|min|h)$/.exec(text) ?? [];
  const units = Number(count);
  const windowSeconds = windows[unit ?? ""];
  return windowSeconds === undefined || units > UNITS_MAX ? undefined : { units, windowSeconds };
}

/** What is left of a token's rate. */
export interface RateState extends Rate {
  readonly remaining: number;
  /** Until the token has all its units again. */
  readonly resetSeconds: number;
}

export class RateLimited extends Refusal {
  readonly state: RateState;
  readonly retryAfterSeconds: number;

  constructor(state: RateState, retryAfterSeconds: number) {
    super("rate_limited");
    this.state = state;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Each slot holds a token's key, and the time at which its bucket is full again, in nanoseconds. */
const SLOTS = 65_536;
const SLOT_LENGTH = 2;
export const RATES_BYTES = SLOTS * SLOT_LENGTH * BigInt64Array.BYTES_PER_ELEMENT;

const NS_A_SECOND = 1_000_000_000;

/**
 * One token bucket for each token, kept as the time at which it will be full: to take a unit moves that time on, and
 * a bucket that would take longer than a window to fill is empty. The times are in memory that threads can share.
 */
export class RateLimiter {
  /** For tokens without a rate of their own; "" is none. */
  private readonly fallback: string;
  private readonly rates = new Map<string, Rate | undefined>();
  private readonly slots: BigInt64Array;
  private readonly nowNs: () => bigint;

  constructor(
    fallback: string,
    memory: ArrayBufferLike = new ArrayBuffer(RATES_BYTES),
    // Not performance.now(), which counts from the start of each thread.
    nowNs = () => process.hrtime.bigint(),
  ) {
    this.fallback = fallback;
    this.slots = new BigInt64Array(memory);
    this.nowNs = nowNs;
  }

  /** Throws if the bucket is empty. Returns what is left, if that is less than a tenth. */
  take(principal: Principal): RateState | undefined {
    const rate = this.rateOf(principal);
    if (rate === undefined) return undefined;
    const { state, waitNs } = this.tryTake(principal, rate, 1);
    if (waitNs > 0) throw new RateLimited(state, Math.ceil(waitNs / NS_A_SECOND));
    return state.remaining < state.units / 10 ? state : undefined;
  }

  /** Gives the lines of a batch on as fast as the rate allows. */
  async *pace<Line>(
    blocks: AsyncIterable<Line[]>,
    principal: Principal,
    signal: AbortSignal,
  ): AsyncGenerator<Line[]> {
    const rate = this.rateOf(principal);
    if (rate === undefined) return yield* blocks;
    // Enough to share a commit, and little enough to leave something for the token's other requests.
    const lengthMax = Math.max(1, Math.floor(rate.units / 10));
    for await (const block of blocks)
      for (let start = 0; start < block.length; start += lengthMax) {
        const part = block.slice(start, start + lengthMax);
        for (;;) {
          signal.throwIfAborted();
          const { waitNs } = this.tryTake(principal, rate, part.length);
          if (waitNs <= 0) break;
          // An abort ends the wait; the loop then throws its reason.
          await setTimeout(waitNs / 1e6, undefined, { signal }).catch(() => undefined);
        }
        yield part;
      }
  }

  private rateOf({ rate: own }: Principal): Rate | undefined {
    const text = own ?? this.fallback;
    if (text === "" || text === UNLIMITED) return undefined;
    let rate = this.rates.get(text);
    if (rate === undefined) this.rates.set(text, (rate = findRate(text)));
    return rate;
  }

  private tryTake(
    { hash }: Principal,
    rate: Rate,
    units: number,
  ): { state: RateState; waitNs: number } {
    const { slots } = this;
    const windowNs = rate.windowSeconds * NS_A_SECOND;
    const unitNs = windowNs / rate.units;
    const slot = this.findSlot(hash);
    for (;;) {
      const nowNs = this.nowNs();
      const fullAt = Atomics.load(slots, slot);
      const emptyNs = Math.max(0, Number(fullAt - nowNs));
      const afterNs = emptyNs + units * unitNs;
      const waitNs = afterNs - windowNs;
      const describe = (ns: number): RateState => ({
        ...rate,
        remaining: Math.floor((windowNs - ns) / unitNs),
        resetSeconds: Math.ceil(ns / NS_A_SECOND),
      });
      if (waitNs > 0) return { state: describe(emptyNs), waitNs };
      const next = nowNs + BigInt(Math.round(afterNs));
      if (Atomics.compareExchange(slots, slot, fullAt, next) === fullAt)
        return { state: describe(afterNs), waitNs: 0 };
    }
  }

  /** The place of a token's time. With as many tokens as slots, some would share one. */
  private findSlot(hash: string): number {
    const key = BigInt.asIntN(64, BigInt(`0x${hash.slice(0, 16)}`)) || 1n;
    const first = Number(BigInt.asUintN(16, key));
    for (let count = 0; count < SLOTS; count++) {
      const at = ((first + count) % SLOTS) * SLOT_LENGTH;
      const found = Atomics.compareExchange(this.slots, at, 0n, key);
      if (found === 0n || found === key) return at + 1;
    }
    return first * SLOT_LENGTH + 1;
  }
}
