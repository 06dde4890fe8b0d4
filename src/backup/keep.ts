/** Makes copies of a running store in a place, proves that they can be restored, and removes those that are not needed. */

import { rmSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { findDiskFree, getSchemaVersion, readStore } from "../store/sqlite/database.ts";
import { copyStore, digestRows } from "./copy.ts";
import type { BackUpOrder, Digest, ProveOrder, PruneOrder } from "./order.ts";
import { type AnyPiece, findPiece, nameCopy, prefixOfStaged } from "./piece.ts";
import { openPlace } from "./place.ts";
import { compareCopies } from "./plan.ts";
import { proveBackups } from "./restore.ts";
import { digestFile, readHistory, readIdentity, readPoint, Survey } from "./survey.ts";

export interface Made {
  readonly name: string;
  readonly change: number;
  readonly plants: number;
  readonly bytes: number;
}

/** The copy appears, verified, with a name that tells what it holds and what its bytes are. */
export async function backUp({ from, to, label, instance, serial }: BackUpOrder): Promise<Made> {
  const place = await openPlace(to, dirname(resolve(from)));
  const owner = { label, store: readIdentity(from) };
  const staged = place.stage(`${prefixOfStaged(owner)}.${instance}`);
  try {
    const startedAtMs = Date.now();
    const { plants, bytes } = copyStore(from, staged);
    const { history, change } = readStore(staged, (db) => ({
      history: readHistory(db),
      ...readPoint(db),
    }));
    const timeline = history.at(-1)?.number ?? 0;
    const position = { ...owner, timeline, serial };
    const name = nameCopy(position, change, startedAtMs, digestFile(staged));
    await place.keep(staged, name);
    return { name, change, plants: Number(plants), bytes };
  } finally {
    rmSync(staged, { force: true });
    place.close();
  }
}

/** The plants at the newest change, from one snapshot. */
export const digestNow = (from: string): Digest =>
  readStore(from, (db) => {
    getSchemaVersion(db, from);
    return db.transaction(() => ({
      change: readPoint(db).change,
      digest: digestRows(db, "plants"),
    }))();
  });

/** The proof restores beside the store: a folder for temporary files may be in memory. */
export async function prove(order: ProveOrder) {
  const { from, to, instance, diskFreeBytesMin } = order;
  const { size } = statSync(from);
  const free = findDiskFree(from) ?? Number.POSITIVE_INFINITY;
  if (free < 2 * size + diskFreeBytesMin)
    throw new StoreOpenError(
      `A proof needs ${2 * size} free bytes beside the store, and ${free} are free.`,
    );
  const scratch = `${resolve(from)}.${instance}.proof.tmp`;
  return proveBackups(to, readIdentity(from), order, scratch);
}

/**
 * Keeps the newest copies, and the segments after the oldest of them. Older is what comes before by timeline and
 * change. Removes nothing of another store, and no file that it does not know.
 */
export async function prune({ from, to, keep }: Omit<PruneOrder, "kind">): Promise<void> {
  const place = await openPlace(to, dirname(resolve(from)));
  const store = readIdentity(from);
  const pieces = (await place.list())
    .flatMap((file) => findPiece(file) ?? [])
    .filter((piece) => piece.store === store);
  for (const piece of await listSuperfluous(new Survey(place, pieces), keep))
    await place.remove(piece.name);
  place.close();
}

async function listSuperfluous(survey: Survey, keep: number): Promise<readonly AnyPiece[]> {
  const newestFirst = survey.know().copies.toSorted(compareCopies).toReversed();
  const oldest = newestFirst[keep - 1];
  if (oldest === undefined) return [];
  await survey.readUnnamed();
  const isBefore = (timeline: number, change: number): boolean =>
    timeline < oldest.timeline || (timeline === oldest.timeline && change <= oldest.change);
  return [
    ...newestFirst.slice(keep),
    ...survey.know().segments.filter(
      ({ timeline, end, last, after }) =>
        // An open segment of this timeline may be the one that grows.
        isBefore(timeline, end) &&
        (last !== undefined || after < oldest.change || timeline < oldest.timeline),
    ),
  ];
}
