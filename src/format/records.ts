/** Cuts streams of bytes into texts, in constant memory. */

import { Refusal } from "../domain/errors.ts";

/** The file cannot be read to its end. */
export class MalformedFile extends Error {
  override readonly name: string = "MalformedFile";
}

export interface Line {
  /** Counted from 1, empty lines included. */
  readonly number: number;
  /** The text, or why there is none. */
  readonly text: string | Refusal;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Cuts a stream into records: lines, rows or elements. A record over `bytesMax` stands as a Refusal in its place. */
abstract class RecordReader {
  protected line = 1;
  /** The line on which the record under way begins. */
  protected begunOn: number | undefined;
  private readonly bytesMax: number;
  private readonly kept = new Bytes();
  private keptLength = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** The records in blocks of at most `blockLengthMax`. The memory of a chunk may be used again after it is read. */
  async *read(
    chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    blockLengthMax: number,
  ): AsyncGenerator<Line[]> {
    for await (const chunk of chunks) {
      let block: Line[] = [];
      try {
        for (const record of this.cut(chunk)) {
          block.push(record);
          if (block.length < blockLengthMax) continue;
          yield block;
          block = [];
        }
      } catch (error) {
        // The records before the fault count.
        if (block.length > 0) yield block;
        throw error;
      }
      if (block.length > 0) yield block;
    }
    this.requireEnd();
    const last = this.begunOn === undefined ? undefined : this.take();
    if (last !== undefined && !isBlank(last)) yield [last];
  }

  /** The records that this chunk completes. One at a time: a chunk may have a million of them. */
  protected abstract cut(chunk: Uint8Array): Generator<Line>;

  /** Throws a MalformedFile if the file must not end here. */
  protected requireEnd(): void {}

  /** The first part of a record that goes on in the next chunk. */
  protected keep(part: Uint8Array): void {
    this.keptLength += part.length;
    if (this.keptLength > this.bytesMax) this.kept.take();
    else this.kept.add(part);
  }

  /** The record that ends with this part. */
  protected take(part: Uint8Array = new Uint8Array()): Line {
    const number = this.begunOn ?? this.line;
    const isTooLarge = this.keptLength + part.length > this.bytesMax;
    const bytes = this.kept.take(isTooLarge ? undefined : part);
    this.begunOn = undefined;
    this.keptLength = 0;
    if (isTooLarge) {
      const message = `The record is larger than ${this.bytesMax} bytes.`;
      return { number, text: new Refusal("body_too_large", message) };
    }
    try {
      return { number, text: utf8.decode(bytes) };
    } catch (error) {
      const message = "The record is not valid UTF-8.";
      return { number, text: new Refusal("invalid_utf8", message, error) };
    }
  }
}

const NEWLINE = 10;

/** Empty lines are left out. A last line without a newline counts if the stream ends without an error. */
export class LineReader extends RecordReader {
  protected override *cut(chunk: Uint8Array): Generator<Line> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      const line = this.take(chunk.subarray(start, end));
      this.line++;
      if (!isBlank(line)) yield line;
      start = end + 1;
    }
    if (start < chunk.length) this.begunOn = this.line;
    this.keep(chunk.subarray(start));
  }
}

const isBlank = ({ text }: Line): boolean => typeof text === "string" && text.trim() === "";

/** What a byte is: a part of a record, the end of one, or neither. */
export type Role = "part" | "end" | "between";

/** For records that end where only the bytes before tell. */
export abstract class ScanningReader extends RecordReader {
  /** Where the record under way begins in the chunk. */
  private start = 0;

  protected override *cut(chunk: Uint8Array): Generator<Line> {
    this.start = 0;
    for (let end = this.findEnd(chunk, 0); end !== -1; end = this.findEnd(chunk, end + 1)) {
      yield this.take(chunk.subarray(this.start, end));
      this.start = end + 1;
    }
    this.keep(chunk.subarray(this.start));
  }

  private findEnd(chunk: Uint8Array, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const role = this.pass(chunk[at] as number);
      if (role === "part") {
        if (this.begunOn === undefined) this.begunOn = this.line;
      } else if (role === "end") return at;
      else this.start = at + 1;
    }
    return -1;
  }

  /** Counts the lines too. */
  protected abstract pass(byte: number): Role;
}

const CAPACITY_MIN = 1024;

/** Bytes assembled from pieces of any size, without an object for each piece. */
export class Bytes {
  private buffer = new Uint8Array();
  private used = 0;

  get length(): number {
    return this.used;
  }

  /** Copies the piece. */
  add(piece: Uint8Array): void {
    const needed = this.used + piece.length;
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(needed, 2 * this.buffer.length, CAPACITY_MIN));
      grown.set(this.buffer.subarray(0, this.used));
      this.buffer = grown;
    }
    this.buffer.set(piece, this.used);
    this.used = needed;
  }

  /** All bytes, and a last piece, which is returned as it is if it is the only one. The next assembly begins. */
  take(last: Uint8Array = new Uint8Array()): Uint8Array {
    if (this.used === 0) return last;
    this.add(last);
    const taken = this.buffer.subarray(0, this.used);
    this.buffer = new Uint8Array();
    this.used = 0;
    return taken;
  }
}
