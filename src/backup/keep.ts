/** Makes copies of a running store in a place, proves that they can be restored, and removes those that are not needed. */

import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { getSchemaVersion, measureFiles, readStore } from "../store/sqlite/database.ts";
import { copyStore, digestRows } from "./copy.ts";
import type { BackUpOrder, Digest, ProveOrder, PruneOrder } from "./order.ts";
import {
  type AnyPiece,
  type Copy,
  findPiece,
  isProof,
  nameCopy,
  nameSegment,
  prefixOfStaged,
  sealOf,
  type Timeline,
} from "./piece.ts";
import { digestFile, openPlace, type Place } from "./place.ts";
import { compareCopies, isOnHistory, type KnownCopy, type KnownSegment } from "./plan.ts";
import { proveBackups, relisting } from "./restore.ts";
import { inspectSegment, isWhole, joinSegments } from "./segment.ts";
import { readHistory, readIdentity, readPoint, Survey } from "./survey.ts";

export interface CopyFacts {
  readonly name: string;
  readonly change: number;
  readonly plants: number;
  readonly bytes: number;
  readonly digest: Digest | undefined;
}

/** The copy appears, verified, with a name that tells what it holds and what its bytes are. */
export async function backUp(order: BackUpOrder, open = openPlace): Promise<CopyFacts> {
  const { from, to, label, instance, serial, isAlone } = order;
  const place = await open(to, dirname(resolve(from)));
  const owner = { label, store: readIdentity(from) };
  const staged = place.stage(`${prefixOfStaged(owner.store)}.${instance}`);
  try {
    const startedAtMs = Date.now();
    const { plants, bytes } = copyStore(from, staged);
    const { history, change } = readStore(staged, (db) => ({
      history: readHistory(db),
      ...readPoint(db),
    }));
    const digest = isAlone ? digestNow(staged) : undefined;
    const timeline = history.at(-1)?.number ?? 0;
    const position = { ...owner, timeline, serial };
    const name = nameCopy(
      position,
      change,
      startedAtMs,
      digestFile(staged, sealOf(position, change)),
    );
    await place.keep(staged, name);
    return { name, change, plants: Number(plants), bytes, digest };
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

/** Restores what is in the place, and compares. A service that was killed may have left its file. */
export async function prove(order: ProveOrder) {
  const { from, to, scratch, diskFreeBytesMin } = order;
  const folder = dirname(scratch);
  for (const name of readdirSync(folder)) if (isProof(from, name)) rmSync(`${folder}/${name}`);
  const { diskFreeBytes: free = Number.POSITIVE_INFINITY, ...files } = measureFiles(from);
  const bytes = 2 * (files.storeBytes + files.logBytes);
  if (free < bytes + diskFreeBytesMin)
    throw new StoreOpenError(
      `A proof needs ${bytes} free bytes beside the store, and ${free} are free.`,
    );
  return proveBackups(to, readIdentity(from), order, scratch);
}

/**
 * Keeps copies of the newest states of the newest history, and the segments after the oldest of them. Older is what
 * comes before by timeline and change. The oldest is whole: everything after it can still be reached, even if a newer
 * copy is damaged. Removes nothing of another store, and no file that it does not know.
 */
export const prune = (order: Omit<PruneOrder, "kind">, open = openPlace): Promise<void> =>
  relisting(() => pruneOnce(order, open));

async function pruneOnce(order: Omit<PruneOrder, "kind">, open: typeof openPlace): Promise<void> {
  const { from, to, label, instance, keep } = order;
  const place = await open(to, dirname(resolve(from)));
  try {
    const owner = { label, store: readIdentity(from) };
    const pieces = (await place.list())
      .flatMap((file) => findPiece(file) ?? [])
      .filter((piece) => piece.store === owner.store);
    const superfluous = new Set(await listSuperfluous(new Survey(place, pieces), keep));
    for (const { name } of superfluous) await place.remove(name);
    const kept = new Survey(
      place,
      pieces.filter((piece) => !superfluous.has(piece)),
    );
    // In a folder segments grow, so there are few.
    if (place.grow === undefined)
      await compact(place, kept, `${prefixOfStaged(owner.store)}.${instance}`);
  } finally {
    place.close();
  }
}

/** At least this many segments become one of at most this size. */
const COMPACT_LENGTH = 64;
const COMPACT_BYTES_MAX = 8_388_608;

/**
 * Joins small segments, so that the list of a bucket stays short. They are removed after the joined one was read back.
 * Never across the segment with which a copy begins: a restore tells by it which rows of tables are newer than the copy.
 */
export async function compact(
  place: Place,
  survey: Survey,
  prefix: string,
  lengthMin = COMPACT_LENGTH,
): Promise<void> {
  const starts = new Set(survey.copies.map(({ timeline, serial }) => `${timeline} ${serial}`));
  const closed = survey
    .know()
    .segments.filter(({ last }) => last !== undefined)
    .toSorted((one, other) => one.timeline - other.timeline || one.serial - other.serial);
  let group: KnownSegment[] = [];
  for (const segment of [...closed, undefined]) {
    const before = group.at(-1);
    const bytes = group.reduce((sum, one) => sum + one.bytes, segment?.bytes ?? 0);
    const isNext =
      segment !== undefined &&
      before !== undefined &&
      segment.timeline === before.timeline &&
      // Otherwise it would hide that one between them is lost.
      segment.serial === before.serial + 1 &&
      segment.after === before.end &&
      bytes <= COMPACT_BYTES_MAX &&
      !starts.has(`${segment.timeline} ${segment.serial}`);
    if (!isNext) {
      if (group.length >= lengthMin) await join(place, survey, group, prefix);
      group = [];
    }
    if (segment !== undefined) group.push(segment);
  }
}

async function join(
  place: Place,
  survey: Survey,
  group: readonly KnownSegment[],
  prefix: string,
): Promise<void> {
  const [first, last] = [group[0], group.at(-1)];
  // Without a change in them the joined one would have the name of a part.
  if (first === undefined || last === undefined || last.after === first.after) return;
  const found = await Promise.all(group.map((segment) => survey.readSegment(segment)));
  const { header } = found[0] ?? {};
  const isAlike = found.every(
    (one) => isWhole(one) && one.header?.schema === header?.schema && one.header !== undefined,
  );
  if (header === undefined || !isAlike) return;
  const parts: { path: string; segment: KnownSegment }[] = [];
  for (const segment of group) parts.push({ path: await place.fetch(segment.name), segment });
  const staged = place.stage(prefix);
  const name = nameSegment(last, first.after, last.end);
  writeFileSync(staged, joinSegments(header, parts, sealOf(last, first.after)));
  await place.keep(staged, name);
  place.release();
  const joined = inspectSegment(await place.fetch(name), {
    ...last,
    after: first.after,
    last: last.end,
  });
  if (!isWhole(joined) || joined.runs.length > 1) return;
  for (const part of group) await place.remove(part.name);
}

/** The second is a spare, in case the first turns out to be damaged. */
const COPIES_PER_STATE = 2;

async function listSuperfluous(survey: Survey, keep: number): Promise<readonly AnyPiece[]> {
  await survey.readUnnamed();
  const { history } = await survey.findHistory();
  const newestFirst = survey.know().copies.toSorted(compareCopies).toReversed();
  /** Two copies of each state. A store that nobody changes is copied too, and must not push out older states. */
  const states = new Map<string, KnownCopy[]>();
  const repeated: KnownCopy[] = [];
  for (const [index, copy] of newestFirst.entries()) {
    if (!isOnHistory(history, copy)) continue;
    const state = `${copy.timeline} ${copy.change}`;
    const newer = states.get(state) ?? [];
    let usable = 0;
    for (const one of newer) if (await isUsable(survey, history, one)) usable++;
    if (usable >= COPIES_PER_STATE) repeated.push(copy);
    else states.set(state, [...newer, copy]);
    if (states.size < keep || !(await isUsable(survey, history, copy))) continue;
    // The oldest first: whatever is left when it is interrupted, everything after the oldest copy can be reached.
    const older = newestFirst.slice(index + 1).toReversed();
    return [...older, ...listSegmentsBefore(survey, copy), ...repeated];
  }
  return repeated;
}

/** Reads the copy: something is removed because of it. */
async function isUsable(
  survey: Survey,
  history: readonly Timeline[],
  { name }: KnownCopy,
): Promise<boolean> {
  await survey.readCopy(survey.copies.find((one) => one.name === name) as Copy);
  const copy = survey.know().copies.find((one) => one.name === name) as KnownCopy;
  return copy.fault === undefined && isOnHistory(history, copy);
}

const listSegmentsBefore = (survey: Survey, oldest: KnownCopy): readonly AnyPiece[] =>
  survey.know().segments.filter(
    ({ timeline, end, serial }) =>
      // From this serial on, a segment may have rows of tables that are newer than the copy, or may be growing.
      serial < oldest.serial &&
      (timeline < oldest.timeline || (timeline === oldest.timeline && end <= oldest.change)),
  );
