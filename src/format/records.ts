/** Splits byte streams into records, in constant memory: lines, and the elements of a JSON array. */

import { type Fault, Refusal } from "../domain/errors.ts";
import { createFault, type PlantLimits, sayFault, sayFaults } from "../domain/faults.ts";

export class MalformedFile extends Error {
  override readonly name: string = "MalformedFile";
  readonly faults: readonly Fault[];

  constructor(faults: readonly Fault[], cause?: unknown) {
    super(sayFaults(faults), cause === undefined ? undefined : { cause });
    this.faults = faults;
  }
}

/** Allowance for the id: a record may be the export of the largest plant that PUT accepts. */
const ID_BYTES_MAX = 64;

export const recordBytesMaxOf = ({ bodyBytesMax }: Pick<PlantLimits, "bodyBytesMax">): number =>
  bodyBytesMax + ID_BYTES_MAX;

/** Counted from 1, empty lines included. A Refusal says why there is no text. */
export type Line = Readonly<{ number: number; text: string | Refusal }>;

// A byte order mark is kept, so the JSON parser refuses it (RFC 8259, section 8.1).
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The runtime's own `text()` would silently replace invalid bytes. */
export function decodeUtf8(bytes: Uint8Array, ...faults: readonly Fault[]): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    throw new Refusal("invalid_utf8", sayFaults(faults) || undefined, error, faults);
  }
}

export type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** Splits a stream into records: lines, rows or elements. A record over `bytesMax` is replaced by a Refusal. */
export abstract class RecordReader {
  protected line = 1;
  protected begunOn = 1;
  private readonly bytesMax: number;
  private readonly kept = new Bytes();
  private keptLength = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /**
   * Yields blocks of at most `blockLengthMax` records, and an empty block after as many that were skipped: the caller
   * decides when others have their turn. The memory of a chunk may be reused after it is read.
   */
  async *read(chunks: Chunks, blockLengthMax: number): AsyncGenerator<Line[]> {
    for await (const chunk of chunks) {
      let block: Line[] = [];
      let skipped = 0;
      try {
        for (const record of this.cut(chunk)) {
          if (this.accept(record)) block.push(record);
          else skipped++;
          if (Math.max(block.length, skipped) < blockLengthMax) continue;
          yield block;
          block = [];
          skipped = 0;
        }
      } catch (error) {
        // The records before the fault are still valid.
        if (block.length > 0) yield block;
        throw error;
      }
      if (block.length > 0) yield block;
    }
    this.requireEnd();
    const last = this.take(new Uint8Array());
    if (this.accept(last)) yield [last];
  }

  /** Yields the records that this chunk completes, one at a time: a chunk may have a million of them. */
  private *cut(chunk: Uint8Array): Generator<Line> {
    let start = 0;
    for (;;) {
      if (this.keptLength === 0) start = this.skipEmpty(chunk, start);
      const end = this.findEnd(chunk, start);
      if (end === -1) break;
      const record = this.take(chunk.subarray(start, end));
      start = end + 1;
      yield record;
    }
    this.keep(chunk.subarray(start));
  }

  /** The index of the next record. Only saves time: `accept` skips empty records too. */
  protected skipEmpty(_chunk: Uint8Array, from: number): number {
    return from;
  }

  /** The index of the byte that ends the current record, or -1. Counts the lines up to it. */
  protected abstract findEnd(chunk: Uint8Array, from: number): number;

  /** Whether it is a record. Empty ones are skipped. */
  protected accept({ text }: Line): boolean {
    return typeof text !== "string" || text.trim() !== "";
  }

  /** Throws a MalformedFile if the file must not end here. */
  protected requireEnd(): void {}

  private keep(part: Uint8Array): void {
    this.keptLength += part.length;
    if (this.keptLength > this.bytesMax) this.kept.take();
    else this.kept.add(part);
  }

  private take(part: Uint8Array): Line {
    const number = this.begunOn;
    const isTooLarge = this.keptLength + part.length > this.bytesMax;
    const bytes = this.kept.take(isTooLarge ? undefined : part);
    this.begunOn = this.line;
    this.keptLength = 0;
    if (isTooLarge) {
      const fault = createFault("recordTooLarge", { bytes: this.bytesMax });
      return { number, text: new Refusal("body_too_large", sayFault(fault), undefined, [fault]) };
    }
    try {
      return { number, text: decodeUtf8(bytes, createFault("recordNotUtf8")) };
    } catch (error) {
      return { number, text: error as Refusal };
    }
  }
}

const [TAB, NEWLINE, RETURN, SPACE] = [9, 10, 13, 32];

/** A last line without a newline counts if the stream ends without an error. */
export class LineReader extends RecordReader {
  /** Without a record for each: 200 kB of gzip are 49 million empty lines. */
  protected override skipEmpty(chunk: Uint8Array, from: number): number {
    let start = from;
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === NEWLINE) {
        start = at + 1;
        this.begunOn = ++this.line;
      } else if (byte !== SPACE && !(byte >= TAB && byte <= RETURN)) break;
    }
    return start;
  }

  protected override findEnd(chunk: Uint8Array, from: number): number {
    const end = chunk.indexOf(NEWLINE, from);
    if (end !== -1) this.line++;
    return end;
  }
}

const [QUOTE, COMMA, BACKSLASH] = [34, 44, 92];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125];

/**
 * The raw elements of a JSON array. It looks only for the end of each element, so a bad one affects no other. A missing
 * element between two commas is skipped. Throws a MalformedFile if there is no array, or it has no end.
 */
export class ElementReader extends RecordReader {
  /** Open brackets of either kind. The first is the array's own. */
  private depth = 0;
  private isOver = false;
  private string: "none" | "open" | "escaping" = "none";
  /** The record so far is white space. */
  private isBlank = true;

  protected override findEnd(chunk: Uint8Array, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === NEWLINE) this.line++;
      if (this.string === "escaping") this.string = "open";
      else if (this.string === "open") {
        if (byte === BACKSLASH) this.string = "escaping";
        else if (byte === QUOTE) this.string = "none";
      } else if (byte > SPACE) {
        this.isBlank = this.passStructure(byte);
        if (this.isBlank) return at;
      } else if (this.isBlank) this.begunOn = this.line;
    }
    return -1;
  }

  /** Whether the byte ends a record. The bracket that opens the array ends the white space before it. */
  private passStructure(byte: number): boolean {
    const before = this.depth;
    if (this.isOver) throw new MalformedFile([createFault("afterArray", { line: this.line })]);
    if (before === 0 && byte !== OPEN_ARRAY)
      throw new MalformedFile([createFault("noArray", { line: this.line })]);
    if (byte === QUOTE) this.string = "open";
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.depth++;
    else if (byte === CLOSE_ARRAY || (byte === CLOSE_OBJECT && before > 1)) this.depth--;
    this.isOver = this.depth < before && this.depth === 0;
    return before + this.depth === 1 || (before === 1 && byte === COMMA);
  }

  protected override requireEnd(): void {
    if (this.isOver) return;
    throw new MalformedFile([
      this.depth === 0
        ? createFault("emptyArray")
        : createFault("openArray", { line: this.begunOn }),
    ]);
  }
}

const CAPACITY_MIN = 1024;

/** Bytes assembled from chunks of any size, without an object for each chunk. */
export class Bytes {
  private buffer: Uint8Array;
  private used = 0;

  constructor(capacity = 0) {
    this.buffer = new Uint8Array(capacity);
  }

  get length(): number {
    return this.used;
  }

  add(chunk: Uint8Array): void {
    const needed = this.used + chunk.length;
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(needed, 2 * this.buffer.length, CAPACITY_MIN));
      grown.set(this.buffer.subarray(0, this.used));
      this.buffer = grown;
    }
    this.buffer.set(chunk, this.used);
    this.used = needed;
  }

  /** Returns all bytes and a last chunk, uncopied if it is the only one, and starts over. */
  take(last: Uint8Array = new Uint8Array()): Uint8Array {
    if (this.used === 0) return last;
    this.add(last);
    const taken = this.buffer.subarray(0, this.used);
    this.buffer = new Uint8Array();
    this.used = 0;
    return taken;
  }
}
