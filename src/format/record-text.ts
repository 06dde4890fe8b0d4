/** The text of one record, put together from pieces of a stream, within a bound. */

import { Refusal } from "../domain/error.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class RecordText {
  private readonly bytesMax: number;
  private pieces: Uint8Array[] = [];
  private bytes = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get isEmpty(): boolean {
    return this.bytes === 0;
  }

  /** Keeps the piece itself, which must not change until the text is taken. */
  add(piece: Uint8Array): void {
    this.bytes += piece.length;
    if (this.bytes > this.bytesMax) this.pieces = [];
    else if (piece.length > 0) this.pieces.push(piece);
  }

  /** The text, or why there is none; the next record begins. */
  take(): string | Refusal {
    const { pieces, bytes } = this;
    this.pieces = [];
    this.bytes = 0;
    if (bytes > this.bytesMax)
      return new Refusal("body_too_large", `The record is larger than ${this.bytesMax} bytes.`);
    try {
      const [only, another] = pieces;
      return utf8.decode(another === undefined ? only : Buffer.concat(pieces));
    } catch (error) {
      return new Refusal("invalid_utf8", "The record is not valid UTF-8.", error);
    }
  }
}
