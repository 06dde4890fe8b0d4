/** Cuts a stream of bytes into lines, in constant memory. */

import { Refusal } from "../domain/error.ts";

export interface Line {
  /** Counted from 1, empty lines included. */
  readonly number: number;
  /** The text, or why there is none. */
  readonly text: string | Refusal;
}

const NEWLINE = 10;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Lines in blocks: those that each chunk completes, but never more than `blockLengthMax` together. A line
 * over `lineBytesMax` is skipped, and stands as a Refusal in its place. Empty lines are left out. What the
 * last newline is missing from is a line only where the stream ends as it should.
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  lineBytesMax: number,
  blockLengthMax: number,
): AsyncGenerator<Line[]> {
  let kept: Uint8Array[] = [];
  let keptBytes = 0;
  let number = 0;
  let block: Line[] = [];

  const keep = (bytes: Uint8Array): void => {
    keptBytes += bytes.length;
    if (keptBytes > lineBytesMax) kept = [];
    else if (bytes.length > 0) kept.push(bytes);
  };
  const endLine = (): void => {
    number++;
    const text =
      keptBytes > lineBytesMax
        ? new Refusal("body_too_large", `The line is larger than ${lineBytesMax} bytes.`)
        : decodeLine(kept);
    kept = [];
    keptBytes = 0;
    if (typeof text !== "string" || text.trim() !== "") block.push({ number, text });
  };

  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      keep(chunk.subarray(start, end));
      endLine();
      start = end + 1;
      if (block.length === blockLengthMax) {
        yield block;
        block = [];
      }
    }
    // Copied, because the runtime may use the chunk's memory again.
    keep(new Uint8Array(chunk.subarray(start)));
    if (block.length > 0) yield block;
    block = [];
  }
  if (keptBytes > 0) endLine();
  if (block.length > 0) yield block;
}

function decodeLine(parts: readonly Uint8Array[]): string | Refusal {
  try {
    const [only, another] = parts;
    return utf8.decode(another === undefined ? only : Buffer.concat(parts));
  } catch (error) {
    return new Refusal("invalid_utf8", "The line is not valid UTF-8.", error);
  }
}
