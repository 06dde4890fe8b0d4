/** Where plants are imported to: the store itself, or a service in front of one. */

import { catalogue, Refusal } from "../domain/errors.ts";
import { formatStoredPlant, type Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import { readLines } from "../format/lines.ts";
import { CommandError } from "./failure.ts";
import { type Persistence, persist, Setback } from "./persistence.ts";
import { ask, explainLoss, type Remote, Unreached } from "./remote.ts";

export interface Refused {
  /** Of the catalogue. */
  readonly code: number;
  readonly message: string;
}

type Outcome = "created" | "replayed" | Refused;

export interface ImportTarget {
  readonly blockLengthMax: number;
  /**
   * Stores the plants, and settles each of them as soon as its outcome is known. Rejects where some stay
   * unsettled: they may have been stored, and storing them again settles it.
   */
  readonly create: (plants: readonly Plant[], settle: Settle) => Promise<void>;
}

/** `index` is that of the plant. */
type Settle = (index: number, outcome: Outcome) => void;

export const toRefused = ({ reason, message }: Refusal): Refused => ({
  code: catalogue[reason].code,
  message,
});

/** All of a block wait for one commit, or few. */
const STORE_BLOCK_LENGTH_MAX = 1_000;

export function targetStore(
  store: Store,
  queueLengthMax: number,
  persistence: Persistence,
): ImportTarget {
  const create = async (plants: readonly Plant[], settle: Settle): Promise<void> => {
    const left = new Map(plants.entries());
    await persist(async () => {
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
      if (failure === undefined) return;
      // Someone else is writing, and will be done; a disk that fails is for a person to look at.
      const isBusy = failure instanceof Refusal && failure.reason === "store_busy";
      throw isBusy ? new Setback("The store is busy.", 0, failure) : failure;
    }, persistence);
  };
  return { blockLengthMax: Math.min(STORE_BLOCK_LENGTH_MAX, queueLengthMax), create };
}

const REQUEST_LENGTH_MAX = 2_000;
const REQUEST_SECONDS_MAX = 60;

export function targetRemote(remote: Remote, persistence: Persistence): ImportTarget {
  let wasReached = false;
  const create = async (plants: readonly Plant[], settle: Settle): Promise<void> => {
    const left = new Map(plants.entries());
    await persist(async () => {
      try {
        await sendPlants(remote, left, (index, outcome) => {
          wasReached = true;
          left.delete(index);
          settle(index, outcome);
        });
      } catch (error) {
        // A service that was never there will hardly come.
        if (error instanceof Unreached && !wasReached) throw new CommandError(error.message);
        // Whoever broke a connection off was there.
        wasReached ||= error instanceof Setback;
        throw error;
      }
    }, persistence);
  };
  return { blockLengthMax: REQUEST_LENGTH_MAX, create };
}

/** One request. What it settles is settled, whatever becomes of the rest. */
async function sendPlants(
  remote: Remote,
  plants: ReadonlyMap<number, Plant>,
  settle: Settle,
): Promise<void> {
  const sent = [...plants];
  const response = await ask(remote, "/plants/batch", {
    method: "POST",
    body: sent.map(([, plant]) => `${formatStoredPlant(plant)}\n`).join(""),
    signal: AbortSignal.timeout(REQUEST_SECONDS_MAX * 1000),
  });
  const unsettled = new Map(sent.map(([index], at) => [at + 1, index]));
  let setback = `${remote.url} did not answer for every plant.`;
  for await (const result of readResults(remote, response)) {
    const { line, message } = result;
    const index = unsettled.get(line);
    const outcome = toOutcome(result);
    if (index !== undefined && outcome !== undefined) {
      unsettled.delete(line);
      settle(index, outcome);
    } else if (outcome === undefined && message !== undefined)
      setback = `${remote.url}: ${message}`;
  }
  if (unsettled.size > 0) throw new Setback(setback);
}

interface Result {
  readonly line: number;
  readonly status: number;
  readonly replayed?: boolean;
  readonly error?: number;
  readonly message?: string;
}

async function* readResults(remote: Remote, { body }: Response): AsyncGenerator<Result> {
  if (body === null) return;
  try {
    for await (const lines of readLines(body, Number.MAX_SAFE_INTEGER, REQUEST_LENGTH_MAX))
      for (const { text } of lines) {
        const result = typeof text === "string" ? findJson(text) : undefined;
        if (!isResult(result))
          throw new CommandError(`${remote.url} does not answer as a plant store does.`);
        yield result;
      }
  } catch (error) {
    throw error instanceof CommandError ? error : explainLoss(remote, error);
  }
}

function findJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isResult(value: unknown): value is Result {
  if (typeof value !== "object" || value === null) return false;
  const { line, status, replayed, error, message } = value as Record<keyof Result, unknown>;
  return (
    Number.isSafeInteger(line) &&
    typeof status === "number" &&
    ["undefined", "boolean"].includes(typeof replayed) &&
    ["undefined", "number"].includes(typeof error) &&
    ["undefined", "string"].includes(typeof message)
  );
}

const passingCodes = new Set<number>(
  Object.values(catalogue).flatMap((entry) => (entry.retry ? [entry.code] : [])),
);

/** Undefined where the plant may be stored another time. */
function toOutcome(result: Result): Outcome | undefined {
  if (result.status === 200) return result.replayed === true ? "replayed" : "created";
  const { error: code = 0, message = "" } = result;
  return result.status >= 500 || passingCodes.has(code) ? undefined : { code, message };
}
