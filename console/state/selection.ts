/** The selected plants, and bulk actions on them: set the tag, delete, and undo. */

import { computed, signal } from "@preact/signals";
import type { Client } from "../../client/client.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import {
  Changed,
  createPlant,
  type ListFilter,
  findPlant,
  removePlant,
  replacePlant,
  Taken,
} from "../api/plants.ts";
import { call, explain, Explained, isAbort } from "../api/service.ts";
import { formatCount, formatName } from "./format.ts";
import { list } from "./plants.ts";
import { token } from "./session.ts";
import { toast } from "./toasts.ts";

/** Each list has its own selection. */
export const selection = computed(() => list.value.selection.value);
/** The selected plants as the list shows them now. Plants that are gone are left out. */
export const picked = computed(() => {
  void list.value.version.value;
  const { ids } = selection.value;
  return ids.size === 0 ? [] : list.value.plants.filter(({ id }) => ids.has(id));
});
export const hasSelection = computed(() => selection.value.isAll || picked.value.length > 0);

export const isSelected = (id: bigint): boolean =>
  selection.value.ids.has(id) !== selection.value.isAll;

export function selectAll(isAll: boolean): void {
  list.value.selection.value = { isAll, ids: new Set() };
}

/** With `isRange`, also every plant between this one and the one selected before. */
export function select(index: number, isRange: boolean): void {
  const { isAll, ids, last } = selection.value;
  const chosen = list.value.plants[index];
  if (chosen === undefined) return;
  const isAdded = !ids.has(chosen.id);
  const changed = new Set(ids);
  const start = isRange && last !== undefined ? list.value.indexOf(last) : -1;
  const from = start === -1 ? index : start;
  for (const { id } of list.value.plants.slice(Math.min(from, index), Math.max(from, index) + 1))
    if (isAdded) changed.add(id);
    else changed.delete(id);
  list.value.selection.value = { isAll, ids: changed, last: chosen.id };
}

/** The selected plants, or all that match if none is selected. */
export async function* readSelected(
  client: Client,
  filter: ListFilter,
  { signal: signalOff }: { readonly signal: AbortSignal },
): AsyncGenerator<readonly Plant[], void> {
  const { isAll, ids } = selection.value;
  if (!isAll && picked.value.length > 0) return yield picked.value;
  const { onlyById } = list.value;
  if (onlyById !== undefined && !ids.has(onlyById.id)) yield [onlyById];
  for await (const block of client.exportBlocks(filter, { signal: signalOff }))
    yield isAll ? block.filter(({ id }) => !ids.has(id)) : block;
}

/** Each plant takes two requests, so more would take minutes. */
const AT_ONCE_MAX = 10_000;
/** Browsers open six connections to a host, and one of them follows the changes. */
const SIMULTANEOUS = 4;

/** A long-running action. `done` is from 0 to 1, undefined if unknown. */
interface Work {
  readonly text: string;
  readonly done?: number;
  readonly stop: () => void;
}

export const work = signal<Work | undefined>(undefined);

/** Resolves to its undo; to undefined if nothing changed. */
type Act = (plant: Plant) => Promise<(() => Promise<unknown>) | undefined>;
type Job = readonly [plant: Plant, act: Act];

export const deleteSelected = (): Promise<void> =>
  runOnSelected("Deleting", "Deleted", async (plant) => {
    await removePlant(plant.id, await readEtag(plant));
    list.value.take(plant.id);
    return () => createPlant(plant);
  });

export const tagSelected = (tag: string | undefined): Promise<void> =>
  runOnSelected("Changing", "Changed", async (plant) => {
    const etag = await readEtag(plant);
    if (plant.tag === tag) return undefined;
    const saved = await replacePlant({ ...plant, tag }, etag);
    list.value.put(saved.plant);
    return () => replacePlant(plant, saved.etag);
  });

/** Throws Changed if the plant is no longer as it was shown. */
async function readEtag(plant: Plant): Promise<string> {
  const found = await findPlant(plant.id);
  if (found === undefined || !isSame(found.plant, plant)) throw new Changed(plant.id, found);
  return found.etag;
}

const TOO_MANY = `More than ${formatCount(AT_ONCE_MAX)} plants are too many at once. Search or pick a tag.`;

async function runOnSelected(doing: string, done: string, act: Act): Promise<void> {
  const shown = list.value;
  const stopping = new AbortController();
  const jobs: Job[] = [];
  work.value = { text: "Reading…", stop: () => stopping.abort() };
  try {
    await call(async (client) => {
      for await (const block of readSelected(client, shown.filter, stopping)) {
        for (const plant of block) jobs.push([plant, act]);
        if (jobs.length > AT_ONCE_MAX) throw new Explained(TOO_MANY);
      }
    });
    await runAll(doing, done, jobs, shown);
  } catch (error) {
    if (!isAbort(error)) toast(`Nothing was done. ${explain(error)}`);
  }
  work.value = undefined;
}

/** Skipped plants stay selected, and the list shows their current state. `shown` is the list of the plants. */
async function runAll(
  doing: string,
  done: string,
  jobs: readonly Job[],
  shown = list.value,
): Promise<void> {
  const waiting = jobs.values();
  const undo: Job[] = [];
  /** Why plants were skipped. */
  const reasons: string[] = [];
  const kept: bigint[] = [];
  let count = 0;
  const stop = (): void => void kept.push(...Array.from(waiting, ([{ id }]) => id));
  const runWaiting = async (): Promise<void> => {
    for (const [plant, act] of waiting) {
      const ended = count + reasons.length;
      const text = `${doing}… ${formatCount(ended)} of ${formatCount(jobs.length)}`;
      work.value = { text, done: ended / jobs.length, stop };
      try {
        const revert = await act(plant);
        const putBack = async (): Promise<undefined> => {
          await revert?.();
          list.value.put(plant);
        };
        if (revert !== undefined) undo.push([plant, putBack]);
        count++;
      } catch (error) {
        reasons.push(`${formatName(plant)}: ${explain(error)}`);
        // A different plant has the id now.
        if (!(error instanceof Taken)) kept.push(plant.id);
        if (error instanceof Changed) {
          if (error.current === undefined) list.value.take(plant.id);
          else list.value.put(error.current.plant);
        }
        // Any other error would hit the remaining plants too.
        if (!(error instanceof Changed || error instanceof Taken)) stop();
      }
    }
  };
  await Promise.all(Array.from({ length: SIMULTANEOUS }, runWaiting));
  work.value = undefined;
  if (token.value === undefined) return;
  shown.selection.value = { isAll: false, ids: new Set(kept) };
  const rest = jobs.length - count;
  const left = rest > 0 ? ` ${formatCount(rest)} skipped. ${reasons[0] ?? ""}` : "";
  toast(
    `${done} ${formatCount(count, "plant")}.${left}`,
    undo.length > 0
      ? { label: "Undo", isNeeded: true, run: () => void runAll("Undoing", "Undone:", undo) }
      : undefined,
  );
}
