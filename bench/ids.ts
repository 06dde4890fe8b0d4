/** Which ids a round creates, so that no two rounds of a run share one and any of them can be read back. */

/** Stores are filled from 0 on, so the first round begins well beyond. */
const IDS_A_ROUND = 100_000_000;

let rounds = 0;

export const takeFirstId = (): number => ++rounds * IDS_A_ROUND;

export const idsPerThread = (threads: number): number => Math.floor(IDS_A_ROUND / threads);

let trials = 0;

/** For single requests beside the rounds. */
export const takeTrialId = (): number => 5_000_000_000_000_000 + trials++;

/** As in requests.lua: the same doubles, so the same ids. */
const scatter = (number: number): number =>
  ((number * 40_503) % 2 ** 16) * 2 ** 36 + ((number * 69_069) % 2 ** 36);

/** All that were sent, from how many each thread has sent. */
export function listIds(first: number, issued: readonly number[], kind: string): number[] {
  const numbers = issued.flatMap((count, thread) => {
    const firstOfThread = first + thread * idsPerThread(issued.length);
    return Array.from({ length: count }, (_, index) => firstOfThread + index);
  });
  return kind === "create-random" ? numbers.map(scatter) : numbers;
}
