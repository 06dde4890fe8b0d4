/** One of the two stores of a copy. What it cannot do at the moment, it is asked again. */

import { retry, type RetryOptions } from "../client/retry.ts";
import { Refusal } from "../domain/errors.ts";
import type { PlantPage } from "../domain/page.ts";
import type { Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";

const PAGE_LENGTH = 1_000;

export class Side {
  /** Its place, for people: without a password. */
  readonly location: string;
  private readonly store: Store;
  private readonly retrying: RetryOptions;

  constructor(store: Store, retrying: RetryOptions) {
    this.location = store.description.location;
    this.store = store;
    this.retrying = retrying;
  }

  /** `use` may come to be called again, after it has been done in part or, unknown to us, in whole. */
  attempt<Result>(use: (store: Store) => Promise<Result>): Promise<Result> {
    return retry(() => use(this.store), { ...this.retrying, findWaitMs });
  }

  async *walkPages(): AsyncGenerator<readonly Plant[]> {
    let after: bigint | undefined;
    do {
      const { plants, next } = await this.readPage(after);
      yield plants;
      after = next;
    } while (after !== undefined);
  }

  async readPage(after: bigint | undefined): Promise<PlantPage> {
    // An engine that answers within the turn would let neither Ctrl-C nor the progress line have theirs.
    await new Promise(setImmediate);
    this.retrying.signal?.throwIfAborted();
    return this.attempt((store) =>
      store.listPlants({
        after,
        limit: PAGE_LENGTH,
        tag: undefined,
        name: undefined,
        order: "asc",
      }),
    );
  }
}

/** Someone else is writing, or the server of a database is being replaced: both come to an end. */
function isPassing(error: unknown): error is Refusal {
  return (
    error instanceof Refusal &&
    ["store_busy", "store_unavailable", "overloaded"].includes(error.reason)
  );
}

const findWaitMs = (error: unknown): number | undefined => (isPassing(error) ? 0 : undefined);
