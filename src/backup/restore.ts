/** Rebuilds a store from a place: the furthest state that its pieces prove, and what of it is missing. */

import { chmodSync, copyFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { changeStore, createStore, digestState, startTimeline, verifyStore } from "./copy.ts";
import type { RestoreTask } from "./tasks.ts";
import { nameNote, type Note, parseNote, type Timeline } from "./names.ts";
import { GoneError, openPlace, type Place } from "./place.ts";
import { endOf, NEWEST, type Plan, type Step } from "./plan.ts";
import { moveCursors, readBlocks, ReplayError, replaySegment, withoutTriggers } from "./log.ts";
import {
  type Damage,
  type FoundStore,
  type KnownHistory,
  listStores,
  type Point,
  readPoint,
  Survey,
} from "./survey.ts";
import { runOnThread } from "./thread.ts";

export type Restored = ReturnType<typeof verifyStore> & {
  /** The copy it began with. */
  readonly copy: string;
  readonly store: string;
  readonly timeline: number;
  readonly changes: number;
  readonly reached: Point;
  /** What could not be restored, in words; empty if nothing is missing. */
  readonly missing: readonly string[];
  readonly damage: readonly Damage[];
};

/** Makes a new store of the backups in a place. */
export const restoreStore = (
  task: Omit<RestoreTask, "kind" | "to">,
  to: string,
  signal: AbortSignal,
): Promise<Restored & { readonly path: string }> =>
  createStore(to, (staged) =>
    runOnThread<Restored>({ ...task, kind: "restore", to: staged }, signal),
  );

const LISTINGS_MAX = 5;

/** A running service renames a segment when it closes it: then the place is listed again. */
export async function relisting<Result>(
  attempt: () => Promise<Result>,
  left = LISTINGS_MAX,
): Promise<Result> {
  try {
    return await attempt();
  } catch (error) {
    const isGone = error instanceof GoneError || (error as NodeJS.ErrnoException).code === "ENOENT";
    if (!isGone || left === 1) throw error;
    return relisting(attempt, left - 1);
  }
}

export const restoreFromPlace = (task: RestoreTask): Promise<Restored> =>
  relisting(() => restoreOnce(task));

async function restoreOnce(task: RestoreTask): Promise<Restored> {
  const place = await openPlace(task.place, resolve(task.to, ".."));
  try {
    const found = await chooseStore(place, task);
    const survey = new Survey(place, found.pieces);
    const note = parseNote(await place.readNote(nameNote(found.store)));
    const known = await survey.findHistory(note, task.timeline);
    const { history } = known;
    const target = await findTarget(place, survey, history, task);
    await survey.readUnnamed();
    if (task.isIncomplete !== true) refuseCutList(place, survey, history, target, note);
    const built = await rebuild(place, survey, history, target, task.to, task.atMs);
    changeStore(task.to, (db) => startTimeline(db, survey.newestTimeline, history));
    const { plan, changes, reached } = built;
    const missing = await describeMissing(survey, known, target, plan, note);
    return {
      ...verifyStore(task.to, "The restored store"),
      copy: describePiece(place, plan.copy),
      store: found.store,
      timeline: history.at(-1)?.number ?? 0,
      changes,
      reached,
      missing,
      damage: survey.listDamage(),
    };
  } finally {
    place.close();
  }
}

export const describePiece = (place: Place, { name }: { readonly name: string }): string =>
  place.url.includes("://") ? `${place.url.replace(/\/$/, "")}/${name}` : join(place.url, name);

export async function chooseStore(
  place: Place,
  { label, store }: { readonly label: string; readonly store?: string | undefined },
): Promise<FoundStore> {
  const found = await listStores(place);
  const wanted =
    store === undefined
      ? // Backups of version 1.0 are the same store's, from before its identity.
        preferNew(found.length === 1 ? found : narrow(found, label))
      : found.filter((one) => one.store === store);
  if (found.length === 0)
    throw new StoreOpenError(`${place.url} holds no backup of plantstore serve --backup-to.`);
  if (wanted.length === 1 && wanted[0] !== undefined) return wanted[0];
  const names = found.map((one) => `${one.store} (${one.label})`).join(", ");
  throw new StoreOpenError(
    store === undefined
      ? `${place.url} holds backups of several stores: ${names}. Choose one with --store.`
      : `${place.url} holds no backup of store ${store}, but of ${names}.`,
  );
}

function narrow(found: readonly FoundStore[], label: string): readonly FoundStore[] {
  const named = found.filter((one) => one.label === label);
  return named.length > 0 ? named : found;
}

/** If two have one name, a store with an identity comes before backups of version 1.0. */
function preferNew(found: readonly FoundStore[]): readonly FoundStore[] {
  const isOneName = new Set(found.map(({ label }) => label)).size === 1;
  const identified = found.filter(({ store, label }) => store !== label);
  return isOneName && identified.length > 0 ? identified : found;
}

/** The unit of the times in names. */
const SECOND_MS = 1_000;

/** The change that a time stands for. The clock may have been set meanwhile; then the person decides. */
async function findTarget(
  place: Place,
  survey: Survey,
  history: readonly Timeline[],
  { change, atMs }: RestoreTask,
): Promise<number> {
  if (atMs === undefined) return change ?? NEWEST;
  await survey.readUnnamed();
  let [firstLater, lastInTime] = [NEWEST, 0];
  const note = (first: number, last: number, madeAtMs: number): void => {
    if (madeAtMs > atMs) firstLater = Math.min(firstLater, first);
    else lastInTime = Math.max(lastInTime, last);
  };
  for (const { segment, until } of survey.listOnHistory(history)) {
    const { after = 0, last, span } = segment;
    if (last === after || until <= after) continue;
    // Most names tell on which side of the time all changes are. Only what may have both is read.
    const isInTime = span !== undefined && span.toMs + SECOND_MS <= atMs;
    const isNamed = last !== undefined && (isInTime || (span?.fromMs ?? 0) > atMs);
    if (isNamed) note(after + 1, Math.min(last, until), isInTime ? atMs : NEWEST);
    else
      for (const block of readBlocks(await place.fetch(segment.name), segment))
        if (block.first <= until) note(block.first, Math.min(block.last, until), block.at);
  }
  // Without a journal there are only copies.
  if (firstLater === NEWEST && lastInTime === 0)
    for (const { change: last, atMs: madeAtMs } of survey.know().copies) note(last, last, madeAtMs);
  if (lastInTime > firstLater)
    throw new StoreOpenError(
      `The clock was set during this time, so --at can mean two states: --at-change ${firstLater - 1}, before the first change with a later time, or --at-change ${lastInTime}, after the last change with an earlier one.`,
    );
  return firstLater === NEWEST ? NEWEST : firstLater - 1;
}

interface Rebuilt {
  readonly plan: Plan;
  readonly changes: number;
  readonly reached: Point;
}

/** Copies and replays. A segment that does not fit is left out, and the next best plan is tried. */
export async function rebuild(
  place: Place,
  survey: Survey,
  history: readonly Timeline[],
  target: number,
  to: string,
  untilMs = Number.POSITIVE_INFINITY,
): Promise<Rebuilt> {
  for (;;) {
    const plan = await survey.plan(history, target);
    if (plan === undefined) throw noneOldEnough(place, survey, history, target);
    const { cursors = {} } = parseNote(await place.readNote(nameNote(plan.copy.store)));
    copyFileSync(await place.fetch(plan.copy.name), to);
    chmodSync(to, 0o600);
    const files = new Map<string, string>();
    for (const { segment } of plan.steps) files.set(segment.name, await place.fetch(segment.name));
    const fileOf = ({ segment }: Step) => files.get(segment.name) as string;
    try {
      const replayed = changeStore(to, (db) => {
        const start = readPoint(db);
        let [reached, changes] = [start, 0];
        const bounds = { isBounded: target !== NEWEST, untilMs };
        withoutTriggers(db, () => {
          for (const step of plan.steps)
            try {
              const done = replaySegment(db, fileOf(step), step, reached.change, bounds);
              changes += done.changes;
              reached = { change: done.reached, atMs: done.atMs ?? reached.atMs };
            } catch (error) {
              if (!(error instanceof ReplayError)) throw error;
              survey.distrust(step.segment, error.reached, error.message);
              throw error;
            }
          moveCursors(db, cursors, reached.change);
        });
        return { changes, reached };
      });
      return { plan, ...replayed };
    } catch (error) {
      if (!(error instanceof ReplayError)) throw error;
      rmSync(`${to}-journal`, { force: true });
    }
  }
}

function noneOldEnough(
  place: Place,
  survey: Survey,
  history: readonly Timeline[],
  target: number,
): StoreOpenError {
  const [first] = survey.reachable(history);
  if (first !== undefined)
    return new StoreOpenError(
      `No backup in ${place.url} is old enough for change ${target}. The oldest change that can be restored is ${first.after}.`,
    );
  const faults = survey
    .listDamage()
    .map(({ name, faults: [fault] }) => `\n  ${name}: ${fault}`)
    .join("");
  return new StoreOpenError(`No copy in ${place.url} is whole.${faults}`);
}

/** The change that the writer noted as the last one in the place, as far as it belongs to the history. */
function findNoted(note: Note, history: readonly Timeline[]): number | undefined {
  const { shipped } = note;
  const index = history.findIndex(({ id }) => id === shipped?.timelines.at(-1)?.id);
  if (shipped === undefined || index === -1) return undefined;
  return Math.min(shipped.change, endOf(history, index));
}

/** Never silently less than what the place held. */
export async function describeMissing(
  survey: Survey,
  { history, unreadable }: KnownHistory,
  target: number,
  plan: Plan | undefined,
  note: Note,
): Promise<readonly string[]> {
  const lost =
    plan === undefined ? "No copy is whole." : await findLost(survey, history, target, plan, note);
  const timelines = unreadable.map(
    (number) => `Timeline ${number}: none of its pieces can be read.`,
  );
  return [...timelines, ...(lost === undefined ? [] : [lost])];
}

async function findLost(
  survey: Survey,
  history: readonly Timeline[],
  target: number,
  { reached, copy }: Plan,
  note: Note,
): Promise<string | undefined> {
  const noted = findNoted(note, history);
  const furthest = Math.max(survey.furthest(history), noted ?? 0);
  if (reached < Math.min(target, furthest))
    return `Changes ${reached + 1} to ${Math.min(target, furthest)}.`;
  if (target !== NEWEST)
    return furthest < target
      ? `The backups end at change ${furthest}, before change ${target}.`
      : undefined;
  const isCurrent = noted !== undefined && note.shipped?.timelines.length === history.length;
  const serial = isCurrent ? (note.shipped?.serial ?? 0) : copy.serial;
  const unknown = await survey.findUnknownEnd(history, serial);
  if (unknown !== undefined) return `The end of ${unknown.name}, after change ${reached}.`;
  // Backups of version 1.0 have no note.
  return note.shipped !== undefined || copy.digest === undefined
    ? undefined
    : `Changes after ${reached}, if there were any: the note of the writer does not tell.`;
}

/** A list may end early, as that of an object store that lags. Then an older state would pass for the newest. */
function refuseCutList(
  place: Place,
  survey: Survey,
  history: readonly Timeline[],
  target: number,
  note: Note,
): void {
  const noted = findNoted(note, history) ?? 0;
  const listed = survey.furthest(history);
  const isCut = note.shipped?.isCovered === true && listed < Math.min(target, noted);
  if (!isCut || survey.hasUnknownEnd) return;
  throw new StoreOpenError(
    `The list of ${place.url} ends at change ${listed}, and its writer noted change ${noted}. Try again later; --incomplete restores what is listed.`,
  );
}

/** Restores, and then again without the copy that it began with, if another leads there: the plants must be the same. */
export async function rebuildTwice<Facts>(
  place: Place,
  survey: Survey,
  history: readonly Timeline[],
  target: number,
  scratch: string,
  inspect: () => Facts,
) {
  const built = await rebuild(place, survey, history, target, scratch);
  const digest = digestState(scratch);
  const facts = inspect();
  // Two copies of a bucket need not be on the disk at once, beside what was restored.
  place.release();
  const { copy } = built.plan;
  const older = new Survey(
    place,
    [...survey.copies, ...survey.segments].filter(({ name }) => name !== copy.name),
  );
  const { change } = built.reached;
  if ((await older.plan(history, change))?.reached === change) {
    await rebuild(place, older, history, change, scratch);
    if (digestState(scratch) !== digest)
      throw new StoreOpenError(
        `${describePiece(place, copy)} differs from the copy before it with its changes.`,
      );
  }
  const damage = [...survey.listDamage(), ...older.listDamage()];
  const byName = new Map(damage.map((one) => [one.name, one]));
  return { ...built, facts, damage: [...byName.values()] };
}
