/** What a place holds, for people: every piece and its state, and which moments can be reached. */

import { tmpdir } from "node:os";
import { join } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { adviseOnTemporaryFiles } from "../store/sqlite/database.ts";
import { verifyStore } from "./copy.ts";
import type { ListTask } from "./tasks.ts";
import { openPlace, type Place } from "./place.ts";
import { nameNote, parseNote } from "./names.ts";
import { choosePlan, NEWEST, type Run } from "./plan.ts";
import { chooseStore, describeMissing, describePiece, rebuildTwice, relisting } from "./restore.ts";
import {
  type Damage,
  type FoundStore,
  listStores,
  type Point,
  readIdentity,
  Survey,
} from "./survey.ts";

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

export const listPlace = (task: ListTask): Promise<Listed> => relisting(() => listOnce(task));

async function listOnce(task: ListTask): Promise<Listed> {
  const place = await openPlace(task.place, task.scratch);
  try {
    const found = await listStores(place);
    if (task.store !== undefined && !found.some(({ store }) => store === task.store))
      await chooseStore(place, task);
    const own = task.from === undefined ? task.store : readIdentity(task.from);
    const wanted = found.filter(({ store }) => own === undefined || own === store);
    const stores: ListedStore[] = [];
    for (const one of wanted) stores.push(await listStore(place, one));
    return { place: place.url, stores };
  } finally {
    place.close();
  }
}

async function listStore(place: Place, { store, label, pieces }: FoundStore): Promise<ListedStore> {
  const survey = new Survey(place, pieces);
  // Reading a piece of a bucket means downloading it, so there names have to do.
  if (place.grow !== undefined) await survey.readAll();
  const { copies, segments } = await survey.readUnnamed();
  const note = parseNote(await place.readNote(nameNote(store)));
  const known = await survey.findHistory(note);
  const { history } = known;
  const plan = choosePlan(copies, segments, history, NEWEST);
  return {
    store,
    label,
    timeline: history.at(-1)?.number ?? 0,
    pieces: describePieces(survey),
    reachable: survey.reachable(history),
    missing: await describeMissing(survey, known, NEWEST, plan, note),
  };
}

function describePieces(survey: Survey): readonly ListedPiece[] {
  const faults = new Map(survey.listDamage().map((damage) => [damage.name, damage.faults]));
  const { copies, segments } = survey.know();
  const stateOf = (name: string, usual: string): string => faults.get(name)?.join("; ") ?? usual;
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
      state: stateOf(name, survey.knownCopies.has(name) ? "whole" : "not read"),
    })),
    ...segments.map(({ name, timeline, after, end, last, bytes, span }): ListedPiece => {
      const known = survey.knownSegments.get(name);
      const { firstAtMs = span?.fromMs, lastAtMs = span?.toMs } = known ?? {};
      const usual = last === undefined ? "open" : known === undefined ? "not read" : "whole";
      return {
        name,
        kind: "segment",
        timeline,
        first: Math.min(after + 1, end),
        last: end,
        fromMs: firstAtMs,
        toMs: lastAtMs,
        bytes,
        state: stateOf(name, usual),
      };
    }),
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
    return await relisting(() => verifyIn(task.scratch, task));
  } catch (error) {
    const { code, path = "" } = error as NodeJS.ErrnoException;
    const isOfSystem =
      typeof code === "string" && (path.startsWith(task.scratch) || code === "ENOSPC");
    if (!isOfSystem) throw error;
    throw new StoreOpenError(`${(error as Error).message}. ${adviseOnTemporaryFiles(tmpdir())}`);
  }
}

async function verifyIn(folder: string, task: ListTask): Promise<Verified> {
  const place = await openPlace(task.place, folder);
  try {
    const found = await chooseStore(place, task);
    const survey = new Survey(place, found.pieces);
    await survey.readAll();
    const note = parseNote(await place.readNote(nameNote(found.store)));
    const known = await survey.findHistory(note);
    const { history } = known;
    const to = join(folder, "restored.db");
    const inspect = () => verifyStore(to, "The restored store");
    const built = await rebuildTwice(place, survey, history, NEWEST, to, inspect);
    return {
      ...built.facts,
      copy: describePiece(place, built.plan.copy),
      reached: built.reached,
      changes: built.changes,
      pieces: found.pieces.length,
      missing: await describeMissing(survey, known, NEWEST, built.plan, note),
      damage: built.damage,
    };
  } finally {
    place.close();
  }
}
