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

const NEWLINE = 10;

/** Cuts a stream into records: lines, rows or elements. A record over `bytesMax` stands as a Refusal in its place. */
export abstract class RecordReader {
  protected readonly text: RecordText;

  constructor(bytesMax: number) {
    this.text = new RecordText(bytesMax);
  }

  /** The records in blocks of at most `blockLengthMax`. */
  async *read(chunks: AsyncIterable<Uint8Array>, blockLengthMax: number): AsyncGenerator<Line[]> {
    for await (const chunk of chunks) {
      let block: Line[] = [];
      for (const record of this.cut(chunk)) {
        block.push(record);
        if (block.length < blockLengthMax) continue;
        yield block;
        block = [];
      }
      if (block.length > 0) yield block;
    }
    const last = this.end();
    if (last !== undefined) yield [last];
  }

  /** The records that this chunk completes. They need not be made before they are asked for. */
  protected abstract cut(chunk: Uint8Array): Iterable<Line>;

  /** The record that the end of the file completes. Throws a MalformedFile if the end comes too early. */
  protected abstract end(): Line | undefined;
}

/** Empty lines are left out. A last line without a newline counts if the stream ends without an error. */
export class LineReader extends RecordReader {
  private number = 0;

  /** One at a time: a chunk may have a million of them. */
  protected override *cut(chunk: Uint8Array): Generator<Line> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      this.text.add(chunk.subarray(start, end));
      const line = this.takeLine();
      if (line !== undefined) yield line;
      start = end + 1;
    }
    this.text.addCopy(chunk.subarray(start));
  }

  protected override end(): Line | undefined {
    return this.text.isEmpty ? undefined : this.takeLine();
  }

  private takeLine(): Line | undefined {
    this.number++;
    const text = this.text.take();
    return typeof text === "string" && text.trim() === ""
      ? undefined
      : { number: this.number, text };
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of one record, assembled from pieces of a stream, within a bound. */
class RecordText {
  private readonly bytesMax: number;
  private readonly kept = new Bytes();
  private length = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get isEmpty(): boolean {
    return this.length === 0;
  }

  /** Keeps the piece itself, which must not change until the text is taken. */
  add(piece: Uint8Array): void {
    this.length += piece.length;
    if (this.length > this.bytesMax) this.kept.clear();
    else this.kept.add(piece);
  }

  /** For the rest of a chunk whose memory will be used again. */
  addCopy(piece: Uint8Array): void {
    this.add(new Uint8Array(piece));
  }

  /** The text, or why there is none; the next record begins. */
  take(): string | Refusal {
    const { length } = this;
    const bytes = this.kept.take();
    this.length = 0;
    if (length > this.bytesMax)
      return new Refusal("body_too_large", `The record is larger than ${this.bytesMax} bytes.`);
    try {
      return utf8.decode(bytes);
    } catch (error) {
      return new Refusal("invalid_utf8", "The record is not valid UTF-8.", error);
    }
  }
}

const CAPACITY_MIN = 1024;

/** Bytes assembled from pieces of any size, without an object for each piece. */
export class Bytes {
  private only: Uint8Array | undefined;
  private buffer = new Uint8Array();
  private used = 0;

  get length(): number {
    return this.only?.length ?? this.used;
  }

  /** Keeps a first piece itself, which must not change until all is taken; copies the pieces after it. */
  add(piece: Uint8Array): void {
    if (piece.length === 0) return;
    if (this.length === 0) {
      this.only = piece;
      return;
    }
    if (this.only !== undefined) {
      const first = this.only;
      this.only = undefined;
      this.append(first);
    }
    this.append(piece);
  }

  /** All bytes; the next assembly begins. */
  take(): Uint8Array {
    const taken = this.only ?? this.buffer.subarray(0, this.used);
    this.clear();
    return taken;
  }

  clear(): void {
    this.only = undefined;
    this.buffer = new Uint8Array();
    this.used = 0;
  }

  private append(piece: Uint8Array): void {
    const needed = this.used + piece.length;
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(needed, 2 * this.buffer.length, CAPACITY_MIN));
      grown.set(this.buffer.subarray(0, this.used));
      this.buffer = grown;
    }
    this.buffer.set(piece, this.used);
    this.used = needed;
  }
}
