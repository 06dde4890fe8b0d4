/**
 * Appends a store's changes to segments in a place. It never appends to what it has not verified: at its start, and
 * after any failure, it reads how far the place is whole, and continues from there in a new segment.
 */

import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { getSchemaVersion, openReadOnly, watchFile } from "../store/sqlite/database.ts";
import type { BlockRow } from "../store/journal.ts";
import type { Source } from "./order.ts";
import {
  findPiece,
  nameNote,
  nameSegment,
  type Owner,
  type Position,
  prefixOfStaged,
  sealOf,
  type Timeline,
} from "./piece.ts";
import { type GrowingFile, openPlace, type Place } from "./place.ts";
import { NEWEST } from "./plan.ts";
import {
  type Cursors,
  createFormatter,
  END,
  formatHeader,
  findTail,
  isWhole,
  type Tail,
} from "./segment.ts";
import { identityOf, readCursors, readHistory, readPoint, Survey } from "./survey.ts";

export type Appended =
  /** Every change up to this one is in the place. Without `isCovered`, only together with a new copy. */
  | {
      readonly change: number;
      readonly isCovered: boolean;
      readonly newest: NewestCopy | undefined;
    }
  | Fork;

/** The place holds a future that this store does not have, so the store needs a new timeline. */
interface Fork {
  /** Its number is above this one. */
  readonly forkAbove: number;
  /** The last change that both have; undefined for the newest of the store. */
  readonly after: number | undefined;
}

/** When the newest copy was made, by the wall clock at that time. */
export interface NewestCopy {
  readonly atMs: number;
  readonly bytes: number;
}

/** The writer of a place renews its lease this often, and loses it after three times as long. */
const LEASE_MS = 20_000;
const LEASE_LOST_MS = 3 * LEASE_MS;
/** A larger segment is closed, and the next one begun. */
const SEGMENT_BYTES_MAX = 67_108_864;
/** The size of one write and sync. */
const WRITE_CHARACTERS = 4_194_304;

interface OpenSegment {
  readonly after: number;
  readonly serial: number;
  readonly format: (json: string) => string;
  readonly file: GrowingFile;
  bytes: number;
}

interface Link {
  readonly place: Place;
  readonly owner: Owner;
  readonly history: readonly Timeline[];
  readonly schema: number;
  readonly readPage: ReturnType<typeof openJournal>["readPage"];
  readonly readCursors: () => Cursors;
  readonly close: () => void;
  /** The last change in the place. */
  cursor: number;
  /** The number of the next segment. */
  serial: number;
  /** Whether a copy and whole segments lead to the cursor. */
  isCovered: boolean;
  readonly newest: NewestCopy | undefined;
  segment: OpenSegment | undefined;
  /** The last segment that this connection began. */
  begun: { readonly after: number; readonly serial: number } | undefined;
  /** Segments that the new one replaces. */
  superseded: readonly string[];
}

export class Appender {
  private readonly source: Source;
  private link: Link | undefined;
  private lease: { text: string; readonly isOwn: boolean; sinceMs: number } | undefined;

  private readonly open: typeof openPlace;

  /** `open` is the place's own, unless a test lets it fail. */
  constructor(source: Source, open = openPlace) {
    this.source = source;
    this.open = open;
  }

  /** What was committed before it began is in the place when it resolves. After an error it starts over. */
  async append(): Promise<Appended> {
    try {
      const link = this.link ?? (await this.connect());
      if ("forkAbove" in link) return link;
      this.link = link;
      await this.holdLease(link.place, link.owner.store, link.readCursors);
      for (let hasMore = true; hasMore;) {
        const page = link.readPage(link.cursor);
        // The journal does not continue what is in the place: it was trimmed, or switched off for a while.
        if (page === undefined) {
          await this.begin(link, link.readPage(undefined)?.newest ?? link.cursor);
          link.isCovered = false;
          continue;
        }
        await this.write(link, page.lines, page.newest);
        ({ newest: link.cursor, hasMore } = page);
      }
      for (const name of link.superseded) await link.place.remove(name);
      link.superseded = [];
      const { cursor, isCovered, newest } = link;
      return { change: cursor, isCovered, newest };
    } catch (error) {
      throw this.giveUp(error);
    }
  }

  /** The open segment no longer counts as verified. */
  private giveUp(error: unknown): StoreOpenError {
    this.disconnect();
    if (error instanceof StoreOpenError) return error;
    // Random file names are cut out, so that the same reason is logged once.
    const why = (error as Error).message.replaceAll(/\.[0-9a-f]{12}\.tmp/g, "");
    return new StoreOpenError(`${this.source.to} cannot be written: ${why}`);
  }

  /** Begins a segment for a copy to build on: the copy has everything in those before. Resolves to its serial. */
  async roll(): Promise<number> {
    const { link } = this;
    if (link === undefined) throw new StoreOpenError(`${this.source.to} is not connected.`);
    try {
      if (link.begun?.after !== link.cursor) await this.begin(link, link.cursor);
      return link.begun?.serial ?? link.serial;
    } catch (error) {
      throw this.giveUp(error);
    }
  }

  /** A copy was made: it and the segments from here on lead to every later change. */
  cover(): void {
    if (this.link !== undefined) this.link.isCovered = true;
  }

  /** Reads from the place again how far it is whole, before the next append. */
  disconnect(): void {
    this.link?.segment?.file.close();
    this.link?.close();
    this.link?.place.close();
    this.link = undefined;
  }

  /** Closes the open segment, and lets another service write at once. */
  async finish(): Promise<void> {
    const { link } = this;
    if (link === undefined) return;
    this.closeSegment(link);
    const cursors = link.readCursors();
    await link.place.writeNote(nameNote(link.owner.store), JSON.stringify({ cursors }));
    this.disconnect();
  }

  private async connect(): Promise<Link | Fork> {
    const { from, to, label, instance } = this.source;
    const place = await this.open(to, dirname(resolve(from)));
    const journal = openJournal(from);
    try {
      const { history, schema, newest } = journal;
      const owner = { label, store: identityOf(history) };
      await this.holdLease(place, owner.store, journal.readCursors);
      const prefix = `${prefixOfStaged(owner.store)}.`;
      await place.sweep(prefix, `${prefix}${instance}`);
      const pieces = (await place.list()).flatMap((file) => findPiece(file) ?? []);
      const survey = new Survey(
        place,
        pieces.filter(({ store }) => store === owner.store),
      );
      const own = history.at(-1) as Timeline;
      const isAhead =
        survey.newestTimeline > own.number ||
        (await survey.hasTimeline(own.number, own.id)) === false;
      const plan = isAhead ? undefined : await survey.plan(history, NEWEST);
      const tail = plan && (await survey.readTail(plan));
      const standing = tail && journal.locate(tail, plan.reached);
      const locate = (one: Tail, at?: number) => journal.locate(one, at);
      const isKnown = (one: Tail): boolean => locate(one) === "known";
      // Changes that no copy leads to yet count too: the next copy would lead to them.
      const isDiverged =
        standing === "unknown" ||
        (!isAhead && (await survey.hasStray(history, plan?.reached ?? 0, newest, locate)));
      const common =
        isDiverged && standing !== "known"
          ? await survey.findLastKnown(history, plan, isKnown)
          : plan?.reached;
      place.release();
      if (isAhead || isDiverged) {
        journal.close();
        place.close();
        return { forkAbove: survey.newestTimeline, after: isAhead ? undefined : common };
      }
      const link: Link = {
        place,
        owner,
        history,
        schema,
        readPage: journal.readPage,
        readCursors: journal.readCursors,
        close: journal.close,
        cursor: plan !== undefined && standing === "known" ? plan.reached : newest,
        serial: survey.newestSerial + 1,
        // Changes of this schema cannot be replayed on a copy of another one.
        isCovered: plan?.copy.schema === schema && standing === "known",
        newest: survey.findNewestCopy(history),
        segment: undefined,
        begun: undefined,
        superseded: [],
      };
      link.superseded = survey.segments
        .filter(({ timeline, after }) => timeline === own.number && after === newest)
        .map(({ name }) => ({ name, found: survey.knownSegments.get(name) }))
        // A damaged segment stays: what it held is unknown, and a restore says so.
        .filter(({ found }) => found !== undefined && found.runs.length === 0 && isWhole(found))
        .map(({ name }) => name);
      // At once, not with the first change: the segment tells a restore that this timeline is the newest.
      await this.begin(link, link.cursor);
      return link;
    } catch (error) {
      journal.close();
      // Removes what was downloaded, which would pile up beside the store.
      place.close();
      throw error;
    }
  }

  /** Begins a segment after `cursor`. A bucket has whole objects only, so there it is an empty one. */
  private async begin(link: Link, cursor: number): Promise<void> {
    this.closeSegment(link);
    link.cursor = cursor;
    const { place } = link;
    link.begun = { after: cursor, serial: link.serial };
    if (place.grow === undefined) return this.put(link, [], cursor);
    const position = this.nextPosition(link);
    const format = createFormatter(sealOf(position, cursor));
    const file = place.grow(nameSegment(position, cursor, "open"));
    const text = format(this.formatHeader(link));
    file.append(text);
    link.segment = { after: cursor, serial: position.serial, format, file, bytes: text.length };
  }

  private nextPosition(link: Link): Position {
    const timeline = (link.history.at(-1) as Timeline).number;
    return { ...link.owner, timeline, serial: link.serial++ };
  }

  private async write(link: Link, lines: readonly string[], newest: number): Promise<void> {
    const { segment } = link;
    if (segment === undefined)
      return lines.length === 0 ? undefined : this.put(link, lines, newest);
    const text = lines.map(segment.format).join("");
    segment.file.append(text);
    segment.bytes += text.length;
    if (segment.bytes >= SEGMENT_BYTES_MAX) await this.begin(link, newest);
  }

  private async put(link: Link, lines: readonly string[], last: number): Promise<void> {
    const { place, owner, cursor } = link;
    const position = this.nextPosition(link);
    const format = createFormatter(sealOf(position, cursor));
    const staged = place.stage(`${prefixOfStaged(owner.store)}.${this.source.instance}`);
    writeFileSync(staged, [this.formatHeader(link), ...lines, END].map(format).join(""));
    await place.keep(staged, nameSegment(position, cursor, last));
  }

  private formatHeader({ owner, schema, history, cursor, readPage }: Link): string {
    const newest = readPage(undefined)?.newest ?? cursor;
    return formatHeader({ store: owner.store, schema, timelines: history, after: cursor, newest });
  }

  private closeSegment(link: Link): void {
    const { segment, owner, history, cursor } = link;
    link.segment = undefined;
    if (segment === undefined) return;
    const timeline = (history.at(-1) as Timeline).number;
    segment.file.append(segment.format(END));
    segment.file.finish(
      nameSegment({ ...owner, timeline, serial: segment.serial }, segment.after, cursor),
    );
    segment.file.close();
  }

  /**
   * One writer for a store and a place. A copied store file has the same identity, so the holder is a file on a machine.
   * A holder that dies loses the lease after a while without a sign of life, by our clock. A service that starts takes
   * the lease of an earlier one on the same file at once; if that one still runs, it gives way.
   */
  private async holdLease(place: Place, store: string, findCursors: () => Cursors): Promise<void> {
    const nowMs = performance.now();
    const { lease } = this;
    if (lease?.isOwn === true && nowMs - lease.sinceMs < LEASE_MS) return;
    const holder = `${hostname()}:${resolve(this.source.from)}`;
    const { instance } = this.source;
    const name = nameNote(store);
    const text = await place.readNote(name);
    const other = text === undefined ? undefined : findHolder(text);
    const isOurs =
      other?.instance === instance || (lease === undefined && other?.holder === holder);
    if (text !== undefined && other !== undefined && !isOurs) {
      const known = lease?.text === text ? lease : undefined;
      this.lease = known ?? { text, isOwn: false, sinceMs: nowMs };
      if (nowMs - this.lease.sinceMs < LEASE_LOST_MS)
        throw new StoreOpenError(
          `Another service writes the backups of this store to ${place.url}: ${other.holder}. This one writes none. If the other one is gone, this one takes over after ${LEASE_LOST_MS / 1000} seconds.`,
        );
    }
    const beat = randomBytes(6).toString("hex");
    const own = JSON.stringify({ holder, instance, beat, cursors: findCursors() });
    await place.writeNote(name, own);
    this.lease = { text: own, isOwn: true, sinceMs: nowMs };
  }
}

interface Holder {
  readonly holder: string;
  readonly instance?: string;
}

function findHolder(text: string): Holder | undefined {
  try {
    const found = JSON.parse(text) as Partial<Holder>;
    return typeof found.holder === "string" ? (found as Holder) : undefined;
  } catch {
    // Torn by a crash.
    return undefined;
  }
}

/** The journal began later, or a break follows, before which it may have had the change. */
const IS_TRIMMED = `SELECT 1 FROM (SELECT first > last AS isBreak FROM changes WHERE last > ?1 ORDER BY last LIMIT 1)
  WHERE isBreak OR ?1 < (SELECT min(last) FROM changes)`;

/** Reads the store's journal as lines of a segment. */
function openJournal(from: string) {
  const assertNotMoved = watchFile(from);
  const db = openReadOnly(from);

  /** Lines after `cursor`, from one snapshot; undefined if the journal does not continue it. */
  const readPage = db.transaction((cursor: number | undefined) => {
    assertNotMoved();
    const { change } = readPoint(db);
    if (cursor === undefined) return { lines: [], newest: change, hasMore: false };
    if (db.query("SELECT 1 FROM changes WHERE last = ?").get(cursor) === null) return undefined;
    const blocks: string[] = [];
    let newest = cursor;
    let characters = 0;
    const rows = db.query<BlockRow, [number]>("SELECT * FROM changes WHERE last > ? ORDER BY last");
    for (const row of rows.iterate(cursor)) {
      // A break: changes were made that the journal does not have.
      if (row.first > row.last) return undefined;
      const json = `{"after":${newest},"first":${row.first},"last":${row.last},"at":${row.at_ms},"entries":${row.entries}}`;
      blocks.push(json);
      newest = Number(row.last);
      characters += json.length;
      if (characters >= WRITE_CHARACTERS) break;
    }
    return { lines: blocks, newest, hasMore: newest < change };
  });

  return {
    history: readHistory(db),
    schema: getSchemaVersion(db, from),
    newest: readPoint(db).change,
    readPage,
    readCursors: () => readCursors(db),
    close: (): void => db.close(true),
    /**
     * `known`: the journal continues it. `trimmed`: it is too old, or was made without a journal. `unknown`: this store
     * never had it. A number alone proves nothing: a store that was rolled back assigns it again if the clock was set
     * back too.
     */
    locate(tail: Tail, change = tail.last): "known" | "trimmed" | "unknown" {
      const own = findTail(db, change);
      if (own !== undefined) {
        const isSame = own.first === tail.first && own.at === tail.at;
        return isSame && (tail.last !== change || own.text === tail.text) ? "known" : "unknown";
      }
      return db.query(IS_TRIMMED).get(change) === null ? "unknown" : "trimmed";
    },
  };
}
