/** Where plants are imported to: the store itself, or a service in front of one. */

import type { Client, Refused, Settle } from "../client/client.ts";
import { retry, type RetryOptions } from "../client/retry.ts";
import { catalogue, Refusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";

export interface ImportTarget {
  readonly blockLengthMax: number;
  /**
   * Stores the plants, and settles each of them as soon as its outcome is known. Rejects where some stay
   * unsettled: they may have been stored, and storing them again settles it.
   */
  readonly create: (plants: readonly Plant[], settle: Settle) => Promise<void>;
}

export const toRefused = ({ reason, message }: Refusal): Refused => ({
  code: catalogue[reason].code,
  message,
});

/** All of a block wait for one commit, or few. */
const STORE_BLOCK_LENGTH_MAX = 1_000;

export function targetStore(
  store: Store,
  queueLengthMax: number,
  options: RetryOptions,
): ImportTarget {
  const create = async (plants: readonly Plant[], settle: Settle): Promise<void> => {
    const left = new Map(plants.entries());
    const attempt = async (): Promise<void> => {
      const failures = await Promise.all(
        [...left].map(async ([index, plant]) => {
          try {
            settle(index, await store.createPlant(plant));
          } catch (error) {
            if (!(error instanceof Refusal) || error.reason !== "id_taken") return error as Error;
            settle(index, toRefused(error));
          }
          left.delete(index);
        }),
      );
      const failure = failures.find((error) => error !== undefined);
      if (failure !== undefined) throw failure;
    };
    await retry(attempt, { ...options, findWaitMs });
  };
  return { blockLengthMax: Math.min(STORE_BLOCK_LENGTH_MAX, queueLengthMax), create };
}

/** Another process is writing and will finish; a disk that fails needs a person. */
const findWaitMs = (error: unknown): number | undefined =>
  error instanceof Refusal && error.reason === "store_busy" ? 0 : undefined;

const REQUEST_LENGTH_MAX = 2_000;

export const targetService = (client: Client, options: RetryOptions): ImportTarget => ({
  blockLengthMax: REQUEST_LENGTH_MAX,
  create: (plants, settle) => client.createPlants(plants, settle, options),
});
