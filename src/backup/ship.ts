/**
 * Appends a store's changes to segments in a place. Where the place ends is in the note of the writer. If the names of
 * the pieces and the journal agree, nothing is read; otherwise the writer reads how far the place is whole, and
 * continues from there in a new segment.
 */

import { copyFileSync, rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { type Journal, openJournal, type Page } from "./journal.ts";
import { Lease } from "./lease.ts";
import { createFormatter, END, formatHeader } from "./log.ts";
import {
  type CheckPosition,
  joinSpans,
  nameOpenSegment,
  nameSegment,
  type Note,
  type Owner,
  type Position,
  prefixOfStaged,
  sealOf,
  type Shipped,
  type Span,
  type Timeline,
} from "./names.ts";
import { growFile, type GrowingFile, openPlace, type Place, type Source } from "./place.ts";
import {
  choosePlan,
  findNewestCopy,
  isOnHistory,
  NEWEST,
  type NewestCopy,
  type Plan,
  type Standing,
} from "./plan.ts";
import { identityOf, listPieces, Survey } from "./survey.ts";

export type Appended = Reached | Fork;

export interface Reached extends Standing {
  /** A copy that is made now builds on this segment. */
  readonly serial: number;
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

/** What was sent to webhooks is noted at this interval, if no change is. */
const CURSORS_MS = 60_000;
/** A larger segment is closed, and the next one begun. Damage to a closed segment costs all of it. */
const SEGMENT_BYTES_MAX = 8_388_608;
/** Of a segment that grows, by experience: it is packed when it is closed. */
const PACKING = 4;

interface OpenSegment {
  readonly position: Position;
  readonly after: number;
  readonly name: string;
  readonly format: (json: string) => string;
  readonly file: GrowingFile;
  bytes: number;
  last: number;
  span: Span | undefined;
}

interface Link {
  readonly place: Place;
  readonly lease: Lease;
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

export class Appender {
  private readonly source: Source;
  private link: Link | undefined;
  /** Of the connection, or of the last one. A later start is a new one. */
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
          await this.closeSegment(link);
          link.cursor = link.coverableFrom = link.journal.readNewest();
          link.isCovered = false;
          continue;
        }
        if (page.lines.length > 0) {
          await link.lease.hold();
          await this.write(link, page);
        }
        ({ hasMore } = page);
      }
      await this.note(link);
      const { cursor: change, isCovered, newest, logBytes, segment, serial } = link;
      return {
        change,
        isCovered,
        serial: segment?.position.serial ?? serial,
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
      await this.closeSegment(link);
      // Another service may have taken the lease while there was nothing to write.
      await link.lease.giveUp(this.describeShipped(link));
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
      const lease = (this.lease = new Lease(this.source, place, owner.store, this.lease));
      const { shipped, checked } = await lease.take();
      this.checked ??= checked;
      const prefix = `${prefixOfStaged(owner.store)}.`;
      await place.sweep(prefix, `${prefix}${instance}`);
      const survey = new Survey(place, await listPieces(place, owner.store), history);
      const noted = this.mustSurvey ? undefined : await findNoted(survey, journal, shipped);
      const found = noted ?? (await findEnd(survey, journal));
      place.release();
      if ("forkAbove" in found) {
        journal.close();
        place.close();
        return found;
      }
      const { cursor, isCovered } = found;
      const newest = findNewestCopy(survey.know().copies, history);
      const link: Link = {
        place,
        lease,
        owner,
        journal,
        cursor,
        serial: survey.newestSerial + 1,
        examined: survey.newestSerial + 1,
        isCovered,
        coverableFrom: isCovered ? 0 : cursor,
        newest,
        logBytes: measureLog(survey, newest?.change ?? 0),
        segment: undefined,
        noted: { shipped: "", cursors: "", sinceMs: Number.NEGATIVE_INFINITY },
      };
      // A timeline has a piece from its start: it tells a restore that this timeline is the newest.
      const { number } = history.at(-1) as Timeline;
      if (!survey.list().some(({ timeline }) => timeline === number)) {
        this.begin(link);
        if (place.grow === undefined) await this.closeSegment(link);
      }
      this.mustSurvey = false;
      return link;
    } catch (error) {
      journal?.close();
      // Removes what was downloaded, which would pile up beside the store.
      place.close();
      throw error;
    }
  }

  /** Begins a segment after the cursor. In a bucket, which has whole objects only, it is a local file until its end. */
  private begin(link: Link): OpenSegment {
    const { place, owner, journal, cursor } = link;
    const { history, schema } = journal;
    const timeline = (history.at(-1) as Timeline).number;
    const position = { ...owner, timeline, serial: link.serial++ };
    const format = createFormatter(sealOf(position, cursor));
    const header = { store: owner.store, schema, timelines: history, after: cursor };
    const text = format(formatHeader(header));
    const name = nameOpenSegment(position, cursor);
    const file = place.grow?.(name) ?? growFile(place.stage(this.prefixOf(link)));
    try {
      file.append(text);
    } catch (error) {
      file.close();
      // A disk that is full for days would have one at each attempt.
      rmSync(file.path, { force: true });
      throw error;
    }
    const end = { bytes: text.length, last: cursor, span: undefined };
    link.segment = { position, after: cursor, name, format, file, ...end };
    return link.segment;
  }

  private prefixOf = ({ owner }: Link): string =>
    `${prefixOfStaged(owner.store)}.${this.source.instance}`;

  private async write(link: Link, { lines, newest, span }: Page): Promise<void> {
    const segment = link.segment ?? this.begin(link);
    const text = lines.map(segment.format).join("");
    segment.file.append(text);
    segment.last = newest;
    segment.span = joinSpans(segment.span, span);
    segment.bytes += text.length;
    const isWhole = link.place.grow === undefined;
    const isLast = isWhole || segment.bytes >= SEGMENT_BYTES_MAX;
    const packed = isLast ? await this.closeSegment(link) : 0;
    link.logBytes += isWhole ? packed : text.length / PACKING;
    link.cursor = newest;
  }

  /** Resolves to its size in the place. */
  private async closeSegment(link: Link): Promise<number> {
    const { segment, place } = link;
    link.segment = undefined;
    if (segment === undefined) return 0;
    const { position, name, after, last, span = spanOfNow(), file } = segment;
    try {
      file.append(segment.format(END));
    } finally {
      file.close();
    }
    const isStaged = place.grow === undefined;
    const staged = isStaged ? file.path : place.stage(this.prefixOf(link));
    if (!isStaged) copyFileSync(file.path, staged);
    const bytes = await place.keep(staged, nameSegment(position, after, last, span));
    // If it is there twice, that is no damage.
    if (!isStaged) await place.remove(name);
    return bytes;
  }

  /** Notes what was written, if that differs from the note. */
  private async note(link: Link): Promise<void> {
    const { noted } = link;
    const [shipped, cursors] = [standingOf(link), JSON.stringify(link.journal.readCursors())];
    const isOlder = performance.now() - noted.sinceMs >= CURSORS_MS;
    if (shipped === noted.shipped && (cursors === noted.cursors || !isOlder)) return;
    await link.lease.note(this.describeShipped(link));
    link.noted = { shipped, cursors, sinceMs: performance.now() };
  }

  private describeShipped({ journal, cursor: change, isCovered, examined: serial }: Link): Note {
    const { history: timelines, schema } = journal;
    const block = journal.hashAt(change) ?? "";
    const shipped: Shipped = { timelines, schema, change, block, isCovered, serial };
    return {
      shipped,
      cursors: journal.readCursors(),
      ...(this.checked && { checked: this.checked }),
    };
  }
}

/** Without a copy that leads to it, where the writer is does not matter. */
const standingOf = ({ cursor, isCovered, examined, journal }: Link): string =>
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
  const { history, schema } = journal;
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
  return (await hasStray(survey, journal, change)) ? undefined : { cursor: change, isCovered };
}

/** Reads how far the place is whole, and whether the store has what is in it. */
async function findEnd(survey: Survey, journal: Journal): Promise<End | Fork> {
  const { history, schema, newest, locate } = journal;
  const own = history.at(-1) as Timeline;
  const forkAbove = survey.newestTimeline;
  const found = forkAbove > own.number ? undefined : await survey.readHistoryOf(own.number);
  if (forkAbove > own.number || (found !== undefined && found.at(-1)?.id !== own.id))
    return { forkAbove, after: undefined };
  const plan = await survey.plan(NEWEST);
  const tail = plan && (await survey.readTail(plan));
  const standing = tail && locate(tail, plan.reached);
  // Changes that no copy leads to yet count too: the next copy would lead to them.
  const isDiverged =
    standing === "unknown" || (await hasStray(survey, journal, plan?.reached ?? 0));
  if (isDiverged)
    return {
      forkAbove,
      after: standing === "known" ? plan?.reached : await findLastKnown(survey, journal, plan),
    };
  // Changes of this schema cannot be replayed on a copy of another one.
  return plan !== undefined && standing === "known"
    ? { cursor: plan.reached, isCovered: plan.copy.schema === schema }
    : { cursor: newest, isCovered: false };
}

/** Whether the place has a change after `reached` that the store never had. */
async function hasStray(survey: Survey, journal: Journal, reached: number): Promise<boolean> {
  for await (const { tail, change } of survey.readBlocksAfter(reached))
    if (journal.locate(tail, change) === "unknown") return true;
  return survey.furthest() > journal.newest;
}

/** The last state in the place that the store had, with or without a way to it; 0 if there is none. */
async function findLastKnown(
  survey: Survey,
  { locate }: Journal,
  plan: Plan | undefined,
): Promise<number> {
  const copied = plan && (await survey.readTail({ ...plan, steps: [], reached: plan.copy.change }));
  let known = copied !== undefined && locate(copied) === "known" ? copied.last : 0;
  for await (const { tail } of survey.readBlocksAfter(0))
    if (locate(tail) === "known") known = Math.max(known, tail.last);
  return known;
}

/** The size of the segments behind a change, by their names. */
const measureLog = (survey: Survey, change: number): number =>
  survey
    .listOnHistory()
    .filter(({ segment: { last = NEWEST } }) => last > change)
    .reduce((sum, { segment }) => sum + segment.bytes, 0);
