/** The selected plants, and bulk actions on them: set the tag, delete, and undo. */

import { computed, signal } from "@preact/signals";
import type {
  Bulk,
  BulkFilter,
  Client,
  Job as ServiceJob,
  RevertLeft,
  Upsert,
} from "../../client/client.ts";
import { nameBatch } from "../../src/domain/change.ts";
import { filterNames, narrows, pickFilter } from "../../src/domain/filter.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { etagOf } from "../api/etag.ts";
import { readConflict, type TimedPlant } from "../api/plants.ts";
import { call, explain, isAbort, isReason, isStatus } from "../api/service.ts";
import { en } from "../text/en.ts";
import { fill, join, plural, pluralInEnglish, t } from "../text/text.ts";
import { arrived, gaps, hasHistory } from "./feed.ts";
import { formatCount, formatName, quote } from "./format.ts";
import { list } from "./plants.ts";
import { sortAll } from "./plant-list.ts";
import {
  capture,
  keepUnchanged,
  type Matching,
  OpenQuestion,
  Question,
  type Selection,
  type Subject,
  withoutTime,
} from "./question.ts";
import { route } from "./route.ts";
import { explainError } from "./rules.ts";
import { identity, mayRead, mayWrite, token } from "./session.ts";
import { keep, recall, trail } from "./storage.ts";
import { toast } from "./toasts.ts";
import { askUndo } from "./undo.ts";
import { noteBatch } from "./writes.ts";

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

/** The next one that is selected is the end of a range: a finger has no Shift. */
export const isRangeNext = signal(false);

/** With `isShift`, also every plant between this one and the one selected before. */
export function select(index: number, isShift: boolean): void {
  const isRange = isShift || isRangeNext.value;
  isRangeNext.value = false;
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

const everyPlant: Selection = { isAll: true, ids: new Set() };

export const captureSelected = (): Subject => capture(selection.value, list.value);
/** All that match, if none is selected. */
export const captureListed = (): Subject =>
  capture(hasSelection.value ? selection.value : everyPlant, list.value);

/** In the order of the list. */
export async function* readSubject(
  client: Client,
  { plants: named, matching }: Subject,
  { signal: signalOff }: { readonly signal: AbortSignal },
): AsyncGenerator<readonly Plant[], void> {
  if (named.length > 0) yield named;
  if (matching === undefined) return;
  const { filter } = matching;
  const { sort, order } = filter;
  const except = new Set(matching.except.map(BigInt));
  const query = {
    ...pickFilter(filter),
    order: sort === undefined ? order : undefined,
    include: sort === "changed" ? sort : undefined,
  };
  const plants: TimedPlant[] = [];
  for await (const block of client.exportBlocks(query, { signal: signalOff })) {
    const found = block.filter(({ id }) => !except.has(id));
    if (sort === undefined) yield found;
    else plants.push(...found);
  }
  // Sorted here: each sorted page makes the service scan the whole store.
  const sorted = sortAll(filter, plants);
  for (let at = 0; at < sorted.length; at += BLOCK_LENGTH)
    yield sorted.slice(at, at + BLOCK_LENGTH).map(withoutTime);
}

/** Plants of a sorted list that are written to a file at once. */
const BLOCK_LENGTH = 10_000;
/**
 * The rule for questions: what cannot be undone asks, and so does the deletion of several plants, and a tag for more
 * than the first page of a list.
 */
const isAsked = (task: Task, count: number): boolean =>
  !hasHistory.value || count > (task.kind === "delete" ? 1 : BODY_ABOVE);
/** More plants are sent as one job. */
const BODY_ABOVE = 100;
/** Plants changed by others whose current state is read. The feed has the rest. */
const CONFLICTS_MAX = 10;
/** After a job with more plants the list is reloaded instead. */
const LISTED_MAX = 1_000;
/** Stay selected after a job of all plants that match. */
const KEPT_MAX = 1_000;
/** Most outages are over within seconds. A job continues after them. */
const RETRYING = { delaysMs: [300, 900, 3_000] };
/** Ids that fit into a URL beside a filter. */
const EXCEPT_CHARACTERS_MAX = 5_000;
/** Plants that fit into a body of 1 MiB, with this for the rest of each line. */
const BODY_BYTES_MAX = 1_000_000;
const LINE_BYTES_MAX = 150;

/** A long-running action. `done` is from 0 to 1, undefined if unknown. */
interface Work {
  readonly text: string;
  readonly done?: number | undefined;
  /** What closing the page does to it. */
  readonly note?: string | undefined;
  readonly stop: () => void;
}

export const work = signal<Work | undefined>(undefined);

/** What a bulk action does to each plant. */
type Task =
  | { readonly kind: "delete" | "undo" }
  | { readonly kind: "tag"; readonly tag?: string | undefined };

/** A bulk action that waits for its count, and then for an answer. */
class BulkQuestion extends Question<Subject, number> {
  readonly task: Task;

  constructor(task: Task) {
    super(captureSelected(), {
      look: (about, ended) => countPlants(task, about, ended),
      after: keepUnchanged,
      onFound: (count, isFirst) => {
        if (count === 0) asked.end(this);
        else if (isFirst && !isAsked(task, count)) startAsked(this);
      },
      onFailure: (error) => {
        asked.end(this);
        toast(fill(t.plants.nothingDone, { why: explain(error) }));
      },
    });
    this.task = task;
  }

  /** The store keeps no changes. */
  get isFinal(): boolean {
    return !hasHistory.value;
  }
}

/** What a question about selected plants depends on. */
export const selectionPlace = () => [route.value, token.value, list.value, selection.value];

export const asked = new OpenQuestion<BulkQuestion>(selectionPlace, arrived);

export const counting = computed((): Work | undefined =>
  asked.value === undefined || asked.value.found.value !== undefined
    ? undefined
    : { text: t.shared.counting, stop: () => asked.end() },
);

export function askAboutSelected(task: Task): void {
  const question = new BulkQuestion(task);
  asked.ask(question);
  void question.look();
}

/** What the action is called in questions, and in the journal. */
export function describeTask(task: Task, count: number, { plants } = t, say = plural): string {
  if (task.kind !== "tag") return say(plants.deleteMany, count);
  return task.tag === undefined
    ? say(plants.untagMany, count)
    : say(plants.tagMany, count, { tag: task.tag });
}

/** What every attempt at a bulk action has in common, even after a reload. */
interface Order {
  readonly task: Task;
  readonly batch: string;
  /** Undefined if another page started it. */
  readonly total: number | undefined;
  /** The service finds the plants, or gets them at once, and finishes without the page; or the page sends them. */
  readonly by: "filter" | "body" | "page";
  readonly matching?: Matching | undefined;
}

const toBulkFilter = ({ filter, except }: Matching): BulkFilter => ({
  ...pickFilter(filter),
  ...(narrows(filter) ? {} : { all: true }),
  except: except.map(BigInt),
});

/** A bulk action that runs. */
interface Job extends Order {
  /** The service has it already. */
  readonly isFollowed: boolean;
  isStopping: boolean;
  /** The list that the plants were selected in. */
  readonly shown: typeof list.value;
  readonly stopping: AbortController;
  /** Plants that were sent, or will be, and have no result. */
  readonly open: Map<bigint, Plant>;
  settled: number;
  changed: number;
  /** Why others were skipped, and which stay selected. */
  skipped: number;
  readonly reasons: string[];
  readonly kept: bigint[];
}

const createJob = (
  order: Order,
  plants: Iterable<Plant> = [],
  { isFollowed = false, changed = 0, shown = list.value } = {},
): Job => ({
  ...order,
  isFollowed,
  isStopping: false,
  shown,
  stopping: new AbortController(),
  open: new Map(Array.from(plants, (plant) => [plant.id, plant])),
  settled: changed,
  changed,
  skipped: 0,
  reasons: [],
  kept: [],
});

let current: Job | undefined;

const patchOf = (task: Task) => (task.kind === "tag" ? { tag: task.tag ?? null } : undefined);

const isByFilter = ({ except }: Matching): boolean => except.join().length <= EXCEPT_CHARACTERS_MAX;

/** By id: the action itself would move plants in another order. */
const orderById = ({ matching, plants }: Subject): Subject => ({
  plants,
  matching: matching && { ...matching, filter: { ...pickFilter(matching.filter), order: "asc" } },
});

function countPlants(task: Task, about: Subject, ended: AbortSignal): Promise<number> | number {
  const { plants, matching } = about;
  if (matching === undefined) return plants.length;
  return call(async (client) => {
    const options = { signal: ended };
    let count = 0;
    if (!isByFilter(matching)) {
      for await (const block of readSubject(client, about, options)) count += block.length;
      return count;
    }
    const patch = patchOf(task);
    const filter = toBulkFilter(matching);
    const preview = await (patch === undefined
      ? client.previewRemoval(filter, options)
      : client.previewPatch(filter, patch, options));
    return preview.plants + plants.length;
  });
}

/** The work is on what was asked about. The selection is not read again. */
export function startAsked(question: BulkQuestion): void {
  if (asked.value !== question) return;
  const { task, about, found } = question;
  const { plants, matching } = about;
  const total = found.value ?? 0;
  asked.end(question);
  const isByBody = matching === undefined && total > BODY_ABOVE && fitsBody(plants, task);
  const order: Order = {
    task,
    // In English, so that everyone finds the same name in the journal.
    batch: nameBatch(describeTask(task, total, en, pluralInEnglish)),
    total,
    by: matching && isByFilter(matching) ? "filter" : isByBody ? "body" : "page",
    matching,
  };
  noteBatch(order.batch);
  const isRead = matching !== undefined && order.by === "page";
  void runJob(createJob(order, isRead ? [] : plants), isRead ? about : undefined);
}

function fitsBody(plants: readonly Plant[], task: Task): boolean {
  const texts = plants.map(({ name, tag }) => [name, task.kind === "tag" ? task.tag : tag]);
  const { size } = new Blob([JSON.stringify(texts)]);
  return size + plants.length * LINE_BYTES_MAX <= BODY_BYTES_MAX;
}

/** In words, for a question. */
export function describeSubject({ matching }: Subject): string {
  if (matching === undefined) return t.plants.theseSelected;
  const { filter, excepted } = matching;
  const parts = filterNames.flatMap((name) => {
    const value = filter[name];
    if (value === undefined || !narrows({ [name]: value })) return [];
    if (typeof value === "boolean") return t.plants.thatTagged[`${value}`];
    const text = name === "tag" ? t.plants.thatHaveTag : t.plants.thatMatch;
    return fill(text, { value: quote(value) });
  });
  if (parts.length === 0)
    return excepted === 0 ? t.plants.theseAll : fill(t.plants.theseAllBut, { excepted });
  const what = join(parts);
  return excepted === 0
    ? fill(t.plants.theseThat, { what })
    : fill(t.plants.theseThatBut, { what, excepted });
}

/** `about` is read by the page, if neither the service finds the plants nor the job has them. */
async function runJob(job: Job, about?: Subject): Promise<void> {
  current = job;
  const { open, stopping, by } = job;
  report(job);
  let failure: unknown;
  try {
    await call(async (client) => {
      if (by !== "page") return runByService(client, job);
      if (about === undefined) return writePlants(client, job);
      for await (const block of readSubject(client, orderById(about), stopping)) {
        for (const plant of block) open.set(plant.id, plant);
        await writePlants(client, job);
      }
      return undefined;
    });
  } catch (error) {
    failure = error;
  }
  finish(job, failure);
}

async function runByService(client: Client, job: Job): Promise<void> {
  const { task, batch, total, by, matching, isFollowed, stopping, reasons, kept, open } = job;
  if (total !== undefined)
    keep("sessionStorage", trail.job, { task, batch, total, by, matching, plants: listOpen(job) });
  // The plant that is listed for its id.
  if (matching !== undefined && open.size > 0) await writePlants(client, job);
  const before = { changed: job.changed, settled: job.settled, skipped: job.skipped };
  const note = ({ plants, unchanged, changedSince, refused, ...counts }: AnyCounts): void => {
    const { replaced = 0, removed = 0, reverted = 0 } = counts;
    job.changed = before.changed + replaced + removed + reverted + unchanged;
    job.settled = before.settled + plants;
    job.skipped = before.skipped + changedSince + refused;
    report(job);
  };
  const patch = patchOf(task);
  const options = {
    ...RETRYING,
    batch,
    signal: stopping.signal,
    respondAsync: true,
    onProgress: note,
    onLeft: ({ id, reason, message }: RevertLeft): void => {
      if (kept.length < KEPT_MAX) kept.push(id);
      if (reasons.length === 0)
        reasons.push(
          fill(t.plants.reason, {
            plant: String(id),
            why: reason === CHANGED ? t.plants.wrote.changed.someone : message,
          }),
        );
    },
  };
  if (isFollowed) note(await client.followJob<Bulk>(batch, options));
  else if (matching === undefined) note(await client.upsertByJob(listWrites(job), options));
  else if (patch === undefined) note(await client.removeMatching(toBulkFilter(matching), options));
  else note(await client.patchMatching(toBulkFilter(matching), patch, options));
  open.clear();
}

type AnyCounts = Pick<Bulk, "plants" | "unchanged" | "changedSince" | "refused"> &
  Partial<Record<"replaced" | "removed" | "reverted", number>>;

const CHANGED = "precondition_failed";

/** Each plant is written only if it is still as it was shown. */
const listWrites = ({ task, open }: Job): Upsert[] =>
  Array.from(open.values(), (plant) => {
    const ifMatch = etagOf(plant);
    return task.kind === "tag"
      ? { ...plant, tag: task.tag, ifMatch }
      : { id: plant.id, removed: true, ifMatch };
  });

async function writePlants(client: Client, job: Job): Promise<void> {
  const { batch, open, stopping, shown } = job;
  const options = { ...RETRYING, batch, signal: stopping.signal };
  const isListed = (job.total ?? 0) <= LISTED_MAX;
  let conflicts = 0;
  for await (const { plant, outcome } of client.upsertAll(listWrites(job), options)) {
    const { id } = plant;
    const sent = open.get(id) as Plant;
    open.delete(id);
    job.settled++;
    if (typeof outcome === "string") {
      job.changed++;
      if (plant.removed === true && isListed) shown.take(id);
      else if (plant.removed !== true && isListed)
        shown.put({ id, name: plant.name, tag: plant.tag });
    } else {
      job.skipped++;
      job.kept.push(id);
      const isTold = outcome.reason === CHANGED && ++conflicts <= CONFLICTS_MAX;
      const why = isTold
        ? await showCurrent(id, shown)
        : explainError(outcome.reason, outcome.message);
      if (job.reasons.length === 0)
        job.reasons.push(fill(t.plants.reason, { plant: formatName(sent), why }));
    }
    if (isListed || job.settled % LISTED_MAX === 0) report(job);
  }
}

/** The list shows the plant as it is now. Resolves to what happened to it. */
async function showCurrent(id: bigint, shown: typeof list.value): Promise<string> {
  const { current: found, message } = await readConflict(id);
  if (found === undefined) shown.take(id);
  else shown.put(found.plant);
  return message;
}

function report(job: Job): void {
  if (current !== job) return;
  const { task, total, settled, isStopping } = job;
  const progress =
    total === undefined
      ? formatCount(settled)
      : fill(t.plants.progressOf, { count: Math.min(settled, total), total });
  work.value = {
    text: fill(isStopping ? t.plants.stopping : t.plants.doing[task.kind], { progress }),
    done: total === undefined ? undefined : Math.min(1, settled / total),
    note: describeClosing(job),
    stop: () => void stopJob(job),
  };
}

function describeClosing({ by, total = 0 }: Job): string | undefined {
  if (by !== "page") return t.plants.continuesAlone;
  // Fewer are done before this is read.
  return total > BODY_ABOVE ? t.plants.keepOpen : undefined;
}

async function stopJob(job: Job): Promise<void> {
  const { batch, by, stopping } = job;
  job.isStopping = true;
  report(job);
  if (by === "page") return stopping.abort();
  try {
    await call((client) => client.stopJob(batch, RETRYING));
  } catch (error) {
    if (current !== job) return;
    // It may not have reached the service yet.
    if (isStatus(error, 404)) return stopping.abort();
    job.isStopping = false;
    report(job);
    toast(fill(t.plants.notStopped, { why: explain(error) }));
  }
}

/** What was skipped or not reached stays selected. */
function finish(job: Job, failure: unknown): void {
  const { batch, by, shown, reasons, kept, open, stopping, isStopping, isFollowed } = job;
  const isByPage = by === "page";
  current = undefined;
  work.value = undefined;
  if (!isByPage) keep("sessionStorage", trail.job, undefined);
  if (token.value === undefined) return;
  const isBroken = failure !== undefined;
  const isStopped = isStopping && (stopping.signal.aborted || isReason(failure, "job_stopped"));
  if (isByPage || !(isBroken || isFollowed))
    shown.selection.value = { isAll: false, ids: new Set([...kept, ...open.keys()]) };
  // The feed brings few changes, if there is one.
  if (!hasHistory.value || (job.total ?? LISTED_MAX + 1) > LISTED_MAX) gaps.value++;
  if (!isByPage && isBroken && !isStopped) return offerRest(job, failure);
  if (isBroken && !isAbort(failure) && !isStopped) reasons.unshift(explain(failure));
  const rest = isByPage ? (job.total ?? 0) - job.changed : job.skipped;
  const sentences = [
    isStopped && t.plants.stopped,
    plural(t.plants.didMany[job.task.kind], job.changed),
    rest > 0 && fill(t.plants.skipped, { count: rest }),
    reasons[0],
  ];
  toast(
    sentences.filter(Boolean).join(" "),
    job.changed > 0 && hasHistory.value
      ? { label: t.shared.undo, isNeeded: true, run: () => askUndo(batch) }
      : undefined,
  );
}

/** The service was restarted or refused the rest, or cannot be reached: then it may still be at work. */
function offerRest(job: Job, failure: unknown): void {
  const { task, batch, total, by, matching, open, shown } = job;
  const again = (): void =>
    void runJob(createJob({ task, batch, total, by, matching }, open.values(), { shown }));
  const isLost = isStatus(failure, 0);
  const why = isLost ? t.plants.serviceStopped : explain(failure);
  const done = plural(t.plants.didSoFar[task.kind], job.changed);
  toast(
    `${t.plants.notFinished} ${done} ${why}`,
    total === undefined
      ? undefined
      : {
          label: t.plants.continue,
          isNeeded: true,
          run: again,
        },
  );
}

/** The next user must not see the action, nor continue it. The service finishes what it has. */
export function dropWork(): void {
  if (current === undefined || current.by === "page") work.value?.stop();
  else current.stopping.abort();
  current = work.value = undefined;
}

/** A job in the storage of the tab: ids are texts. */
interface KeptJob extends Order {
  readonly changed?: number;
  readonly plants?: readonly (readonly [id: string, name: string, tag: string | null])[];
}

const listOpen = ({ open }: Job): KeptJob["plants"] & {} =>
  Array.from(open.values(), ({ id, name, tag }) => [String(id), name, tag ?? null]);

addEventListener("pagehide", () => {
  if (current?.by !== "page" || current.open.size === 0) return;
  const { task, batch, total, by, changed } = current;
  keep("sessionStorage", trail.job, { task, batch, total, by, changed, plants: listOpen(current) });
});

/** After a reload, the page continues what it was doing, or follows what the service is doing. */
export function resumeWork(): void {
  const kept = recall("sessionStorage", trail.job) as KeptJob | undefined;
  keep("sessionStorage", trail.job, undefined);
  if (token.value === undefined || current !== undefined) return;
  if (kept?.by !== "page") return void followService(kept);
  void runJob(createKept(kept));
}

function createKept({ plants = [], changed = 0, ...order }: KeptJob, isFollowed = false): Job {
  const open = plants.map(([id, name, tag]) => ({ id: BigInt(id), name, tag: tag ?? undefined }));
  return createJob(order, open, { isFollowed, changed });
}

const kinds = { change: "tag", remove: "delete", revert: "undo", upsert: "tag" } as const;

/** Shows the job that this tab started, or another one that runs by the same token. */
async function followService(kept: KeptJob | undefined): Promise<void> {
  if (!mayRead.value || !mayWrite.value) return;
  let jobs: readonly ServiceJob[];
  try {
    jobs = await call((client) => client.listJobs(RETRYING));
  } catch {
    if (kept !== undefined) keep("sessionStorage", trail.job, kept);
    return;
  }
  if (current !== undefined) return;
  // A page that was closed at once may not have sent it.
  if (kept !== undefined)
    return runJob(
      createKept(
        kept,
        jobs.some(({ batch }) => batch === kept.batch),
      ),
    );
  const own = jobs.find(({ state, by }) => state === "running" && by === identity.value?.name);
  if (own === undefined) return;
  const task = { kind: kinds[own.kind] };
  const order = { task, batch: own.batch, total: undefined, by: "body" } as const;
  await runJob(createJob(order, [], { isFollowed: true }));
}

addEventListener("beforeunload", (event) => {
  // Leaving the page would end a job whose plants the page names.
  if (current?.by === "page") event.preventDefault();
});
