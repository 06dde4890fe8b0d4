/**
 * Appends a store's changes to segments in a place. Where the place ends is in the note of the writer. If the names of
 * the pieces and the journal agree, nothing is read; otherwise the writer reads how far the place is whole, and
 * continues from there in a new segment.
 */

import type { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { getSchemaVersion, openReadOnly, watchFile } from "../store/sqlite/database.ts";
import type { BlockRow } from "../store/journal.ts";
import type { Source } from "./order.ts";
import {
  type CheckPosition,
  findPiece,
  joinSpans,
  nameNote,
  nameOpenSegment,
  nameSegment,
  type Note,
  type Owner,
  parseNote,
  type Position,
  prefixOfStaged,
  sealOf,
  type Shipped,
  type Span,
  type Timeline,
} from "./piece.ts";
import { type GrowingFile, openPlace, type Place } from "./place.ts";
import { choosePlan, isOnHistory, NEWEST, type NewestCopy } from "./plan.ts";
import { hasEnded, nameProcess } from "./scratch.ts";
import { createFormatter, END, findTail, formatHeader, hashTail, type Tail } from "./segment.ts";
import { identityOf, readCursors, readHistory, readPoint, Survey } from "./survey.ts";

export type Appended = Reached | Fork;

/** Every change up to this one is in the place. Without `isCovered`, only together with a new copy. */
export interface Reached {
  readonly change: number;
  readonly isCovered: boolean;
  /** A copy that is made now builds on this segment. */
  readonly serial: number;
  readonly newest: NewestCopy | undefined;
  /** The packed size of the segments behind the newest copy. */
  readonly logBytes: number;
  /** How far an earlier run has looked for rot. */
  readonly checked: CheckPosition | undefined;
}

/** The place holds a future that this store does not have, so the store needs a new timeline. */
interface Fork {
  /** Its number is above this one. */
  readonly forkAbove: number;
  /** The last change that both have; undefined for the newest of the store. */
  readonly after: number | undefined;
}

/** A writer that writes renews its lease this often, and loses it after three times as long. */
const LEASE_MS = 20_000;
const LEASE_LOST_MS = 3 * LEASE_MS;
/** What was sent to webhooks is noted at this interval, if no change is. */
const CURSORS_MS = 60_000;
/** A larger segment is closed, and the next one begun. Damage to a closed segment costs all of it. */
const SEGMENT_BYTES_MAX = 8_388_608;
/** The size of one write and sync. */
const WRITE_CHARACTERS = 4_194_304;
/** A segment that grows is not packed yet. */
const PACKING = 4;

interface OpenSegment {
  readonly after: number;
  readonly serial: number;
  readonly format: (json: string) => string;
  readonly file: GrowingFile;
  bytes: number;
  last: number;
  span: Span | undefined;
}

type Journal = ReturnType<typeof readJournal>;

interface Link {
  readonly place: Place;
  readonly owner: Owner;
  readonly journal: Journal;
  /** The last change in the place. */
  cursor: number;
  /** The number of the next segment. */
  serial: number;
  /** Segments before this one do not matter where they are damaged. */
  readonly examined: number;
  /** Whether a copy and whole segments lead to the cursor. */
  isCovered: boolean;
  /** Only a copy of this change, or of a later one, leads to the cursor. */
  coverableFrom: number;
  newest: NewestCopy | undefined;
  logBytes: number;
  segment: OpenSegment | undefined;
  noted: { readonly shipped: string; readonly cursors: string; readonly sinceMs: number };
}

/** The note as this writer knows it. */
interface Lease {
  readonly text: string;
  readonly isOwn: boolean;
  /** When it was written by this writer, or first seen. */
  readonly sinceMs: number;
  /** When it was read last. */
  readonly readMs: number;
}

export class Appender {
  private readonly source: Source;
  private link: Link | undefined;
  private lease: Lease | undefined;
  private checked: CheckPosition | undefined;
  /** Damage was found: names prove nothing. */
  private mustSurvey = false;

  private readonly open: typeof openPlace;

  /** `open` is the place's own, unless a test lets it fail. */
  constructor(source: Source, open = openPlace) {
    this.source = source;
    this.open = open;
  }

  /** What was committed before it began is in the place when it resolves. After an error it starts over. */
  async append(checked = this.checked): Promise<Appended> {
    this.checked = checked;
    try {
      const link = this.link ?? (await this.connect());
      if ("forkAbove" in link) return link;
      this.link = link;
      // A file that was changed by hand is noticed also if there is nothing to write.
      link.segment?.file.append("");
      for (let hasMore = true; hasMore;) {
        const page = link.journal.readPage(link.cursor);
        // The journal does not continue what is in the place: it was trimmed, or switched off for a while.
        if (page === undefined) {
          this.closeSegment(link);
          link.cursor = link.coverableFrom = link.journal.readNewest();
          link.isCovered = false;
          continue;
        }
        if (page.lines.length > 0) {
          await this.holdLease(link);
          await this.write(link, page);
        }
        ({ hasMore } = page);
      }
      await this.note(link);
      const { cursor: change, isCovered, newest, logBytes, segment, serial } = link;
      return {
        change,
        isCovered,
        serial: segment?.serial ?? serial,
        newest,
        logBytes,
        checked: this.checked,
      };
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

  /** A copy was made: it and the segments after it lead to every later change. */
  cover(copy: NewestCopy): void {
    const { link } = this;
    if (link === undefined || copy.change < link.coverableFrom) return;
    Object.assign(link, { isCovered: true, newest: copy, logBytes: 0 });
  }

  disconnect(): void {
    this.link?.segment?.file.close();
    this.link?.journal.close();
    this.link?.place.close();
    this.link = undefined;
  }

  /** Damage was found: the next append reads how far the place is whole. */
  recheck(): void {
    this.mustSurvey = true;
    this.disconnect();
  }

  /** Closes the open segment, and lets another service write at once. */
  async finish(): Promise<void> {
    const { link } = this;
    if (link === undefined) return;
    try {
      this.closeSegment(link);
      // Another service may have taken the lease while there was nothing to write.
      await this.holdLease(link);
      await this.writeNote(link, {});
    } finally {
      this.lease = undefined;
      this.disconnect();
    }
  }

  private async connect(): Promise<Link | Fork> {
    const { from, to, label, instance } = this.source;
    const place = await this.open(to, dirname(resolve(from)));
    let journal: Journal | undefined;
    try {
      journal = openJournal(from);
      const { history } = journal;
      const owner = { label, store: identityOf(history) };
      const { shipped, checked } = await this.takeLease(place, owner.store);
      this.checked ??= checked;
      const prefix = `${prefixOfStaged(owner.store)}.`;
      await place.sweep(prefix, `${prefix}${instance}`);
      const pieces = (await place.list()).flatMap((file) => findPiece(file) ?? []);
      const survey = new Survey(
        place,
        pieces.filter(({ store }) => store === owner.store),
      );
      const noted = this.mustSurvey ? undefined : await findNoted(survey, journal, shipped);
      const found = noted ?? (await findEnd(survey, journal));
      place.release();
      if ("forkAbove" in found) {
        journal.close();
        place.close();
        return found;
      }
      const { cursor, isCovered } = found;
      const newest = survey.findNewestCopy(history);
      const link: Link = {
        place,
        owner,
        journal,
        cursor,
        serial: survey.newestSerial + 1,
        examined: survey.newestSerial + 1,
        isCovered,
        coverableFrom: isCovered ? 0 : cursor,
        newest,
        logBytes: survey.measureLog(history, newest?.change ?? 0),
        segment: undefined,
        noted: { shipped: "", cursors: "", sinceMs: Number.NEGATIVE_INFINITY },
      };
      // A timeline has a piece from its start: it tells a restore that this timeline is the newest.
      if (!survey.hasPiece((history.at(-1) as Timeline).number)) await this.begin(link);
      this.mustSurvey = false;
      return link;
    } catch (error) {
      journal?.close();
      // Removes what was downloaded, which would pile up beside the store.
      place.close();
      throw error;
    }
  }

  /** Begins a segment after the cursor. A bucket has whole objects only, so there it is an empty one. */
  private async begin(link: Link): Promise<void> {
    if (link.place.grow === undefined)
      await this.put(link, { lines: [], newest: link.cursor, span: undefined });
    else this.grow(link, link.place.grow);
  }

  private grow(link: Link, grow: NonNullable<Place["grow"]>): OpenSegment {
    const { cursor, owner } = link;
    const position = this.nextPosition(link);
    const format = createFormatter(sealOf(position, cursor));
    const text = format(this.formatHeader(link));
    const prefix = `${prefixOfStaged(owner.store)}.${this.source.instance}`;
    const file = grow(nameOpenSegment(position, cursor), prefix);
    const { serial } = position;
    try {
      file.append(text);
    } catch (error) {
      file.close();
      throw error;
    }
    const end = { bytes: text.length, last: cursor, span: undefined };
    link.segment = { after: cursor, serial, format, file, ...end };
    return link.segment;
  }

  private nextPosition(link: Link): Position {
    const timeline = (link.journal.history.at(-1) as Timeline).number;
    return { ...link.owner, timeline, serial: link.serial++ };
  }

  private async write(link: Link, page: Page): Promise<void> {
    const { grow } = link.place;
    const { lines, newest } = page;
    if (grow === undefined) link.logBytes += await this.put(link, page);
    else {
      const segment = link.segment ?? this.grow(link, grow);
      const text = lines.map(segment.format).join("");
      segment.file.append(text);
      segment.last = newest;
      segment.span = joinSpans(segment.span, page.span);
      segment.bytes += text.length;
      link.logBytes += text.length / PACKING;
      if (segment.bytes >= SEGMENT_BYTES_MAX) this.closeSegment(link);
    }
    link.cursor = newest;
  }

  private async put(
    link: Link,
    { lines, newest, span }: Pick<Page, "lines" | "newest" | "span">,
  ): Promise<number> {
    const { place, owner, cursor } = link;
    const position = this.nextPosition(link);
    const format = createFormatter(sealOf(position, cursor));
    const staged = place.stage(`${prefixOfStaged(owner.store)}.${this.source.instance}`);
    writeFileSync(staged, [this.formatHeader(link), ...lines, END].map(format).join(""));
    return place.keep(staged, nameSegment(position, cursor, newest, span ?? spanOfNow()));
  }

  private formatHeader({ owner, journal, cursor }: Link): string {
    const { schema, history } = journal;
    return formatHeader({ store: owner.store, schema, timelines: history, after: cursor });
  }

  private closeSegment(link: Link): void {
    const { segment, owner, journal } = link;
    link.segment = undefined;
    if (segment === undefined) return;
    const { serial, after, last, span = spanOfNow(), file } = segment;
    const timeline = (journal.history.at(-1) as Timeline).number;
    try {
      file.append(segment.format(END));
      file.finish(nameSegment({ ...owner, timeline, serial }, after, last, span));
    } finally {
      file.close();
    }
  }

  /** Notes what was written, if that differs from the note. */
  private async note(link: Link): Promise<void> {
    const { noted } = link;
    const [shipped, cursors] = [describeShipped(link), JSON.stringify(link.journal.readCursors())];
    const isOlder = performance.now() - noted.sinceMs >= CURSORS_MS;
    if (shipped === noted.shipped && (cursors === noted.cursors || !isOlder)) return;
    await this.holdLease(link);
    await this.writeNote(link, this.describeHolder());
    link.noted = { shipped, cursors, sinceMs: performance.now() };
  }

  private async writeNote(link: Link, holder: Note): Promise<void> {
    const { place, owner, journal, cursor: change, isCovered, examined: serial } = link;
    const { history: timelines, schema } = journal;
    const block = journal.hashAt(change) ?? "";
    const shipped: Shipped = { timelines, schema, change, block, isCovered, serial };
    const { checked } = this;
    const text = JSON.stringify({ ...holder, shipped, cursors: journal.readCursors(), checked });
    if (await this.replaceNote(place, owner.store, this.lease?.text, text)) return;
    // It was removed, or another service took the lease: then this throws.
    await this.takeLease(place, owner.store);
    if (!(await this.replaceNote(place, owner.store, this.lease?.text, text)))
      throw contested(place);
  }

  private async replaceNote(
    place: Place,
    store: string,
    before: string | undefined,
    text: string,
    readMs = this.lease?.readMs ?? Number.NEGATIVE_INFINITY,
  ): Promise<boolean> {
    const sinceMs = performance.now();
    if (!(await place.writeNote(nameNote(store), text, before))) return false;
    this.lease = { text, isOwn: true, sinceMs, readMs };
    return true;
  }

  private describeHolder() {
    const { from } = this.source;
    const { ino, birthtimeNs } = statSync(from, { bigint: true });
    return {
      holder: `${hostname()}:${resolve(from)}`,
      // The same file may be seen under another name, as by a container that was created again.
      file: `${ino}-${birthtimeNs}`,
      instance: this.source.instance,
      process: nameProcess(),
      beat: randomBytes(6).toString("hex"),
    };
  }

  private async holdLease({ place, owner }: Link): Promise<void> {
    const { lease } = this;
    const freshMs = performance.now() - LEASE_MS;
    if (lease?.isOwn === true && lease.sinceMs > freshMs) {
      if (lease.readMs > freshMs) return;
      // A server that ignores conditions lets another writer replace the note unseen.
      const readMs = performance.now();
      const text = await place.readNote(nameNote(owner.store));
      if (text === lease.text) return void (this.lease = { ...lease, readMs });
    }
    await this.takeLease(place, owner.store);
  }

  /**
   * One writer for a store and a place. A copied store file has the same identity, so the holder is a file on a machine.
   * A holder that is silent loses the lease after a while, by our clock, or at once if its process has ended. A service
   * that starts takes the lease of an earlier one on the same file at once; if that one still runs, it gives way. A
   * writer without anything to write is silent, and asks again before it writes. Resolves to the note that it found.
   */
  private async takeLease(place: Place, store: string): Promise<Note> {
    const nowMs = performance.now();
    const { lease } = this;
    const own = this.describeHolder();
    for (let tries = 0; tries < TAKES_MAX; tries++) {
      const text = await place.readNote(nameNote(store));
      const note = parseNote(text);
      const isSameFile = note.holder === own.holder || note.file === own.file;
      const isFree =
        note.holder === undefined ||
        note.instance === own.instance ||
        (lease === undefined && isSameFile) ||
        (note.process !== undefined && hasEnded(note.process) === true);
      if (!isFree) {
        const known = lease?.text === text ? lease : undefined;
        this.lease = known ?? { text: text ?? "", isOwn: false, sinceMs: nowMs, readMs: nowMs };
        if (nowMs - this.lease.sinceMs < LEASE_LOST_MS)
          throw new StoreOpenError(
            `Another service writes the backups of this store to ${place.url}: ${note.holder}. This one writes none. If the other one is gone, this one takes over after ${LEASE_LOST_MS / 1000} seconds.`,
          );
      }
      const taken = JSON.stringify({ ...note, ...own });
      if (await this.replaceNote(place, store, text, taken, nowMs)) return note;
    }
    throw contested(place);
  }
}

/** How often a note is replaced by others while this one takes the lease. */
const TAKES_MAX = 3;

const contested = ({ url }: Place): StoreOpenError =>
  new StoreOpenError(`Another service takes the lease in ${url} at this moment.`);

/** Without a copy that leads to it, where the writer is does not matter. */
const describeShipped = ({ cursor, isCovered, examined, journal }: Link): string =>
  [isCovered ? cursor : "", examined, journal.history.at(-1)?.id].join(" ");

/** Of a segment without a change. */
const spanOfNow = (): Span => ({ fromMs: Date.now(), toMs: Date.now() });

interface End {
  readonly cursor: number;
  readonly isCovered: boolean;
}

/** The end that the note tells, if names and journal agree with it. Reads only what was written after the note. */
async function findNoted(
  survey: Survey,
  journal: Journal,
  shipped: Shipped | undefined,
): Promise<End | undefined> {
  const { history, schema, newest } = journal;
  const own = history.at(-1) as Timeline;
  if (shipped === undefined || shipped.schema !== schema) return undefined;
  const { change, isCovered, block, timelines } = shipped;
  if (timelines.at(-1)?.id !== own.id || survey.newestTimeline > own.number) return undefined;
  if (journal.hashAt(change) !== block) return undefined;
  const { copies, segments } = await survey.readUnnamed();
  // A copy that is newer than the note may be of a state that the store was rolled back from.
  if (copies.some((copy) => isOnHistory(history, copy) && copy.change > change)) return undefined;
  if (isCovered && (choosePlan(copies, segments, history, NEWEST)?.reached ?? 0) < change)
    return undefined;
  const isDiverged = await survey.hasStray(history, change, newest, journal.locate);
  return isDiverged ? undefined : { cursor: change, isCovered };
}

/** Reads how far the place is whole, and whether the store has what is in it. */
async function findEnd(survey: Survey, journal: Journal): Promise<End | Fork> {
  const { history, schema, newest, locate } = journal;
  const own = history.at(-1) as Timeline;
  const forkAbove = survey.newestTimeline;
  if (forkAbove > own.number || (await survey.hasTimeline(own.number, own.id)) === false)
    return { forkAbove, after: undefined };
  const plan = await survey.plan(history, NEWEST);
  const tail = plan && (await survey.readTail(plan));
  const standing = tail && locate(tail, plan.reached);
  // Changes that no copy leads to yet count too: the next copy would lead to them.
  const isDiverged =
    standing === "unknown" || (await survey.hasStray(history, plan?.reached ?? 0, newest, locate));
  const isKnown = (one: Tail): boolean => locate(one) === "known";
  if (isDiverged)
    return {
      forkAbove,
      after:
        standing === "known" ? plan?.reached : await survey.findLastKnown(history, plan, isKnown),
    };
  // Changes of this schema cannot be replayed on a copy of another one.
  return plan !== undefined && standing === "known"
    ? { cursor: plan.reached, isCovered: plan.copy.schema === schema }
    : { cursor: newest, isCovered: false };
}

/** The journal began later, or a break follows, before which it may have had the change. */
const IS_TRIMMED = `SELECT 1 FROM (SELECT first > last AS isBreak FROM changes WHERE last > ?1 ORDER BY last LIMIT 1)
  WHERE isBreak OR ?1 < (SELECT min(last) FROM changes)`;

interface Page {
  readonly lines: readonly string[];
  readonly newest: number;
  /** Of the lines; undefined if there is none. */
  readonly span: Span | undefined;
  readonly hasMore: boolean;
}

/** Reads the store's journal as lines of a segment. */
function openJournal(from: string) {
  const assertNotMoved = watchFile(from);
  const db = openReadOnly(from);
  try {
    return readJournal(db, from, assertNotMoved);
  } catch (error) {
    db.close(true);
    throw error;
  }
}

function readJournal(db: Database, from: string, assertNotMoved: () => void) {
  /** Lines after `cursor`, from one snapshot; undefined if the journal does not continue it. */
  const readPage = db.transaction((cursor: number): Page | undefined => {
    assertNotMoved();
    const { change } = readPoint(db);
    if (db.query("SELECT 1 FROM changes WHERE last = ?").get(cursor) === null) return undefined;
    const blocks: string[] = [];
    let newest = cursor;
    let span: Span | undefined;
    let characters = 0;
    const rows = db.query<BlockRow, [number]>("SELECT * FROM changes WHERE last > ? ORDER BY last");
    for (const row of rows.iterate(cursor)) {
      // A break: changes were made that the journal does not have.
      if (row.first > row.last) return undefined;
      const json = `{"after":${newest},"first":${row.first},"last":${row.last},"at":${row.at_ms},"entries":${row.entries}}`;
      blocks.push(json);
      newest = Number(row.last);
      const atMs = Number(row.at_ms);
      span = joinSpans(span, { fromMs: atMs, toMs: atMs });
      characters += json.length;
      if (characters >= WRITE_CHARACTERS) break;
    }
    return { lines: blocks, newest, span, hasMore: newest < change };
  });

  return {
    history: readHistory(db),
    schema: getSchemaVersion(db, from),
    newest: readPoint(db).change,
    readPage,
    readNewest: () => readPoint(db).change,
    readCursors: () => readCursors(db),
    hashAt: (change: number): string | undefined => {
      const tail = findTail(db, change);
      return tail && hashTail(tail);
    },
    close: (): void => db.close(true),
    /**
     * `known`: the journal continues it. `trimmed`: it is too old, or was made without a journal. `unknown`: this store
     * never had it. A number alone proves nothing: a store that was rolled back assigns it again if the clock was set
     * back too.
     */
    locate: (tail: Tail, change = tail.last): "known" | "trimmed" | "unknown" => {
      const own = findTail(db, change);
      if (own !== undefined) {
        const isSame = own.first === tail.first && own.at === tail.at;
        return isSame && (tail.last !== change || own.text === tail.text) ? "known" : "unknown";
      }
      return db.query(IS_TRIMMED).get(change) === null ? "unknown" : "trimmed";
    },
  };
}
