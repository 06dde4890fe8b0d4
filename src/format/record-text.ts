/** The text of one record, put together from pieces of a stream, within a bound. */

import { Refusal } from "../domain/errors.ts";
import { Bytes } from "./bytes.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class RecordText {
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
