/** Makes copies of a running store in a place, proves that they can be restored, and removes what is not needed. */

import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { findDiskFree, measureFiles, readStore } from "../store/sqlite/database.ts";
import { copyStore, digestState } from "./copy.ts";
import {
  type CheckPosition,
  isProof,
  joinSpans,
  nameCopy,
  nameSegment,
  prefixOfStaged,
  sealOf,
} from "./names.ts";
import { digestFile, openPlace, type Place, type Source, withPlace } from "./place.ts";
import {
  choosePlan,
  compareCopies,
  type KnownSegment,
  listSuperfluous,
  NEWEST,
  type NewestCopy,
  type Plan,
  type Retention,
} from "./plan.ts";
import { describePiece, rebuild } from "./restore.ts";
import { inspectSegment, isWhole, joinSegments } from "./log.ts";
import {
  type Damage,
  identityOf,
  listPieces,
  readHistory,
  readIdentity,
  readPoint,
  Survey,
} from "./survey.ts";

interface BackUpTask extends Source {
  /** The segment that the copy builds on. */
  readonly serial: number;
  readonly diskFreeBytesMin: number;
}

/** The state of the store at a change. */
interface Digest {
  readonly change: number;
  readonly digest: string;
}

export interface ProveTask extends Source, Digest {
  /** The new copy. */
  readonly name: string;
  /** The file in which it is restored, beside the store: a folder for temporary files may be in memory. */
  readonly scratch: string;
  readonly diskFreeBytesMin: number;
  /** Segments lead to it from an older copy. */
  readonly isCovered: boolean;
}

/** Reads some pieces, in turn. */
interface CheckTask extends Source, CheckPosition {
  /** A copy and segments lead to it; undefined if that is not known. */
  readonly change: number | undefined;
}

interface PruneTask extends Source {
  readonly retention: Retention;
}

export interface CopyFacts extends NewestCopy, Digest {
  readonly name: string;
  readonly plants: number;
}

const sizeOf = (path: string): number =>
  readStore(path, (db) => {
    const [[pages, bytes]] = db
      .query("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
      .values() as [[bigint, bigint]];
    return Number(pages * bytes);
  });

/** The copy beside what it is packed into. */
const ROOM = 1.5;

/** The copy appears, verified, with a name that tells what it holds and what its bytes are. */
export const backUp = (task: BackUpTask, open = openPlace): Promise<CopyFacts> =>
  withPlace(task.to, dirname(resolve(task.from)), (place) => backUpTo(place, task), open);

async function backUpTo(place: Place, task: BackUpTask): Promise<CopyFacts> {
  const { from, label, instance, serial, diskFreeBytesMin } = task;
  const owner = { label, store: readIdentity(from) };
  const staged = place.stage(`${prefixOfStaged(owner.store)}.${instance}`);
  try {
    const [room, free] = [Math.ceil(ROOM * sizeOf(from)), findDiskFree(staged) ?? Infinity];
    // A bucket's files are beside the store.
    if (free < room + (place.grow === undefined ? diskFreeBytesMin : 0))
      throw new StoreOpenError(
        `A copy needs ${room} free bytes in ${dirname(staged)}, and ${free} are free.`,
      );
    const atMs = Date.now();
    const { plants } = copyStore(from, staged);
    const { history, change } = readStore(staged, (db) => ({
      history: readHistory(db),
      ...readPoint(db),
    }));
    const digest = digestState(staged);
    const position = { ...owner, timeline: history.at(-1)?.number ?? 0, serial };
    const sum = digestFile(staged, sealOf(position, change));
    const name = nameCopy(position, change, atMs, sum);
    const bytes = await place.keep(staged, name);
    return { name, change, atMs, plants: Number(plants), bytes, digest };
  } finally {
    rmSync(staged, { force: true });
  }
}

export interface Proof {
  readonly damage: readonly Damage[];
  readonly copies: number;
  /** When the oldest copy was made, by the wall clock at that time. */
  readonly oldestAtMs: number;
}

/**
 * Restores the state of a new copy by the copy before it and the segments in between, and compares. So each copy and
 * each segment is read once. The first copy is read itself. A service that was killed may have left its file.
 */
export async function prove(task: ProveTask): Promise<Proof> {
  const { from, scratch, diskFreeBytesMin } = task;
  const folder = dirname(scratch);
  for (const name of readdirSync(folder)) if (isProof(from, name)) rmSync(`${folder}/${name}`);
  const { diskFreeBytes: free = Number.POSITIVE_INFINITY, ...files } = measureFiles(from);
  const bytes = 2 * (files.storeBytes + files.logBytes);
  if (free < bytes + diskFreeBytesMin)
    throw new StoreOpenError(
      `A proof needs ${bytes} free bytes beside the store, and ${free} are free.`,
    );
  try {
    return await withPlace(task.to, folder, (place) => proveIn(place, task));
  } finally {
    rmSync(scratch, { force: true });
  }
}

async function proveIn(place: Place, task: ProveTask): Promise<Proof> {
  const { from, name, change, digest, scratch, isCovered } = task;
  const survey = await openOwn(place, from);
  const older = survey.without(name);
  const way = await older.plan(change);
  const isLedTo = way?.reached === change;
  const { plan, reached } = await rebuild(isLedTo ? older : survey, change, scratch);
  if (reached.change !== change)
    throw new StoreOpenError(
      `${place.url} can be restored up to change ${reached.change} only, not to ${change}.`,
    );
  if (digestState(scratch) !== digest)
    throw new StoreOpenError(
      `${describePiece(place, plan.copy)}, restored to change ${change}, differs from what the store had.`,
    );
  const { copies } = survey.know();
  const [oldest] = copies.toSorted(compareCopies);
  const oldestAtMs = oldest?.atMs ?? plan.copy.atMs;
  const damage = [...survey.listDamage(), ...(isCovered ? findHole(way, change) : [])];
  return { damage, copies: copies.length, oldestAtMs };
}

/** A piece that is lost is in no list: what it held is missing on the way to a change. */
function findHole(way: Plan | undefined, change: number): readonly Damage[] {
  const reached = way?.reached ?? 0;
  if (reached >= change) return [];
  return [{ name: `the changes after ${reached}`, faults: ["no whole piece has them"] }];
}

/** The pieces of a store that is running, with its own history. */
async function openOwn(place: Place, from: string): Promise<Survey> {
  const history = readStore(from, readHistory);
  return new Survey(place, await listPieces(place, identityOf(history)), history);
}

export interface Checked extends CheckPosition {
  readonly damage: readonly Damage[];
}

/**
 * Looks for rot: reads closed pieces, in the order of their names, as far as the share goes. Looks for lost ones: the
 * names must lead to a change.
 */
export const check = ({ from, to, after, share, change }: CheckTask): Promise<Checked> =>
  withPlace(to, dirname(resolve(from)), async (place) => {
    const survey = await openOwn(place, from);
    const pieces = survey
      .list()
      .filter((piece) => piece.kind === "copy" || piece.last !== undefined)
      .toSorted((one, other) => (one.name < other.name ? -1 : 1));
    const total = pieces.reduce((sum, { bytes }) => sum + bytes, 0);
    let due = Math.min(1, share) * total;
    let at = after;
    const start = pieces.findIndex(({ name }) => name > at);
    const inTurn = start === -1 ? pieces : [...pieces.slice(start), ...pieces.slice(0, start)];
    for (const next of inTurn) {
      if (next.bytes > due) break;
      await survey.readAll([next]);
      due -= next.bytes;
      at = next.name;
    }
    const damage = survey.listDamage();
    // After that, because the last segment of a folder may be appended to meanwhile.
    const { copies, segments } = await survey.readUnnamed();
    const way = choosePlan(copies, segments, survey.history, NEWEST);
    return {
      after: at,
      share: total === 0 ? 0 : due / total,
      damage: [...damage, ...findHole(way, change ?? 0)],
    };
  });

/** Removes what is too old, by names, and joins small segments. No piece of another store, and no file that it does not know. */
export const prune = (
  { from, to, instance, retention }: PruneTask,
  open = openPlace,
): Promise<void> =>
  withPlace(
    to,
    dirname(resolve(from)),
    async (place) => {
      const survey = await openOwn(place, from);
      const { history } = survey;
      const { copies, segments } = await survey.readUnnamed();
      const superfluous = listSuperfluous(copies, segments, history, retention);
      for (const { name } of superfluous) await place.remove(name);
      const removed = new Set(superfluous.map(({ name }) => name));
      const left = survey.list().filter(({ name }) => !removed.has(name));
      const prefix = `${prefixOfStaged(identityOf(history))}.${instance}`;
      // In a folder segments grow, so there are few.
      if (place.grow === undefined) await compact(new Survey(place, left), prefix);
    },
    open,
  );

/** At least this many segments become one of at most this size; fewer if they are as large as that. */
const COMPACT_LENGTH = 64;
const COMPACT_LENGTH_MIN = 4;
const COMPACT_BYTES_MAX = 2_097_152;

/** Joins small segments, so that the list of a bucket stays short. They are removed after the joined one was read back. */
export async function compact(
  survey: Survey,
  prefix: string,
  lengthMin = COMPACT_LENGTH,
): Promise<void> {
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
      bytes <= COMPACT_BYTES_MAX;
    if (!isNext) {
      const isFull = bytes > COMPACT_BYTES_MAX && group.length >= COMPACT_LENGTH_MIN;
      if (isFull || group.length >= lengthMin) await join(survey, group, prefix);
      group = [];
    }
    if (segment !== undefined) group.push(segment);
  }
}

async function join(survey: Survey, group: readonly KnownSegment[], prefix: string): Promise<void> {
  const { place } = survey;
  const [first, last] = [group[0], group.at(-1)];
  // Without a change in them the joined one would have the name of a part.
  if (first === undefined || last === undefined || last.after === first.after) return;
  const found = await survey.readTogether(group);
  const { header } = found[0] ?? {};
  const isAlike = found.every(
    (one) => isWhole(one) && one.header?.schema === header?.schema && one.header !== undefined,
  );
  if (header === undefined || !isAlike) return;
  const parts: { path: string; segment: KnownSegment }[] = [];
  for (const segment of group) parts.push({ path: await place.fetch(segment.name), segment });
  const staged = place.stage(prefix);
  const spans = group.filter(({ after, end }) => end > after).map(({ span }) => span);
  const span = spans.reduce(joinSpans) ?? { fromMs: 0, toMs: 0 };
  const name = nameSegment(last, first.after, last.end, span);
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
