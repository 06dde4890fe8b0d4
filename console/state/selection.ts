/** The selected plants, and bulk actions on them: set the tag, delete, and undo. */

import { computed, signal } from "@preact/signals";
import type { Client } from "../../client/client.ts";
import { nameBatch, nameOfBatch } from "../../src/domain/change.ts";
import { filterNames } from "../../src/domain/filter.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import {
  Changed,
  findPlant,
  type ListFilter,
  readConflict,
  removePlant,
  replacePlant,
  type Versioned,
} from "../api/plants.ts";
import { call, explain, Explained, isAbort } from "../api/service.ts";
import { hasHistory } from "./feed.ts";
import { formatCount, formatName } from "./format.ts";
import { list } from "./plants.ts";
import { token } from "./session.ts";
import { keep, recall, trail } from "./storage.ts";
import { toast } from "./toasts.ts";
import { askUndo } from "./undo.ts";

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

/** Each plant takes two requests, so more would take minutes. A revert previews as many. */
const AT_ONCE_MAX = 10_000;
/** More than the first page of a list. */
const ASKED_ABOVE = 100;
/** Browsers open six connections to a host, and one of them follows the changes. */
const SIMULTANEOUS = 4;

/** A long-running action. `done` is from 0 to 1, undefined if unknown. */
interface Work {
  readonly text: string;
  readonly done?: number;
  readonly stop: () => void;
  readonly pause?: () => void;
  /** Only while it is paused. */
  readonly resume?: () => void;
}

export const work = signal<Work | undefined>(undefined);

/** What a bulk action does to each plant. */
type Task =
  { readonly kind: "delete" } | { readonly kind: "tag"; readonly tag?: string | undefined };

/** A bulk action that waits for an answer. */
interface Asked {
  readonly title: string;
  readonly text: string;
  readonly label: string;
  readonly run: () => void;
}

export const asked = signal<Asked | undefined>(undefined);

/** What the action is called, in questions and in the journal. */
function describeTask(task: Task, count: number): string {
  const plants = formatCount(count, "plant");
  if (task.kind === "delete") return `Delete ${plants}`;
  return task.tag === undefined ? `Remove the tag of ${plants}` : `Tag ${plants} as ${task.tag}`;
}

const doings = { delete: "Deleting", tag: "Changing" } as const;
const outcomes = { delete: "Deleted", tag: "Changed" } as const;

/** A bulk action. */
interface Job {
  readonly task: Task;
  readonly batch: string;
  readonly plants: readonly Plant[];
  /** With those before the last reload. */
  readonly total: number;
  /** The list that the plants were selected in. */
  readonly shown: typeof list.value;
  /** The index of the next plant, and the plants before it that are not settled. */
  next: number;
  readonly open: Set<Plant>;
  /** How many were changed, why others were skipped, and which stay selected. */
  changed: number;
  readonly reasons: string[];
  readonly kept: bigint[];
  isPaused: boolean;
}

type NewJob = Pick<Job, "task" | "batch" | "plants" | "total" | "shown" | "changed">;

const createJob = (given: NewJob): Job => ({
  ...given,
  next: 0,
  open: new Set(),
  reasons: [],
  kept: [],
  isPaused: false,
});

let current: Job | undefined;

const TOO_MANY = `More than ${formatCount(AT_ONCE_MAX)} plants are too many at once. Search or pick a tag.`;

/** Asks first if it concerns more plants than one page shows, or cannot be undone. */
export async function runOnSelected(task: Task): Promise<void> {
  const shown = list.value;
  const stopping = new AbortController();
  const plants: Plant[] = [];
  const whose = describeSelected(shown.filter);
  work.value = { text: "Reading…", stop: () => stopping.abort() };
  try {
    await call(async (client) => {
      for await (const block of readSelected(client, shown.filter, stopping)) {
        plants.push(...block);
        if (plants.length > AT_ONCE_MAX) throw new Explained(TOO_MANY);
      }
    });
  } catch (error) {
    if (!isAbort(error)) toast(`Nothing was done. ${explain(error)}`);
    plants.length = 0;
  }
  work.value = undefined;
  const title = describeTask(task, plants.length);
  const start = (): void => {
    const total = plants.length;
    void runJob(createJob({ task, batch: nameBatch(title), plants, total, shown, changed: 0 }));
  };
  if (plants.length === 0) return;
  const isFinal = !hasHistory.value;
  if (plants.length <= ASKED_ABOVE && !isFinal) return start();
  asked.value = {
    title: `${title}?`,
    text: whose + (isFinal ? " This can't be undone: the store keeps no changes." : ""),
    label: title,
    run: start,
  };
}

/** The selection in words, for a question. */
function describeSelected(filter: ListFilter): string {
  const { isAll } = selection.value;
  if (!isAll) return "These are the plants that you selected.";
  const parts = filterNames.flatMap((name) => {
    const given = filter[name];
    if (given === undefined) return [];
    return name === "tag" ? `have the tag “${given}”` : `match “${given}”`;
  });
  const which = parts.length === 0 ? "plants in the store" : `plants that ${parts.join(" and ")}`;
  const but = picked.value.length === 0 ? "" : `, but ${formatCount(picked.value.length)}`;
  return `These are all ${which}${but}.`;
}

/** Resolves if the plant is as the task wants it. Throws Changed if it is no longer as it was shown. */
async function perform({ task, batch }: Job, plant: Plant): Promise<void> {
  const found = await findPlant(plant.id);
  const wanted = task.kind === "tag" && { ...plant, tag: task.tag };
  if (found === undefined && wanted === false) return list.value.take(plant.id);
  if (found !== undefined && wanted !== false && isSame(found.plant, wanted))
    return list.value.put(wanted);
  if (found === undefined || !isSame(found.plant, plant)) throw await readConflict(plant.id);
  await write(found, wanted, batch);
}

async function write({ plant, etag }: Versioned, wanted: Plant | false, batch: string) {
  if (wanted === false) {
    await removePlant(plant.id, etag, batch);
    list.value.take(plant.id);
  } else list.value.put((await replacePlant(wanted, etag, batch)).plant);
}

/** Skipped plants stay selected, and the list shows their current state. */
async function runJob(job: Job): Promise<void> {
  current = job;
  job.isPaused = false;
  const { plants, open, reasons, kept } = job;
  const runWaiting = async (): Promise<void> => {
    while (job.next < plants.length && !job.isPaused) {
      const plant = plants[job.next++] as Plant;
      open.add(plant);
      report(job);
      try {
        await perform(job, plant);
        job.changed++;
      } catch (error) {
        reasons.push(`${formatName(plant)}: ${explain(error)}`);
        kept.push(plant.id);
        if (!(error instanceof Changed)) stop(job);
        else if (error.current === undefined) list.value.take(plant.id);
        else list.value.put(error.current.plant);
      }
      open.delete(plant);
      report(job);
    }
  };
  await Promise.all(Array.from({ length: SIMULTANEOUS }, runWaiting));
  if (job.isPaused && job.next < plants.length) report(job);
  else finish(job);
}

function report(job: Job): void {
  if (current !== job) return;
  const { task, batch, plants, total, next, open, isPaused } = job;
  const settled = total - (plants.length - next) - open.size;
  const progress = `${formatCount(settled)} of ${formatCount(total)}`;
  const done = settled / total;
  const pause = (): void => {
    job.isPaused = true;
    report(job);
  };
  const resume = (): void => void runJob(job);
  const end = (): void => {
    stop(job);
    finish(job);
  };
  if (!isPaused)
    work.value = { text: `${doings[task.kind]}… ${progress}`, done, pause, stop: () => stop(job) };
  else if (open.size > 0)
    work.value = { text: `Pausing… ${progress}`, done, stop: () => stop(job) };
  else work.value = { text: `Paused: ${nameOfBatch(batch)}, ${progress}`, done, resume, stop: end };
}

/** The rest stays selected. */
function stop(job: Job): void {
  for (const { id } of job.plants.slice(job.next)) job.kept.push(id);
  job.next = job.plants.length;
}

function finish({ task, batch, total, shown, changed, reasons, kept }: Job): void {
  current = undefined;
  work.value = undefined;
  if (token.value === undefined) return;
  shown.selection.value = { isAll: false, ids: new Set(kept) };
  const rest = total - changed;
  const left = rest > 0 ? ` ${formatCount(rest)} skipped. ${reasons[0] ?? ""}` : "";
  toast(
    `${outcomes[task.kind]} ${formatCount(changed, "plant")}.${left}`,
    changed > 0 && hasHistory.value
      ? { label: "Undo", isNeeded: true, run: () => askUndo(batch) }
      : undefined,
  );
}

/** The next user must not see the action, nor continue it. */
export function dropWork(): void {
  work.value?.stop();
  current = work.value = asked.value = undefined;
}

/** A job in the storage of the tab: ids are texts, and the plants that are not settled come first. */
interface KeptJob extends Pick<Job, "task" | "batch" | "total" | "changed"> {
  readonly plants: readonly (readonly [id: string, name: string, tag: string | null])[];
}

addEventListener("pagehide", () => {
  if (current === undefined) return;
  const { task, batch, total, changed, plants, next, open } = current;
  const left = [...open, ...plants.slice(next)].map(
    ({ id, name, tag }) => [String(id), name, tag ?? null] as const,
  );
  const kept: KeptJob = { task, batch, total, changed, plants: left };
  keep("sessionStorage", trail.job, kept);
});

/** After a reload, an action that was running is paused. */
export function resumeWork(): void {
  const kept = recall("sessionStorage", trail.job) as KeptJob | undefined;
  keep("sessionStorage", trail.job, undefined);
  if (kept === undefined) return;
  const plants = kept.plants.map(([id, name, tag]): Plant => ({
    id: BigInt(id),
    name,
    tag: tag ?? undefined,
  }));
  current = createJob({ ...kept, plants, shown: list.value });
  current.isPaused = true;
  report(current);
}
