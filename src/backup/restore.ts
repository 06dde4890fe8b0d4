/** Rebuilds a store from a place: the furthest state that its pieces prove, and what of it is missing. */

import { chmodSync, copyFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { changeStore, startTimeline, verifyStore } from "./copy.ts";
import { nameNote, parseNote } from "./names.ts";
import { type Place, withPlace } from "./place.ts";
import { endOf, NEWEST, type Plan, type Step } from "./plan.ts";
import { moveCursors, readBlocks, ReplayError, replaySegment, withoutTriggers } from "./log.ts";
import {
  type Damage,
  type FoundStore,
  listStores,
  type Point,
  readPoint,
  Survey,
} from "./survey.ts";

/** Which store of a place, and up to where. */
export interface RestoreTask {
  readonly place: string;
  /** The name of the store's file, which chooses among several stores. */
  readonly label: string;
  /** The identity of the store, if it is named. */
  readonly store?: string | undefined;
  /** The newest, unless it is named. */
  readonly timeline?: number | undefined;
  readonly change?: number | undefined;
  readonly atMs?: number | undefined;
  /** Continues although the list of the place ends before the change in its note. */
  readonly isIncomplete?: boolean | undefined;
  readonly to: string;
}

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

/** Makes the store that a task describes in an empty file. */
export const restoreFromPlace = (task: RestoreTask): Promise<Restored> =>
  withPlace(task.place, dirname(resolve(task.to)), async (place) => {
    const survey = await openSurvey(place, await chooseStore(place, task), task.timeline);
    const target = await chooseTarget(survey, task);
    const { plan, changes, reached } = await rebuild(survey, target, task.to, task.atMs);
    const { history, newestTimeline } = survey;
    changeStore(task.to, (db) => startTimeline(db, newestTimeline, history));
    return {
      ...verifyStore(task.to, "The restored store"),
      copy: describePiece(place, plan.copy),
      store: plan.copy.store,
      timeline: history.at(-1)?.number ?? 0,
      changes,
      reached,
      missing: await describeMissing(survey, target, plan),
      damage: survey.listDamage(),
    };
  });

/** The pieces of a store, with the note of its writer. */
export async function openSurvey(
  place: Place,
  { store, pieces }: FoundStore,
  timeline?: number,
): Promise<Survey> {
  const note = parseNote(await place.readNote(nameNote(store)));
  const survey = new Survey(place, pieces, undefined, note);
  await survey.findHistory(timeline);
  return survey;
}

export const describePiece = (place: Place, { name }: { readonly name: string }): string =>
  place.url.includes("://") ? `${place.url.replace(/\/$/, "")}/${name}` : join(place.url, name);

export async function chooseStore(
  place: Place,
  { label, store }: { readonly label: string; readonly store?: string | undefined },
): Promise<FoundStore> {
  const found = await listStores(place);
  if (found.length === 0)
    throw new StoreOpenError(`${place.url} holds no backup of plantstore serve --backup-to.`);
  const wanted =
    store === undefined ? narrow(found, label) : found.filter((one) => one.store === store);
  if (wanted.length === 1 && wanted[0] !== undefined) return wanted[0];
  const names = found.map((one) => `${one.store} (${one.label})`).join(", ");
  throw new StoreOpenError(
    store === undefined
      ? `${place.url} holds backups of several stores: ${names}. Choose one with --store.`
      : `${place.url} holds no backup of store ${store}, but of ${names}.`,
  );
}

/** Those of this label, if there are any. Backups of version 1.0 are the same store's, from before its identity. */
function narrow(found: readonly FoundStore[], label: string): readonly FoundStore[] {
  const named = found.filter((one) => one.label === label);
  const chosen = named.length > 0 ? named : found;
  const isOneName = new Set(chosen.map((one) => one.label)).size === 1;
  const identified = chosen.filter((one) => one.store !== one.label);
  return isOneName && identified.length > 0 ? identified : chosen;
}

type Wanted = Pick<RestoreTask, "change" | "atMs" | "timeline" | "isIncomplete">;

/** The change to restore, on the newest timeline from which there is anything, unless another one is wanted. */
export async function chooseTarget(survey: Survey, wanted: Wanted): Promise<number> {
  for (;;) {
    const target = await findTarget(survey, wanted);
    await survey.readUnnamed();
    if (wanted.isIncomplete !== true) refuseCutList(survey, target);
    if (wanted.timeline !== undefined || (await survey.plan(target)) !== undefined) return target;
    if (survey.reachable().length > 0 || !(await survey.leaveTimeline())) return target;
  }
}

/** The unit of the times in names. */
const SECOND_MS = 1_000;

/** The change that a time stands for. The clock may have been set meanwhile; then the person decides. */
async function findTarget(survey: Survey, { change, atMs }: Wanted): Promise<number> {
  if (atMs === undefined) return change ?? NEWEST;
  await survey.readUnnamed();
  let [firstLater, lastInTime] = [NEWEST, 0];
  const note = (first: number, last: number, madeAtMs: number): void => {
    if (madeAtMs > atMs) firstLater = Math.min(firstLater, first);
    else lastInTime = Math.max(lastInTime, last);
  };
  for (const { segment, until } of survey.listOnHistory()) {
    const { after = 0, last, span } = segment;
    if (last === after || until <= after) continue;
    // Most names tell on which side of the time all changes are. Only what may have both is read.
    const isInTime = span !== undefined && span.toMs + SECOND_MS <= atMs;
    const isNamed = last !== undefined && (isInTime || (span?.fromMs ?? 0) > atMs);
    if (isNamed) note(after + 1, Math.min(last, until), isInTime ? atMs : NEWEST);
    else
      for (const block of readBlocks(await survey.place.fetch(segment.name), segment))
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
  survey: Survey,
  target: number,
  to: string,
  untilMs = Number.POSITIVE_INFINITY,
): Promise<Rebuilt> {
  const { place, note } = survey;
  for (;;) {
    const plan = await survey.plan(target);
    if (plan === undefined) throw noneOldEnough(survey, target);
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
          moveCursors(db, note.cursors ?? {}, reached.change);
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

function noneOldEnough(survey: Survey, target: number): StoreOpenError {
  const { url } = survey.place;
  const [first] = survey.reachable();
  if (first !== undefined)
    return new StoreOpenError(
      `No backup in ${url} is old enough for change ${target}. The oldest change that can be restored is ${first.after}.`,
    );
  const faults = survey
    .listDamage()
    .map(({ name, faults: [fault] }) => `\n  ${name}: ${fault}`)
    .join("");
  return new StoreOpenError(`No copy in ${url} is whole.${faults}`);
}

/** The change that the writer noted as the last one in the place, as far as it belongs to the history. */
function findNoted({ note: { shipped }, history }: Survey): number | undefined {
  const index = history.findIndex(({ id }) => id === shipped?.timelines.at(-1)?.id);
  if (shipped === undefined || index === -1) return undefined;
  return Math.min(shipped.change, endOf(history, index));
}

/** Never silently less than what the place held. */
export async function describeMissing(
  survey: Survey,
  target: number,
  plan: Plan | undefined,
): Promise<readonly string[]> {
  const lost = plan === undefined ? "No copy is whole." : await findLost(survey, target, plan);
  const timelines = survey.unreadable.map(
    (number) => `Timeline ${number}: none of its pieces can be read.`,
  );
  return [...timelines, ...(lost === undefined ? [] : [lost])];
}

async function findLost(
  survey: Survey,
  target: number,
  { reached, copy }: Plan,
): Promise<string | undefined> {
  const { history, note } = survey;
  const noted = findNoted(survey);
  const furthest = Math.max(survey.furthest(), noted ?? 0);
  if (reached < Math.min(target, furthest))
    return `Changes ${reached + 1} to ${Math.min(target, furthest)}.`;
  if (target !== NEWEST)
    return furthest < target
      ? `The backups end at change ${furthest}, before change ${target}.`
      : undefined;
  const isCurrent = noted !== undefined && note.shipped?.timelines.length === history.length;
  const serial = isCurrent ? (note.shipped?.serial ?? 0) : copy.serial;
  const unknown = await survey.findUnknownEnd(serial);
  if (unknown !== undefined) return `The end of ${unknown.name}, after change ${reached}.`;
  // Backups of version 1.0 have no note.
  return note.shipped !== undefined || copy.digest === undefined
    ? undefined
    : `Changes after ${reached}, if there were any: the note of the writer does not tell.`;
}

/** A list may end early, as that of an object store that lags. Then an older state would pass for the newest. */
function refuseCutList(survey: Survey, target: number): void {
  const noted = findNoted(survey) ?? 0;
  const listed = survey.furthest();
  const isCut = survey.note.shipped?.isCovered === true && listed < Math.min(target, noted);
  if (!isCut || survey.hasUnknownEnd) return;
  throw new StoreOpenError(
    `The list of ${survey.place.url} ends at change ${listed}, and its writer noted change ${noted}. Try again later; --incomplete restores what is listed.`,
  );
}
