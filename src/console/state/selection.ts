/** The plants that are selected, and what is done to all of them: set the tag, delete, and undo either. */

import { computed, effect, signal, untracked } from "@preact/signals";
import type { Client } from "../../../client/client.ts";
import type { Plant } from "../../domain/plant.ts";
import {
  Changed,
  createPlant,
  type Filter,
  findPlant,
  isSame,
  removePlant,
  replacePlant,
  Taken,
} from "../api/plants.ts";
import { call, explain, isAbort } from "../api/service.ts";
import { formatCount } from "./format.ts";
import { list, noteTag } from "./plants.ts";
import { token } from "./session.ts";
import { toast } from "./toasts.ts";

/** Either these plants as they were when they were selected, or all that match the filter but these. */
interface Selection {
  readonly isAll: boolean;
  readonly plants: ReadonlyMap<bigint, Plant>;
}

export const selection = signal<Selection>({ isAll: false, plants: new Map() });
export const hasSelection = computed(
  () => selection.value.isAll || selection.value.plants.size > 0,
);

export const isSelected = (id: bigint): boolean =>
  selection.value.plants.has(id) !== selection.value.isAll;

let lastIndex: number | undefined;

export function selectAll(isAll: boolean): void {
  selection.value = { isAll, plants: new Map() };
  lastIndex = undefined;
}

/** With `isRange`, also every plant between this one and the one selected before. */
export function select(index: number, isRange: boolean): void {
  const { isAll, plants } = selection.value;
  const chosen = list.value.plants[index];
  if (chosen === undefined) return;
  const isAdded = !plants.has(chosen.id);
  const changed = new Map(plants);
  const from = isRange ? (lastIndex ?? index) : index;
  for (const plant of list.value.plants.slice(Math.min(from, index), Math.max(from, index) + 1))
    if (isAdded) changed.set(plant.id, plant);
    else changed.delete(plant.id);
  selection.value = { isAll, plants: changed };
  lastIndex = index;
}

/** Another list or another person begins with nothing selected. */
export function startSelection(): void {
  effect(() => {
    void [token.value, list.value];
    untracked(() => {
      selectAll(false);
      failures.value = [];
    });
  });
}

/** The selected plants, or all that match if none is selected. */
export async function* readSelected(
  client: Client,
  filter: Filter,
  { signal: signalOff }: { readonly signal: AbortSignal },
): AsyncGenerator<readonly Plant[], void> {
  const { isAll, plants } = selection.value;
  if (!isAll && plants.size > 0) return yield [...plants.values()];
  for await (const block of client.exportBlocks(filter, { signal: signalOff }))
    yield block.filter(({ id }) => !plants.has(id));
}

/** Each takes two requests: more would take minutes. */
const AT_ONCE_MAX = 10_000;
/** Browsers open six connections to one host, and the list follows the changes on one of them. */
const SIMULTANEOUS = 4;

interface Work {
  readonly text: string;
  readonly done: number;
  readonly total: number;
  readonly stop: () => void;
}

interface Failure {
  readonly plant: Plant;
  readonly why: string;
}

export const work = signal<Work | undefined>(undefined);
/** What was not done the last time, and why. */
export const failures = signal<readonly Failure[]>([]);

/** One step: a plant, what to do, and how to undo it. */
interface Step {
  readonly plant: Plant;
  readonly run: () => Promise<Step | undefined>;
}

export const deleteSelected = (): Promise<void> =>
  runOnSelected("Deleting", "Deleted", (plant) => async () => {
    const { etag } = await readSame(plant);
    await removePlant(plant.id, etag);
    list.value.take(plant.id);
    return { plant, run: () => put(plant, () => createPlant(plant)) };
  });

export const tagSelected = (tag: string | undefined): Promise<void> =>
  runOnSelected("Changing", "Changed", (plant) => async () => {
    const { etag } = await readSame(plant);
    const tagged = { ...plant, tag };
    if (isSame(tagged, plant)) return undefined;
    const saved = await replacePlant(tagged, etag);
    await put(tagged, async () => noteTag(tag));
    return { plant: tagged, run: () => put(plant, () => replacePlant(plant, saved.etag)) };
  });

/** Throws Changed if the plant is no longer as it was selected. */
async function readSame(plant: Plant): Promise<{ readonly etag: string }> {
  const found = await findPlant(plant.id);
  if (found === undefined || !isSame(found.plant, plant)) throw new Changed(found);
  return found;
}

async function put(plant: Plant, write: () => Promise<unknown>): Promise<undefined> {
  await write();
  list.value.put(plant);
}

async function runOnSelected(
  doing: string,
  done: string,
  toRun: (plant: Plant) => Step["run"],
): Promise<void> {
  const stopping = new AbortController();
  const plants: Plant[] = [];
  work.value = { text: "Reading", done: 0, total: 0, stop: () => stopping.abort() };
  try {
    await call(async (client) => {
      for await (const block of readSelected(client, list.value.filter, stopping)) {
        plants.push(...block);
        if (plants.length > AT_ONCE_MAX) return;
      }
    });
  } catch (error) {
    work.value = undefined;
    if (!isAbort(error)) toast(`Nothing was done. ${explain(error)}`);
    return;
  }
  work.value = undefined;
  if (plants.length > AT_ONCE_MAX)
    toast(
      `At most ${formatCount(AT_ONCE_MAX)} plants at a time. Search or pick a tag to narrow the list.`,
    );
  else
    await runSteps(
      doing,
      done,
      plants.map((plant) => ({ plant, run: toRun(plant) })),
    );
}

/** What was not done stays selected, as it is now. */
async function runSteps(doing: string, done: string, steps: readonly Step[]): Promise<void> {
  const shown = list.value;
  const waiting = steps.toReversed();
  const undo: Step[] = [];
  const failed: Failure[] = [];
  const kept: Plant[] = [];
  let count = 0;
  const stop = (): void => void kept.push(...waiting.splice(0).map(({ plant }) => plant));
  const runWaiting = async (): Promise<void> => {
    for (let step = waiting.pop(); step !== undefined; step = waiting.pop()) {
      const { plant } = step;
      work.value = { text: doing, done: count + failed.length, total: steps.length, stop };
      try {
        const reverse = await step.run();
        if (reverse !== undefined) undo.push(reverse);
        count++;
      } catch (error) {
        failed.push({ plant, why: explainFailure(error) });
        const now = error instanceof Changed ? error.current?.plant : plant;
        if (now !== undefined) kept.push(now);
        // The others would fail too.
        if (!(error instanceof Changed || error instanceof Taken)) stop();
      }
    }
  };
  await Promise.all(Array.from({ length: SIMULTANEOUS }, runWaiting));
  work.value = undefined;
  if (token.value === undefined) return;
  failures.value = failed;
  if (list.value === shown)
    selection.value = { isAll: false, plants: new Map(kept.map((plant) => [plant.id, plant])) };
  const rest = steps.length - count;
  toast(
    `${done} ${formatCount(count, "plant")}.${rest > 0 ? ` ${formatCount(rest)} not.` : ""}`,
    undo.length > 0
      ? { label: "Undo", isNeeded: true, run: () => void runSteps("Undoing", "Undone:", undo) }
      : undefined,
  );
}

function explainFailure(error: unknown): string {
  if (error instanceof Taken) return "Another plant has the id now.";
  if (!(error instanceof Changed)) return explain(error);
  return `Someone else ${error.current === undefined ? "deleted" : "changed"} it.`;
}
