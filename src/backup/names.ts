/**
 * The pieces of a backup. A copy is a whole store; a segment holds the changes after a change. A name says what a piece
 * holds: which store, which timeline, which changes. The order of pieces is by timeline and change, never by a clock.
 */

import { basename, resolve } from "node:path";
import type { FoundFile } from "./place.ts";

/** A restore starts a new timeline. */
export interface Timeline {
  readonly number: number;
  /** Random. Two restores of one backup have the same number and another id. */
  readonly id: string;
  /** The last change that it shares with the timeline before it. */
  readonly after: number;
}

interface Piece extends FoundFile {
  /** What people call the store: the name of its file. */
  readonly label: string;
  /** The identity of the store. Backups of version 1.0 have none; then it is the label. */
  readonly store: string;
  readonly timeline: number;
  /** Segments are numbered in the order in which they were begun. A copy holds all that came before this one. */
  readonly serial: number;
}

export interface Copy extends Piece {
  readonly kind: "copy";
  /** The last change in it; undefined if only its content tells. */
  readonly change: number | undefined;
  /** When it was made, by the wall clock at that time. For people. */
  readonly atMs: number;
  /** The start of the SHA-256 of its seal and its bytes; undefined in backups of version 1.0. */
  readonly digest: string | undefined;
}

export interface Segment extends Piece {
  readonly kind: "segment";
  /** The change that its first record follows; undefined if only its content tells. */
  readonly after: number | undefined;
  /** Its last change; undefined while it is open. */
  readonly last: number | undefined;
  /** By the wall clock at that time, in whole seconds. For people, and for a restore to a time. */
  readonly span: Span | undefined;
}

/** The earliest and the latest time of changes. The clock may have been set in between. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

export const joinSpans = (one: Span | undefined, other: Span | undefined): Span | undefined =>
  one === undefined || other === undefined
    ? (one ?? other)
    : { fromMs: Math.min(one.fromMs, other.fromMs), toMs: Math.max(one.toMs, other.toMs) };

export type AnyPiece = Copy | Segment;

export interface Owner {
  readonly label: string;
  readonly store: string;
}

/** File systems allow 255 bytes for a name, and a piece says more than its label. */
const LABEL_BYTES_MAX = 120;

/** The name of the store's file, without its ending, and cut if it is long. */
export function labelOf(path: string): string {
  const bytes = new Uint8Array(LABEL_BYTES_MAX);
  const { written } = new TextEncoder().encodeInto(
    basename(path).replace(/(?<=.)\.db$/, ""),
    bytes,
  );
  return new TextDecoder().decode(bytes.subarray(0, written));
}

export const DIGEST_DIGITS = 16;
const PREFIX = String.raw`^(.+)-([0-9a-f]{16})-t(\d{4,9})-s(\d{8,15})-(\d{16})`;
const TIME = String.raw`(\d{8}T\d{6}Z)`;
const COPY = new RegExp(String.raw`${PREFIX}-${TIME}-([0-9a-f]{16})\.db\.zst$`);
const SEGMENT = new RegExp(String.raw`${PREFIX}-(\d{16})-${TIME}-${TIME}\.changes\.zst$`);
const OPEN = new RegExp(String.raw`${PREFIX}-open\.changes$`);
/** A name of version 1.0: a copy, or the log of the changes after it. */
const OLD = /^(.+)-(\d{8}T\d{6}Z)\.(db|changes)$/;

export interface Position extends Owner {
  readonly timeline: number;
  readonly serial: number;
}

const pad = (value: number, digits: number): string => String(value).padStart(digits, "0");

const prefixOf = ({ label, store, timeline, serial }: Position, change: number): string =>
  `${label}-${store}-t${pad(timeline, 4)}-s${pad(serial, 8)}-${pad(change, 16)}`;

export function nameCopy(position: Position, change: number, atMs: number, digest: string): string {
  return `${prefixOf(position, change)}-${formatTime(atMs)}-${digest.slice(0, DIGEST_DIGITS)}.db.zst`;
}

export const nameSegment = (
  position: Position,
  after: number,
  last: number,
  { fromMs, toMs }: Span,
): string =>
  `${prefixOf(position, after)}-${pad(last, 16)}-${formatTime(fromMs)}-${formatTime(toMs)}.changes.zst`;

/** In a folder the segment that is being written grows. */
export const nameOpenSegment = (position: Position, after: number): string =>
  `${prefixOf(position, after)}-open.changes`;

/** The last time with a year of four digits. */
const TIME_MAX_MS = Date.UTC(10_000, 0) - 1;

const formatTime = (atMs: number): string =>
  new Date(Math.max(0, Math.min(atMs, TIME_MAX_MS))).toISOString().replaceAll(/[-:]|\.\d+/g, "");

/**
 * What the name of a piece says of its place in the order: store, timeline, serial and first change. Its checksums cover
 * this too, so a piece under the name of another is damaged. Version 1.0 did without.
 */
export const sealOf = (position: Position, change: number | undefined): string =>
  position.timeline === 0 ? "" : prefixOf({ ...position, label: "" }, change ?? 0);

/**
 * The one file that is replaced: who writes backups of the store to the place, and what was sent to webhooks. The label
 * is not in it: two files may be one store.
 */
export const nameNote = (store: string): string => `plantstore-${store}.writer`;

/** The start of the names of files that are being prepared. */
export const prefixOfStaged = (store: string): string => `plantstore-${store}`;

/** The note is one object, replaced as a whole. Each member may be missing: a note may be torn, or of another version. */
export interface Note {
  /** The writer; undefined after a clean stop. */
  readonly holder?: string;
  readonly file?: string;
  readonly instance?: string;
  /** The machine of the holder, since its last boot. */
  readonly boot?: string | undefined;
  /** Of the process that holds it, by `nameProcess`. */
  readonly process?: string;
  /** Differs in every note. */
  readonly beat?: string;
  readonly shipped?: Shipped;
  readonly cursors?: Cursors;
  readonly checked?: CheckPosition;
}

/** How far the slow check of old pieces is. */
export interface CheckPosition {
  /** The piece that was read last. */
  readonly after: string;
  /** The part of all pieces that is due, which adds up until it is a piece. */
  readonly share: number;
}

/** What the place has, as its writer knows it. */
export interface Shipped {
  readonly timelines: readonly Timeline[];
  readonly schema: number;
  /** Every change up to this one. */
  readonly change: number;
  /** The hash of the block that ends with it: a number alone may be given again. */
  readonly block: string;
  /** A copy leads to it. */
  readonly isCovered: boolean;
  /** The end of each segment before this one was read, or does not matter. */
  readonly serial: number;
}

/** The last change that was sent to each webhook. One of the same name may be another webhook: then its time differs. */
export type Cursors = Readonly<Record<string, readonly [createdAtMs: number, cursor: number]>>;

export function parseNote(text: string | undefined): Note {
  try {
    return Object(JSON.parse(text ?? "{}")) as Note;
  } catch {
    // Torn by a crash.
    return {};
  }
}

/** Where a proof restores, beside the store. */
export const nameProof = (from: string, instance: string): string =>
  `${resolve(from)}.${instance}.proof.tmp`;

export const isProof = (from: string, name: string): boolean =>
  name.startsWith(basename(from)) &&
  /^\.[0-9a-f]{12}\.proof\.tmp(-\w+)?$/.test(name.slice(basename(from).length));

/** Undefined for a file that is not a piece. */
export function findPiece({ name, bytes }: FoundFile): AnyPiece | undefined {
  const copy = COPY.exec(name);
  const found = copy ?? SEGMENT.exec(name) ?? OPEN.exec(name);
  if (found !== null) {
    const [, label = "", store = "", timeline, serial, change, ...rest] = found;
    const numbers = { timeline: Number(timeline), serial: Number(serial) };
    const piece = { name, bytes, label, store, ...numbers };
    if (copy === null) {
      const [last, ...times] = rest;
      const [fromMs, toMs] = times.map(parseTime);
      const span = fromMs === undefined || toMs === undefined ? undefined : { fromMs, toMs };
      const named = last === undefined || span === undefined ? undefined : Number(last);
      return { kind: "segment", ...piece, after: Number(change), last: named, span };
    }
    const [time = "", digest] = rest;
    const atMs = parseTime(time);
    if (atMs === undefined) return undefined;
    return { kind: "copy", ...piece, change: Number(change), atMs, digest };
  }
  const [, label = "", time = "", ending] = OLD.exec(name) ?? [];
  const atMs = parseTime(time);
  if (atMs === undefined) return undefined;
  const old = { name, bytes, label, store: label, timeline: 0, serial: 0 };
  return ending === "db"
    ? { kind: "copy", ...old, change: undefined, atMs, digest: undefined }
    : { kind: "segment", ...old, after: undefined, last: undefined, span: undefined };
}

/** Whether version 1.0 made it. */
export const isOld = ({ timeline }: Piece): boolean => timeline === 0;

function parseTime(time: string): number | undefined {
  const atMs = Date.parse(time.replace(/(....)(..)(..T..)(..)(..Z)/, "$1-$2-$3:$4:$5"));
  return Number.isNaN(atMs) ? undefined : atMs;
}
