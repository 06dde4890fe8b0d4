/**
 * What the service does to many plants: a bulk action, or an undo. The page sends jobs, one after the other and all
 * under one name, shows their progress and offers the undo. A job finishes without the page, which follows it again
 * after a reload.
 */

import { effect, signal, untracked } from "@preact/signals";
import type {
  Bulk,
  BulkOptions,
  Client,
  Job as ServiceJob,
  RevertLeft,
  RevertRange,
  Upsert,
} from "../../client/client.ts";
import { sleep } from "../../client/retry.ts";
import { nameBatch } from "../../src/domain/change.ts";
import { pickFilter } from "../../src/domain/filter.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { etagOf } from "../api/etag.ts";
import { readConflict } from "../api/plants.ts";
import { call, explain, isAbort, isReason, isStatus } from "../api/service.ts";
import { en } from "../text/en.ts";
import { fill, plural, pluralInEnglish, t } from "../text/text.ts";
import { gaps, hasHistory } from "./feed.ts";
import { formatCount, formatName } from "./format.ts";
import { whenLeft } from "./person.ts";
import { list } from "./plants.ts";
import { explainError } from "./rules.ts";
import { identity, mayRead, mayWrite, token } from "./session.ts";
import { keep, recall, trail } from "./storage.ts";
import { type Matching, readSubject, type Subject, toBulkFilter } from "./subject.ts";
import { toast } from "./toasts.ts";
import { noteUndos, offerUndo } from "./undo.ts";
import { noteBatch } from "./writes.ts";

/** A long-running action. `done` is from 0 to 1, undefined if unknown. */
export interface Work {
  readonly text: string;
  readonly done?: number | undefined;
  /** What closing the page does to it. */
  readonly note?: string | undefined;
  readonly stop: () => void;
}

/** The action that runs, or an export. */
export const work = signal<Work | undefined>(undefined);

/** What is done to each plant. */
export type Task =
  | { readonly kind: "delete" }
  | { readonly kind: "tag"; readonly tag?: string | undefined }
  /** Without a range, another page started it. */
  | { readonly kind: "undo"; readonly range?: RevertRange };

/** Most outages are over within seconds. A job continues after them. */
const RETRYING = { delaysMs: [300, 900, 3_000] };
/** While the service runs as many jobs as it may, it is asked again this often. */
const FULL_MS = 2_000;
/** Fewer plants are done before a note is read. */
const NOTED_MIN = 100;
/** Up to this many changes arrive over the feed. After more, the list is reloaded. */
const LISTED_MAX = 1_000;
/** Plants changed by others whose current state is read. The feed has the rest. */
const CONFLICTS_MAX = 10;
/** Ids that fit into a URL beside a filter. */
const EXCEPT_CHARACTERS_MAX = 5_000;
/** A body has at most 1 MiB, with this for the rest of each line. */
const BODY_BYTES_MAX = 1_000_000;
const LINE_BYTES_MAX = 150;

/** What every attempt at an action has in common, even after a reload. */
interface Order {
  readonly task: Task;
  /** Its name in the journal. */
  readonly batch: string;
  readonly about: Subject;
  /** Undefined if it is not known. */
  readonly total: number | undefined;
  /** Plants that earlier attempts have changed. */
  readonly changed: number;
}

/** The members change while it runs. */
interface Action extends Order {
  changed: number;
  settled: number;
  skipped: number;
  /** The named plants that no job has settled. */
  rest: readonly Plant[];
  /** The first plants that were left alone, as far as the service names them. */
  readonly left: RevertLeft[];
  isStopping: boolean;
  /** The service has the last job, and finishes without the page. Undefined while that job is sent. */
  isWithService: boolean | undefined;
  /** The service runs as many jobs as it may. */
  isWaiting: boolean;
  readonly stopping: AbortController;
  /** The list that the plants were selected in, and the selection. */
  readonly shown: typeof list.value;
  readonly selected: typeof list.value.selection.value;
}

let current: Action | undefined;

/** The page has not sent all of it: what is left would not be done without the page. */
export const isUnsent = (): boolean => current !== undefined && current.isWithService !== true;

/** What the action is called in questions, and in the journal. */
export function describeTask(task: Task, count: number, { plants } = t, say = plural): string {
  if (task.kind !== "tag") return say(plants.deleteMany, count);
  return task.tag === undefined
    ? say(plants.untagMany, count)
    : say(plants.tagMany, count, { tag: task.tag });
}

export const patchOf = (task: Task) =>
  task.kind === "tag" ? { tag: task.tag ?? null } : undefined;

export const isExcludedByUrl = ({ except }: Matching): boolean =>
  except.join().length <= EXCEPT_CHARACTERS_MAX;

export function startAction(
  task: Task,
  about: Subject,
  total: number | undefined,
  // In English, so that everyone finds the same name in the journal.
  batch = nameBatch(describeTask(task, total ?? 0, en, pluralInEnglish)),
): void {
  noteBatch(batch);
  void run({ task, batch, about, total, changed: 0 });
}

/** `known` is the job that the service has of it. */
async function run(order: Order, known?: ServiceJob, shown = list.value): Promise<void> {
  const action: Action = {
    ...order,
    settled: order.changed,
    skipped: 0,
    rest: order.about.plants,
    left: [],
    isStopping: false,
    isWithService: known && true,
    isWaiting: false,
    stopping: new AbortController(),
    shown,
    selected: shown.selection.peek(),
  };
  current = action;
  report(action);
  let failure: unknown;
  try {
    await call((client) => sendAll(client, action, known));
  } catch (error) {
    failure = error;
  }
  await finish(action, failure, known !== undefined);
}

/** One request: these plants, or what the task and the filter say. */
type Part = readonly Plant[] | "matching" | "range";

async function sendAll(client: Client, action: Action, known?: ServiceJob): Promise<void> {
  const { task, stopping, about, batch } = action;
  const isForeign =
    task.kind !== "undo" && about.plants.length === 0 && about.matching === undefined;
  // Named plants are sent again: the service recognises what is done already.
  if (known !== undefined && (known.kind !== "upsert" || isForeign))
    return follow(action, (options) => client.followJob<Bulk>(batch, options));
  for await (const { part, isLast } of listParts(client, action)) {
    if (action.isStopping) stopping.abort();
    stopping.signal.throwIfAborted();
    action.isWithService = isLast ? undefined : false;
    keepOrder(action);
    report(action);
    await follow(action, (options) => {
      if (part === "range") return client.revert(rangeOf(task), options);
      if (part !== "matching") return client.upsertByJob(listWrites(task, part), options);
      const filter = toBulkFilter(about.matching as Matching);
      const patch = patchOf(task);
      return patch === undefined
        ? client.removeMatching(filter, options)
        : client.patchMatching(filter, patch, options);
    });
    if (typeof part !== "string") action.rest = action.rest.slice(part.length);
  }
}

const rangeOf = (task: Task): RevertRange => (task.kind === "undo" && task.range) || {};

async function* listParts(client: Client, { task, about, stopping }: Action) {
  const { plants, matching } = about;
  const bodies = [...divide(plants)];
  const isRead = matching !== undefined && !isExcludedByUrl(matching);
  const isMore = task.kind === "undo" || matching !== undefined;
  for (const [at, part] of bodies.entries())
    yield { part: part as Part, isLast: !isMore && at === bodies.length - 1 };
  if (task.kind === "undo") yield { part: "range", isLast: true } as const;
  else if (matching !== undefined && !isRead) yield { part: "matching", isLast: true } as const;
  if (!isRead) return;
  // By id: the action itself would move plants in another order.
  const byId = { ...matching, filter: { ...pickFilter(matching.filter), order: "asc" } as const };
  for await (const block of readSubject(client, { plants: [], matching: byId }, stopping))
    for (const part of divide(block)) yield { part: part as Part, isLast: false };
}

/** Into bodies that the service takes. */
function* divide(plants: readonly Plant[]): Generator<readonly Plant[]> {
  let [start, bytes] = [0, 0];
  for (const [at, { name, tag }] of plants.entries()) {
    const size = new Blob([JSON.stringify([name, tag])]).size + LINE_BYTES_MAX;
    if (bytes + size > BODY_BYTES_MAX && at > start) {
      yield plants.slice(start, at);
      [start, bytes] = [at, 0];
    }
    bytes += size;
  }
  if (start < plants.length) yield plants.slice(start);
}

/** Each plant is written only if it is still as it was shown. */
const listWrites = (task: Task, plants: readonly Plant[]): Upsert[] =>
  plants.map((plant) => {
    const ifMatch = etagOf(plant);
    return task.kind === "tag"
      ? { ...plant, tag: task.tag, ifMatch }
      : { id: plant.id, removed: true, ifMatch };
  });

/** What any job counts. */
type Counts = Pick<Bulk, "plants" | "unchanged" | "changedSince" | "refused"> &
  Partial<Record<"replaced" | "removed" | "reverted", number>>;

/** Sends the request of a job, and counts what it does. */
async function follow(
  action: Action,
  send: (options: BulkOptions<Counts> & { readonly batch: string }) => Promise<Counts>,
): Promise<void> {
  const { changed, settled, skipped } = action;
  const note = ({ plants, unchanged, changedSince, refused, ...counts }: Counts): void => {
    const { replaced = 0, removed = 0, reverted = 0 } = counts;
    action.changed = changed + replaced + removed + reverted + unchanged;
    action.settled = settled + plants;
    action.skipped = skipped + changedSince + refused;
    action.isWithService ??= true;
    action.isWaiting = false;
    report(action);
  };
  const { batch, stopping, left } = action;
  const onLeft = (plant: RevertLeft): void => void left.push(plant);
  const { signal: ended } = stopping;
  const options = { ...RETRYING, batch, signal: ended, respondAsync: true, onLeft };
  for (;;)
    try {
      return note(await send({ ...options, onProgress: note }));
    } catch (error) {
      if (!isReason(error, "jobs_full")) throw error;
      action.isWaiting = true;
      report(action);
      await sleep(FULL_MS, ended);
    }
}

function report(action: Action): void {
  if (current !== action) return;
  const { task, total, settled, isStopping, isWaiting } = action;
  const text = isWaiting ? t.plants.waitsForOthers : t.plants.doing[task.kind];
  const progress =
    total === undefined
      ? formatCount(settled)
      : fill(t.plants.progressOf, { count: Math.min(settled, total), total });
  work.value = {
    text: fill(isStopping ? t.plants.stopping : text, { progress }),
    done: total === undefined ? undefined : Math.min(1, settled / total),
    note: describeClosing(action),
    stop: () => void stop(action),
  };
}

function describeClosing(action: Action): string | undefined {
  const { isWithService, isWaiting, total = NOTED_MIN + 1 } = action;
  if (isWaiting) return t.plants.keepOpen;
  if (total <= NOTED_MIN || isWithService === undefined) return undefined;
  return isWithService ? t.plants.continuesAlone : t.plants.keepOpen;
}

async function stop(action: Action): Promise<void> {
  const { batch, stopping, isWithService } = action;
  action.isStopping = true;
  report(action);
  try {
    await call((client) => client.stopJob(batch, RETRYING));
    // The job says itself how far it got. No other one follows.
    if (isWithService === false) stopping.abort();
  } catch (error) {
    if (current !== action) return;
    // It may not have reached the service yet.
    if (isStatus(error, 404)) return stopping.abort();
    action.isStopping = false;
    report(action);
    toast(fill(t.plants.notStopped, { why: explain(error) }));
  }
}

const CHANGED = "precondition_failed";

/** Why the first plant was left alone. The list shows as they are now those that others changed. */
async function explainLeft({ left, about, shown }: Action): Promise<string | undefined> {
  const conflicts = left.filter(({ reason }) => reason === CHANGED).slice(0, CONFLICTS_MAX);
  const said = new Map<bigint, string>();
  for (const { id } of conflicts) {
    const { current: found, message } = await readConflict(id);
    if (found === undefined) shown.take(id);
    else shown.put(found.plant);
    said.set(id, message);
  }
  const [first] = left;
  if (first === undefined) return undefined;
  const known = about.plants.find(({ id }) => id === first.id);
  return fill(t.plants.reason, {
    plant: known === undefined ? String(first.id) : formatName(known),
    why: said.get(first.id) ?? explainError(first.reason, first.message),
  });
}

async function finish(action: Action, failure: unknown, isFollowed: boolean): Promise<void> {
  const { task, batch, left, stopping, shown } = action;
  const isBroken = failure !== undefined;
  const isStopped =
    action.isStopping && (stopping.signal.aborted || isReason(failure, "job_stopped"));
  const reason = await explainLeft(action).catch(() => undefined);
  // Another person may use the page by now.
  if (current !== action) return;
  current = work.value = undefined;
  keep("sessionStorage", trail.job, undefined);
  if (token.value === undefined) return;
  // What was skipped stays selected, and so does what was not reached. A selection that was made since is another one.
  if (
    !isBroken &&
    !isFollowed &&
    task.kind !== "undo" &&
    shown.selection.peek() === action.selected
  )
    shown.selection.value = { isAll: false, ids: new Set(left.map(({ id }) => id)) };
  // The feed brings few changes, if there is one.
  if (!hasHistory.value || (action.total ?? LISTED_MAX + 1) > LISTED_MAX) gaps.value++;
  if (task.kind === "undo" && action.changed > 0) noteUndos([batch]);
  if (isBroken && !isStopped && !isAbort(failure)) return offerRest(action, failure);
  const { changed, skipped } = action;
  const sentences = [
    isStopped && t.plants.stopped,
    plural(t.plants.didMany[task.kind], changed),
    skipped > 0 && fill(t.plants.skipped, { count: skipped }),
    reason,
  ];
  toast(sentences.filter(Boolean).join(" "), offerUndo(batch, changed));
}

/** The service was restarted or refused the rest, or cannot be reached: then it may still be at work. */
function offerRest(action: Action, failure: unknown): void {
  const { task, changed, shown } = action;
  const isLost = isStatus(failure, 0);
  const why = isLost ? t.plants.serviceStopped : explain(failure);
  const done = plural(t.plants.didSoFar[task.kind], changed);
  const again = (): void => void run(toRest(action), undefined, shown);
  const isKnown = task.kind !== "undo" || task.range !== undefined;
  toast(
    `${t.plants.notFinished} ${done} ${why}`,
    isKnown && action.total !== undefined
      ? { label: t.plants.continue, isNeeded: true, run: again }
      : undefined,
  );
}

/** The next user must not see the action, nor continue it. The service finishes what it has. */
whenLeft(() => {
  if (current === undefined) work.value?.stop();
  else current.stopping.abort();
  current = work.value = undefined;
});

/** A job of a filter counts again what it has changed before; one of named plants has the rest of them. */
const toRest = ({ task, batch, about, total, rest, changed }: Action): Order => ({
  task,
  batch,
  about: { ...about, plants: rest },
  total,
  changed: about.plants.length > rest.length ? changed : 0,
});

/** An order in the storage of the tab: ids are texts. */
interface KeptOrder extends Omit<Order, "about"> {
  readonly matching?: Matching | undefined;
  readonly plants: readonly (readonly [id: string, name: string, tag: string | null])[];
}

function keepOrder(action: Action): void {
  const { about, ...order } = toRest(action);
  const plants = about.plants.map(({ id, name, tag }) => [String(id), name, tag ?? null] as const);
  const kept: KeptOrder = { ...order, matching: about.matching, plants };
  keep("sessionStorage", trail.job, kept);
}

function readOrder({ matching, plants, ...order }: KeptOrder): Order {
  const named = plants.map(([id, name, tag]) => ({ id: BigInt(id), name, tag: tag ?? undefined }));
  return { ...order, about: { plants: named, matching } };
}

const kinds = { change: "tag", remove: "delete", revert: "undo", upsert: "tag" } as const;

/** After a reload: the action that this tab started, or another one that runs by the same token. */
async function resumeWork(): Promise<void> {
  const kept = recall("sessionStorage", trail.job) as KeptOrder | undefined;
  if (token.value === undefined || current !== undefined || !mayRead.value || !mayWrite.value)
    return;
  let jobs: readonly ServiceJob[];
  try {
    jobs = await call((client) => client.listJobs(RETRYING));
  } catch {
    return;
  }
  if (current !== undefined) return;
  // A page that was closed at once may not have sent it.
  if (kept !== undefined) {
    const known = jobs.find(({ batch }) => batch === kept.batch);
    return run(readOrder(kept), known);
  }
  const own = jobs.find(({ state, by }) => state === "running" && by === identity.value?.name);
  if (own === undefined) return;
  const { batch, kind } = own;
  const order = { task: { kind: kinds[kind] }, batch, about: { plants: [] }, total: undefined };
  await run({ ...order, changed: 0 }, own);
}

export const startWork = (): void =>
  void effect(() => {
    if (identity.value !== undefined) untracked(() => void resumeWork());
  });
