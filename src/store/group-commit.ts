/** One commit, and so one sync, for all the writes that arrived while the last commit was under way. */

import { Refusal } from "../domain/error.ts";
import type { StoreLimits } from "../domain/store.ts";

type QueueLimits = Omit<StoreLimits, "scanRowsMax">;

interface Pending<Write, Outcome> {
  readonly write: Write;
  readonly characters: number;
  readonly deadlineMs: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Commits a batch and answers with one outcome a write, in order; an Error fails that write alone.
 * A throw means that nothing of the batch is known to be stored, and fails every write in it.
 * `locked` means that nothing was tried: the batch comes again until its time in the queue is over.
 */
export type Commit<Write, Outcome> = (
  writes: readonly Write[],
) => Committed<Outcome> | Promise<Committed<Outcome>>;

export type Committed<Outcome> = (Outcome | Error)[] | "locked";

const LOCK_RETRY_MS = 5;
const COMMIT_CHARACTERS_MAX = 4_194_304;

export class GroupCommit<Write, Outcome> {
  private readonly commit: Commit<Write, Outcome>;
  private readonly limits: QueueLimits;
  private readonly now: () => number;
  private queue: Pending<Write, Outcome>[] = [];
  private charactersQueued = 0;
  private running: Promise<void> | undefined;
  private closed = false;

  constructor(
    commit: Commit<Write, Outcome>,
    limits: QueueLimits,
    now: () => number = () => performance.now(),
  ) {
    this.commit = commit;
    this.limits = limits;
    this.now = now;
  }

  /** Settles after the commit that the write was part of. `characters` is how much text it holds. */
  submit(write: Write, characters = 0): Promise<Outcome> {
    if (this.closed) return Promise.reject(new Refusal("shutting_down"));
    const isFull =
      this.queue.length >= this.limits.queueLengthMax ||
      (this.queue.length > 0 && this.charactersQueued + characters > this.limits.bodyBytesTotalMax);
    if (isFull) return Promise.reject(new Refusal("overloaded"));
    const deadlineMs = this.now() + this.limits.queueSecondsMax * 1000;
    return new Promise((resolve, reject) => {
      this.queue.push({ write, characters, deadlineMs, resolve, reject });
      this.charactersQueued += characters;
      this.running ??= this.run();
    });
  }

  /** Refuses new writes, and resolves when those accepted are settled. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    while (this.queue.length > 0) {
      // Requests that the runtime has already received join the batch before it starts.
      await new Promise(setImmediate);
      this.refuseLate();
      const batch = this.takeFirst(this.countBatch());
      if (batch.length === 0 || (await this.settle(batch))) continue;
      this.queue = batch.concat(this.queue);
      this.charactersQueued += sumCharacters(batch);
      await Bun.sleep(LOCK_RETRY_MS);
    }
    this.running = undefined;
  }

  /** False where the store was locked by someone else and the batch is still to be tried. */
  private async settle(batch: readonly Pending<Write, Outcome>[]): Promise<boolean> {
    try {
      const outcomes = await this.commit(batch.map((pending) => pending.write));
      if (outcomes === "locked") return false;
      for (const [index, pending] of batch.entries()) {
        const outcome = outcomes[index] as Outcome | Error;
        if (outcome instanceof Error) pending.reject(outcome);
        else pending.resolve(outcome);
      }
    } catch (error) {
      for (const pending of batch) pending.reject(error);
    }
    return true;
  }

  /** As many writes as a commit may have, and no more text than would hold everyone else up. */
  private countBatch(): number {
    const { queue, limits } = this;
    let characters = 0;
    let count = 0;
    while (
      count < Math.min(queue.length, limits.batchLengthMax) &&
      characters < COMMIT_CHARACTERS_MAX
    )
      characters += queue[count++]?.characters ?? 0;
    return count;
  }

  private takeFirst(count: number): Pending<Write, Outcome>[] {
    const taken = this.queue.splice(0, count);
    this.charactersQueued -= sumCharacters(taken);
    return taken;
  }

  /** All have the same allowance of time, so that those who are late stand in front. */
  private refuseLate(): void {
    const now = this.now();
    const inTime = this.queue.findIndex((pending) => pending.deadlineMs > now);
    const late = this.takeFirst(inTime === -1 ? this.queue.length : inTime);
    for (const pending of late) pending.reject(new Refusal("store_busy"));
  }
}

function sumCharacters(writes: readonly { readonly characters: number }[]): number {
  let sum = 0;
  for (const { characters } of writes) sum += characters;
  return sum;
}
