/** Detects the encoding of a file and converts it to UTF-8. */

import type { Fault } from "../domain/errors.ts";
import { createFault } from "../domain/faults.ts";
import { Bytes, MalformedFile } from "./records.ts";

export const encodings = ["utf-8", "utf-16le", "utf-16be", "windows-1252"] as const;
export type Encoding = (typeof encodings)[number];

/** The file is not UTF-8. Reading it in another encoding is a guess that a person has to confirm. */
export class WrongEncoding extends MalformedFile {
  override readonly name = "WrongEncoding";
  readonly guess: Encoding = "windows-1252";

  constructor() {
    super([createFault("notUtf8")]);
  }
}

export interface DecodeOptions {
  readonly encoding?: Encoding | undefined;
  readonly onEncoding?: ((encoding: Encoding) => void) | undefined;
}

/**
 * Converts to UTF-8, without a byte order mark. With `mayGuess`, the first character beyond ASCII decides between UTF-8
 * and Windows-1252, which throws a WrongEncoding. Throws a MalformedFile for a workbook or an archive.
 */
export async function* toUtf8(
  chunks: AsyncIterable<Uint8Array>,
  { encoding, onEncoding }: DecodeOptions,
  mayGuess: boolean,
): AsyncGenerator<Uint8Array> {
  let found: Encoding | undefined;
  let decode = passOn;
  let isDecided = encoding !== undefined || !mayGuess;
  for await (const chunk of joinShort(chunks)) {
    let bytes = chunk;
    if (found === undefined) {
      refuseBinary(chunk, false);
      const isMarked = beginsWith(chunk, UTF8_MARK);
      // Rejects files have the mark, whatever encoding their source had.
      found = isMarked ? "utf-8" : (encoding ?? findUnicode(chunk));
      if (isMarked) bytes = chunk.subarray(UTF8_MARK.length);
      if (found !== "utf-8") {
        isDecided = true;
        onEncoding?.(found);
        decode = createDecoder(found);
      }
    }
    const first = isDecided ? -1 : bytes.findIndex((byte) => byte >= 0x80);
    if (first !== -1) {
      // If the chunk ends inside a character, it counts as UTF-8.
      const start = bytes.subarray(first, first + 4);
      const [character] = new TextDecoder().decode(start, { stream: true });
      if (character === "\ufffd" && !beginsWith(start, [0xef, 0xbf, 0xbd]))
        throw new WrongEncoding();
      isDecided = true;
    }
    yield decode(bytes);
  }
  yield decode();
}

const passOn = (bytes: Uint8Array = new Uint8Array()): Uint8Array => bytes;

const START_BYTES = 12;

/** Makes each chunk but the last long enough for its file signature. */
async function* joinShort(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const short = new Bytes();
  for await (const chunk of chunks)
    if (short.length + chunk.length < START_BYTES) short.add(chunk);
    else yield short.take(chunk);
  if (short.length > 0) yield short.take();
}

/** Undefined stands for any byte. */
type Signature = readonly (number | undefined)[];

const any = undefined;

const pictures: readonly Signature[] = [
  // PNG, JPEG, GIF, TIFF (both byte orders), WebP, and HEIC or a video.
  [0x89, 0x50, 0x4e, 0x47],
  [0xff, 0xd8, 0xff],
  [0x47, 0x49, 0x46, 0x38],
  [0x49, 0x49, 0x2a, 0x00],
  [0x4d, 0x4d, 0x00, 0x2a],
  [0x52, 0x49, 0x46, 0x46, any, any, any, any, 0x57, 0x45, 0x42, 0x50],
  [any, any, any, any, 0x66, 0x74, 0x79, 0x70],
];

type Binary = readonly [signature: Signature, ...faults: Fault[]];

const askForTable = createFault("askForTable");

const binaries: readonly Binary[] = [
  [[0x50, 0x4b, 0x03, 0x04], createFault("archive")],
  [[0xd0, 0xcf, 0x11, 0xe0], createFault("oldWorkbook")],
  ...pictures.map((signature): Binary => [signature, createFault("picture"), askForTable]),
  [[0x25, 0x50, 0x44, 0x46], createFault("pdf"), askForTable],
  [[0x1f, 0x8b], createFault("compressed")],
];

/** Throws a MalformedFile if the file is neither text nor, with `mayBeArchive`, an archive. */
export function refuseBinary(start: Uint8Array, mayBeArchive: boolean): void {
  const refused = mayBeArchive ? binaries.slice(1) : binaries;
  const [, ...faults] = refused.find(([signature]) => beginsWith(start, signature)) ?? [];
  if (faults.length > 0) throw new MalformedFile(faults);
}

const beginsWith = (bytes: Uint8Array, start: Signature): boolean =>
  start.every((byte, at) => byte === any || bytes[at] === byte);

const UTF8_MARK = [0xef, 0xbb, 0xbf];

function findUnicode(start: Uint8Array): Encoding {
  const zeros = Array.from(start.subarray(0, 4), (byte) => (byte === 0 ? "0" : "x"));
  if (beginsWith(start, [0xff, 0xfe]) || zeros.join("") === "x0x0") return "utf-16le";
  if (beginsWith(start, [0xfe, 0xff]) || zeros.join("") === "0x0x") return "utf-16be";
  return "utf-8";
}

/** Call the decoder without a chunk at the end of the file. */
function createDecoder(encoding: Encoding): (chunk?: Uint8Array) => Uint8Array {
  const decoder = new TextDecoder(encoding, { fatal: true });
  const encoder = new TextEncoder();
  return (chunk) => {
    try {
      return encoder.encode(decoder.decode(chunk, { stream: chunk !== undefined }));
    } catch (error) {
      const fault = createFault("notValid", { encoding: encoding.toUpperCase() });
      throw new MalformedFile([fault], error);
    }
  };
}
