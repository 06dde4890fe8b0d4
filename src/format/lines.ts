/** Cuts a stream of bytes into lines, in constant memory. */

import type { Refusal } from "../domain/errors.ts";
import { RecordText } from "./record-text.ts";

export interface Line {
  /** Counted from 1, empty lines included. */
  readonly number: number;
  /** The text, or why there is none. */
  readonly text: string | Refusal;
}

const NEWLINE = 10;

/**
 * Lines in blocks: those that each chunk completes, but never more than `blockLengthMax` together. A line
 * over `bytesMax` is skipped, and stands as a Refusal in its place. Empty lines are left out. What has no
 * newline behind it is a line only where the stream ends as it should.
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  bytesMax: number,
  blockLengthMax: number,
): AsyncGenerator<Line[]> {
  const record = new RecordText(bytesMax);
  let number = 0;
  let block: Line[] = [];
  const endLine = (): void => {
    number++;
    const text = record.take();
    if (typeof text !== "string" || text.trim() !== "") block.push({ number, text });
  };

  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      record.add(chunk.subarray(start, end));
      endLine();
      start = end + 1;
      if (block.length === blockLengthMax) {
        yield block;
        block = [];
      }
    }
    // Copied, because the memory of the chunk may be used again.
    record.add(new Uint8Array(chunk.subarray(start)));
    if (block.length > 0) yield block;
    block = [];
  }
  if (!record.isEmpty) endLine();
  if (block.length > 0) yield block;
}
