/** Randomness that can be had again: every random test takes its seed from here, and tells it when it fails. */

const SEED_VARIABLE = "PLANTSTORE_TEST_SEED";

/** A new one for each run, unless the environment gives it. */
export const seed = Number(process.env[SEED_VARIABLE] ?? Math.trunc(Math.random() * 2 ** 31));

export type Random = ReturnType<typeof createRandom>;

/** Mulberry32: small, and good enough to choose test data with. */
export function createRandom(from: number = seed) {
  let state = from | 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  /** An integer from 0 to one less than `count`. */
  const below = (count: number): number => Math.floor(next() * count);
  return {
    seed: from,
    below,
    /** True with this probability. */
    chance: (percent: number) => next() * 100 < percent,
    pick: <Item>(items: readonly Item[]) => items[below(items.length)] as Item,
  };
}

/** Choices of its own, whatever else is chosen meanwhile. */
export const fork = (random: Random): Random => createRandom(random.below(2 ** 31));

/** The test runner shows no causes, so the failure itself goes into the message. */
export async function tellingSeed(run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    throw new Error(`${SEED_VARIABLE}=${seed}\n${Bun.inspect(error)}`, { cause: error });
  }
}
