/** What a place holds of a store, and what of it is whole. Reads only what a plan needs. */

import type { Database } from "bun:sqlite";
import { StoreOpenError } from "../domain/errors.ts";
import { findDamage, getSchemaVersion, readStore } from "../store/sqlite/database.ts";
import {
  type AnyPiece,
  type Copy,
  type Cursors,
  DIGEST_DIGITS,
  findPiece,
  isOld,
  type Note,
  sealOf,
  type Segment,
  type Timeline,
} from "./names.ts";
import { digestFile, type Place } from "./place.ts";
import {
  choosePlan,
  endOf,
  findFurthest,
  type KnownCopy,
  type KnownSegment,
  listReachable,
  NEWEST,
  type Plan,
  type Run,
} from "./plan.ts";
import {
  findTail,
  type InspectedSegment,
  inspectSegment,
  readBlocks,
  type Tail,
  toTail,
} from "./log.ts";

export interface Point {
  readonly change: number;
  readonly atMs: number;
}

/** The newest change in a store file. */
export const readPoint = (db: Database): Point =>
  db
    .query("SELECT last AS change, at_ms AS atMs FROM changes ORDER BY last DESC LIMIT 1")
    .safeIntegers(false)
    .get() as Point;

export function readCursors(db: Database): Cursors {
  type Row = Readonly<{ name: string; createdAtMs: number | null; cursor: number | null }>;
  const rows = db
    .query(
      "SELECT name, record ->> 'createdAtMs' AS createdAtMs, record ->> 'cursor' AS cursor FROM webhooks",
    )
    .safeIntegers(false)
    .all() as Row[];
  return Object.fromEntries(
    rows.flatMap(({ name, createdAtMs, cursor }) =>
      cursor === null ? [] : [[name, [createdAtMs ?? 0, cursor]]],
    ),
  );
}

/** Backups of version 1.0 have no timelines. */
const OLD_HISTORY: readonly Timeline[] = [{ number: 0, id: "", after: 0 }];

export function readHistory(db: Database): readonly Timeline[] {
  const hasTimelines =
    db.query("SELECT 1 FROM sqlite_schema WHERE name = 'timelines'").get() !== null;
  if (!hasTimelines) return OLD_HISTORY;
  return db
    .query("SELECT number, id, after FROM timelines ORDER BY number")
    .safeIntegers(false)
    .all() as Timeline[];
}

/** The identity of a store is the id of its first timeline. */
export const identityOf = (history: readonly Timeline[]): string => history[0]?.id ?? "";

export const readIdentity = (path: string): string =>
  readStore(path, (db) => identityOf(readHistory(db)));

interface InspectedCopy {
  readonly change?: number;
  readonly schema?: number;
  readonly history?: readonly Timeline[];
  /** Then nothing else is known. */
  readonly fault?: string | undefined;
}

function inspectCopy(path: string, copy: Copy): InspectedCopy {
  const { digest } = copy;
  if (
    digest !== undefined &&
    digestFile(path, sealOf(copy, copy.change)).slice(0, DIGEST_DIGITS) !== digest
  )
    return { fault: "its bytes or its name have changed since it was made" };
  try {
    return readStore(path, (db) => {
      const schema = getSchemaVersion(db, "it");
      const [fault] = digest === undefined ? findDamage(db, 1) : [];
      return fault === undefined
        ? { schema, history: readHistory(db), change: readPoint(db).change }
        : { fault: `it is damaged: ${fault}` };
    });
  } catch (error) {
    if (error instanceof StoreOpenError) return { fault: error.message };
    throw error;
  }
}

const assume = ({ after = 0, last = after, span }: Segment) => ({
  header: undefined,
  span,
  runs: last > after ? [{ after, last }] : [],
  end: last,
});

/** Segments that are downloaded at once. */
const TOGETHER = 4;

interface Known {
  readonly copies: readonly KnownCopy[];
  readonly segments: readonly KnownSegment[];
}

/** There may be more pieces than a call can have arguments. */
const highest = <Item>(items: readonly Item[], numberOf: (item: Item) => number): number =>
  items.reduce((max, item) => Math.max(max, numberOf(item)), 0);

export interface Damage {
  readonly name: string;
  readonly faults: readonly string[];
}

/** The pieces of one store in a place, and the history that is wanted of it. */
export class Survey {
  readonly place: Place;
  readonly copies: readonly Copy[];
  readonly segments: readonly Segment[];
  /** From the first timeline to the one that is wanted. */
  history: readonly Timeline[];
  readonly note: Note;
  /** The numbers of later timelines that have pieces, and none that can be read. */
  readonly unreadable: number[] = [];
  readonly knownCopies = new Map<string, InspectedCopy>();
  readonly knownSegments = new Map<string, InspectedSegment>();

  constructor(
    place: Place,
    pieces: readonly AnyPiece[],
    history: readonly Timeline[] = OLD_HISTORY,
    note: Note = {},
  ) {
    this.place = place;
    this.copies = pieces.filter((piece) => piece.kind === "copy");
    this.segments = pieces.filter((piece) => piece.kind === "segment");
    this.history = history;
    this.note = note;
  }

  /** The same pieces but one, and everything that is known of them. */
  without(name: string): Survey {
    const left = this.list().filter((piece) => piece.name !== name);
    const { knownCopies, knownSegments } = this;
    const survey = new Survey(this.place, left, this.history, this.note);
    return Object.assign(survey, { knownCopies, knownSegments });
  }

  /** The highest timeline number among the pieces. */
  get newestTimeline(): number {
    return highest(this.list(), ({ timeline }) => timeline);
  }

  get newestSerial(): number {
    return highest(this.list(), ({ serial }) => serial);
  }

  list(): readonly AnyPiece[] {
    return [...this.segments, ...this.copies];
  }

  async readSegment(segment: Segment): Promise<InspectedSegment> {
    const known = this.knownSegments.get(segment.name);
    if (known !== undefined) return known;
    const path = await this.place.fetch(segment.name);
    const found = inspectSegment(path, segment);
    this.knownSegments.set(segment.name, found);
    return found;
  }

  /** Their files are on the disk together until the place releases them. */
  async readTogether(segments: readonly Segment[]): Promise<readonly InspectedSegment[]> {
    const found: InspectedSegment[] = [];
    for (let at = 0; at < segments.length; at += TOGETHER) {
      const some = segments.slice(at, at + TOGETHER);
      found.push(...(await Promise.all(some.map((segment) => this.readSegment(segment)))));
    }
    return found;
  }

  async readCopy(copy: Copy): Promise<InspectedCopy> {
    const known = this.knownCopies.get(copy.name);
    if (known !== undefined) return known;
    const found = inspectCopy(await this.place.fetch(copy.name), copy);
    this.knownCopies.set(copy.name, found);
    return found;
  }

  /** Reads the pieces whose names do not say what they hold: open segments, and backups of version 1.0. */
  async readUnnamed(): Promise<Known> {
    for (const copy of this.copies) if (copy.change === undefined) await this.readCopy(copy);
    for (const segment of this.segments)
      if (segment.last === undefined) await this.readSegment(segment);
    return this.know();
  }

  /** One after the other: they need not be on the disk at once. */
  async readAll(pieces = this.list()): Promise<void> {
    for (const piece of pieces) {
      await (piece.kind === "copy" ? this.readCopy(piece) : this.readSegment(piece));
      this.place.release();
    }
  }

  /**
   * Finds the history of the wanted timeline, or of the newest readable one. The note has that of its writer. Then it
   * tries segments, because a segment is cheaper to read than a copy.
   */
  async findHistory(wanted?: number): Promise<void> {
    const noted = this.note.shipped?.timelines ?? [];
    const numbers = new Set([
      ...this.list().map(({ timeline }) => timeline),
      ...noted.slice(-1).map(({ number }) => number),
    ]);
    if (wanted !== undefined && !numbers.has(wanted))
      throw new StoreOpenError(`${this.place.url} holds no timeline ${wanted} of this store.`);
    const chosen = wanted === undefined ? numbers.difference(new Set(this.unreadable)) : [wanted];
    for (const number of [...chosen].toSorted((one, other) => other - one)) {
      const isNoted = noted.at(-1)?.number === number;
      const known = number === 0 ? OLD_HISTORY : isNoted ? noted : undefined;
      const found = known ?? (await this.readHistoryOf(number));
      if (found !== undefined) return void (this.history = found);
      this.unreadable.push(number);
    }
    if (wanted !== undefined)
      throw new StoreOpenError(
        `Timeline ${wanted} cannot be restored: none of its readable pieces says where it left the timeline before it.`,
      );
  }

  /** To the timeline before, if no piece of this one can be read. False if there is none. */
  async leaveTimeline(): Promise<boolean> {
    const number = this.history.at(-1)?.number ?? 0;
    if (number === 0 || (await this.readHistoryOf(number)) !== undefined) return false;
    this.unreadable.push(number);
    await this.findHistory();
    return this.history.at(-1)?.number !== number;
  }

  /** Undefined if no piece of the timeline can be read. */
  async readHistoryOf(number: number): Promise<readonly Timeline[] | undefined> {
    for (const piece of this.list().filter(({ timeline }) => timeline === number)) {
      const found =
        piece.kind === "copy"
          ? (await this.readCopy(piece)).history
          : (await this.readSegment(piece)).header?.timelines;
      if (found?.at(-1)?.number === number) return found;
    }
    return undefined;
  }

  /** What is known now. Until a piece is read, its name is trusted. */
  know(): Known {
    return {
      copies: this.copies.map((copy) => {
        const {
          change = copy.change ?? 0,
          schema,
          history,
          fault,
        } = this.knownCopies.get(copy.name) ?? {};
        const timelineId = isOld(copy) ? undefined : history?.at(-1)?.id;
        return { ...copy, change, schema, timelineId, fault };
      }),
      segments: this.segments.map((segment) => {
        const known = this.knownSegments.get(segment.name) ?? assume(segment);
        const { header, runs, end, span = segment.span } = known;
        const after = segment.after ?? runs[0]?.after ?? 0;
        // Without its header a segment may still be replayed: every record is checked by itself.
        const timelineId = header?.timelines.at(-1)?.id;
        return { ...segment, after, runs, end, span, schema: header?.schema, timelineId };
      }),
    };
  }

  /** Plans, reads what the plan needs, and plans again until everything that it needs was read and is whole. */
  async plan(target: number): Promise<Plan | undefined> {
    await this.readUnnamed();
    for (;;) {
      const { copies, segments } = this.know();
      const plan = choosePlan(copies, segments, this.history, target);
      if (plan === undefined) return undefined;
      const unread = plan.steps.filter(({ segment }) => !this.knownSegments.has(segment.name));
      const isCopyRead = this.knownCopies.has(plan.copy.name);
      if (unread.length === 0 && isCopyRead) return plan;
      if (!isCopyRead) await this.readCopy(plan.copy);
      await this.readTogether(unread.map(({ segment }) => segment));
    }
  }

  /** The block that has the last change of a plan. */
  async readTail({ copy, steps, reached }: Plan): Promise<Tail | undefined> {
    const last = steps.at(-1)?.segment;
    const path = await this.place.fetch((last ?? copy).name);
    if (last === undefined) return readStore(path, (db) => findTail(db, reached));
    for (const block of readBlocks(path, last))
      if (block.first <= reached && reached <= block.last) return toTail(block);
    return undefined;
  }

  /** The blocks that end after a change, whether or not a copy leads to them. */
  async *readBlocksAfter(
    after: number,
  ): AsyncGenerator<{ readonly tail: Tail; readonly change: number }> {
    for (const { segment, until } of this.listOnHistory()) {
      if ((segment.last ?? NEWEST) <= after) continue;
      const { header, end } = await this.readSegment(segment);
      const id = header?.timelines.at(-1)?.id;
      const isOther = id !== undefined && !this.history.some((one) => one.id === id);
      if (isOther || end <= after) continue;
      for (const block of readBlocks(await this.place.fetch(segment.name), segment))
        if (Math.min(block.last, until) > after && block.first <= until)
          yield { tail: toTail(block), change: Math.min(block.last, until) };
    }
  }

  /** The segments of the history, each with the last change in it that belongs to the history. */
  listOnHistory() {
    const { history } = this;
    return this.segments.flatMap((segment) => {
      const index = history.findIndex(({ number }) => number === segment.timeline);
      return index === -1 ? [] : [{ segment, until: endOf(history, index) }];
    });
  }

  /**
   * The segment that was written last, if it ends in damage: what its end held is unknown. If a later segment has any
   * record, the lost ones were written again. Those before `serial` do not matter.
   */
  async findUnknownEnd(serial: number): Promise<Segment | undefined> {
    const timeline = this.history.at(-1)?.number;
    const newestFirst = this.segments
      .filter((segment) => segment.timeline === timeline && segment.serial >= serial)
      .toSorted((one, other) => other.serial - one.serial);
    for (const segment of newestFirst) {
      const { last, after = 0 } = segment;
      // The name of a closed one tells its end.
      const found = last === undefined ? await this.readSegment(segment) : undefined;
      if (found?.isEndUnknown === true) return segment;
      if ((last ?? 0) > after || (found?.runs.length ?? 0) > 0) return undefined;
    }
    return undefined;
  }

  /** Whether what was read has an end that cannot be read: then more may have been listed than is known. */
  get hasUnknownEnd(): boolean {
    return [...this.knownSegments.values()].some(
      ({ isEndUnknown, faults }) => isEndUnknown || faults.length > 0,
    );
  }

  /** Truncates a segment where it does not fit what comes before it. */
  distrust(segment: Segment, reached: number, fault: string): void {
    const found = this.knownSegments.get(segment.name);
    if (found === undefined) return;
    const runs = found.runs
      .filter(({ after }) => after < reached)
      .map(({ after, last }) => ({ after, last: Math.min(last, reached) }));
    this.knownSegments.set(segment.name, { ...found, runs, faults: [...found.faults, fault] });
  }

  furthest(): number {
    const { copies, segments } = this.know();
    return findFurthest(copies, segments, this.history);
  }

  reachable(): readonly Run[] {
    const { copies, segments } = this.know();
    return listReachable(copies, segments, this.history);
  }

  /** What was found to be damaged, of all that was read. */
  listDamage(): readonly Damage[] {
    const damage: Damage[] = [];
    for (const [name, { fault }] of this.knownCopies)
      if (fault !== undefined) damage.push({ name, faults: [fault] });
    for (const [name, { faults, isTorn }] of this.knownSegments) {
      const torn = isTorn ? ["its last record is incomplete"] : [];
      if (faults.length + torn.length > 0) damage.push({ name, faults: [...faults, ...torn] });
    }
    return damage;
  }
}

export interface FoundStore {
  readonly store: string;
  readonly label: string;
  readonly pieces: readonly AnyPiece[];
}

/** Of one store, or of all. */
export async function listPieces(place: Place, store?: string): Promise<readonly AnyPiece[]> {
  const pieces = (await place.list()).flatMap((file) => findPiece(file) ?? []);
  return store === undefined ? pieces : pieces.filter((piece) => piece.store === store);
}

/** The stores that have pieces in a place. Backups of version 1.0 are identified by their label. */
export async function listStores(place: Place): Promise<readonly FoundStore[]> {
  const pieces = await listPieces(place);
  const byStore = Map.groupBy(pieces, ({ store }) => store);
  return Array.from(byStore, ([store, own]) => {
    const newest = own.findLast((piece) => !isOld(piece)) ?? own[0];
    return { store, label: newest?.label ?? store, pieces: own };
  });
}
