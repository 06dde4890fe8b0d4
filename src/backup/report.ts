/** What a place holds, for people: every piece and its state, and which moments can be reached. */

import { tmpdir } from "node:os";
import { join } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { adviseOnTemporaryFiles } from "../store/sqlite/database.ts";
import { digestState, verifyStore } from "./copy.ts";
import { type Place, withPlace } from "./place.ts";
import { choosePlan, NEWEST, type Run } from "./plan.ts";
import {
  chooseStore,
  chooseTarget,
  describeMissing,
  describePiece,
  openSurvey,
  rebuild,
} from "./restore.ts";
import {
  type Damage,
  type FoundStore,
  listStores,
  type Point,
  readIdentity,
  type Survey,
} from "./survey.ts";

export interface ListTask {
  readonly place: string;
  readonly label: string;
  readonly store?: string | undefined;
  /** Where pieces of a bucket are downloaded. */
  readonly scratch: string;
  /** The store file whose backups are listed; by default those of every store. */
  readonly from?: string;
}

interface ListedPiece {
  readonly name: string;
  readonly kind: "copy" | "segment";
  readonly timeline: number;
  /** The changes in it; a copy has one. */
  readonly first: number;
  readonly last: number;
  readonly fromMs: number | undefined;
  readonly toMs: number | undefined;
  readonly bytes: number;
  /** `whole`, `open`, or what is damaged. Pieces of a bucket are not downloaded: then `not read`. */
  readonly state: string;
}

export interface ListedStore {
  readonly store: string;
  readonly label: string;
  readonly timeline: number;
  readonly pieces: readonly ListedPiece[];
  /** The changes that can be restored on the newest timeline. */
  readonly reachable: readonly Run[];
  readonly missing: readonly string[];
}

export interface Listed {
  readonly place: string;
  readonly stores: readonly ListedStore[];
}

export const listPlace = (task: ListTask): Promise<Listed> =>
  withPlace(task.place, task.scratch, async (place) => {
    const own = task.from === undefined ? undefined : readIdentity(task.from);
    const found =
      task.store === undefined ? await listStores(place) : [await chooseStore(place, task)];
    const wanted = found.filter(({ store }) => own === undefined || own === store);
    const stores: ListedStore[] = [];
    for (const one of wanted) stores.push(await listStore(place, one));
    return { place: place.url, stores };
  });

async function listStore(place: Place, found: FoundStore): Promise<ListedStore> {
  const survey = await openSurvey(place, found);
  // Reading a piece of a bucket means downloading it, so there names have to do.
  if (place.grow !== undefined) await survey.readAll();
  const { copies, segments } = await survey.readUnnamed();
  const plan = choosePlan(copies, segments, survey.history, NEWEST);
  return {
    store: found.store,
    label: found.label,
    timeline: survey.history.at(-1)?.number ?? 0,
    pieces: describePieces(survey),
    reachable: survey.reachable(),
    missing: await describeMissing(survey, NEWEST, plan),
  };
}

function describePieces(survey: Survey): readonly ListedPiece[] {
  const faults = new Map(survey.listDamage().map((damage) => [damage.name, damage.faults]));
  const { copies, segments } = survey.know();
  const isRead = (name: string): boolean =>
    survey.knownCopies.has(name) || survey.knownSegments.has(name);
  const stateOf = (name: string): string =>
    faults.get(name)?.join("; ") ?? (isRead(name) ? "whole" : "not read");
  return [
    ...copies.map(({ name, timeline, change, atMs, bytes }): ListedPiece => ({
      name,
      kind: "copy",
      timeline,
      first: change,
      last: change,
      fromMs: atMs,
      toMs: atMs,
      bytes,
      state: stateOf(name),
    })),
    ...segments.map(({ name, timeline, after, end, last, bytes, span }): ListedPiece => ({
      name,
      kind: "segment",
      timeline,
      first: Math.min(after + 1, end),
      last: end,
      fromMs: span?.fromMs,
      toMs: span?.toMs,
      bytes,
      state: last === undefined && !faults.has(name) ? "open" : stateOf(name),
    })),
  ].toSorted(
    (one, other) =>
      one.timeline - other.timeline || one.last - other.last || (one.kind === "copy" ? 1 : -1),
  );
}

export type Verified = ReturnType<typeof verifyStore> & {
  readonly copy: string;
  readonly reached: Point;
  readonly changes: number;
  readonly pieces: number;
  readonly missing: readonly string[];
  readonly damage: readonly Damage[];
};

/** Reads every piece, restores the newest state, and replays each way that leads to the newest copy. */
export async function verifyPlace(task: ListTask): Promise<Verified> {
  try {
    return await verifyIn(task.scratch, task);
  } catch (error) {
    const { code, path = "" } = error as NodeJS.ErrnoException;
    const isOfSystem =
      typeof code === "string" && (path.startsWith(task.scratch) || code === "ENOSPC");
    if (!isOfSystem) throw error;
    throw new StoreOpenError(`${(error as Error).message}. ${adviseOnTemporaryFiles(tmpdir())}`);
  }
}

const verifyIn = (folder: string, task: ListTask): Promise<Verified> =>
  withPlace(task.place, folder, async (place) => {
    const survey = await openSurvey(place, await chooseStore(place, task));
    await survey.readAll();
    const target = await chooseTarget(survey, { isIncomplete: true });
    const to = join(folder, "restored.db");
    const { plan, reached, changes } = await rebuild(survey, target, to);
    const [digest, facts] = [digestState(to), verifyStore(to, "The restored store")];
    const copy = describePiece(place, plan.copy);
    const missing = await describeMissing(survey, target, plan);
    // Two copies of a bucket need not be on the disk at once, beside what was restored.
    place.release();
    const older = survey.without(plan.copy.name);
    if ((await older.plan(reached.change))?.reached === reached.change) {
      await rebuild(older, reached.change, to);
      if (digestState(to) !== digest)
        throw new StoreOpenError(`${copy} differs from the copy before it with its changes.`);
    }
    const [pieces, damage] = [survey.list().length, survey.listDamage()];
    return { ...facts, copy, reached, changes, pieces, missing, damage };
  });
