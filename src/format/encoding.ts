/** Which encoding a file has, and its bytes as UTF-8. */

import { Bytes, MalformedFile } from "./records.ts";

export const encodings = ["utf-8", "utf-16le", "utf-16be", "windows-1252"] as const;
export type Encoding = (typeof encodings)[number];

/** The file is not UTF-8. Reading it in another encoding is a guess that a person has to confirm. */
export class WrongEncoding extends MalformedFile {
  override readonly name = "WrongEncoding";
  readonly guess: Encoding = "windows-1252";

  constructor() {
    super("The file is not in UTF-8. It seems to be in Windows-1252, as Excel saves plain CSV.");
  }
}

export interface DecodeOptions {
  /** Detected if not given. */
  readonly encoding?: Encoding | undefined;
  /** Called if the file turns out to be in another encoding than UTF-8. */
  readonly onEncoding?: ((encoding: Encoding) => void) | undefined;
}

/**
 * The same text as UTF-8, without a byte order mark. UTF-16 is recognised by its mark or by the zeros of its first
 * letters. Where `mayGuess`, the first character beyond ASCII decides between UTF-8 and Windows-1252, and the
 * latter throws a WrongEncoding. Throws a MalformedFile for a workbook or an archive.
 */
export async function* toUtf8(
  chunks: AsyncIterable<Uint8Array>,
  { encoding, onEncoding }: DecodeOptions,
  mayGuess: boolean,
): AsyncGenerator<Uint8Array> {
  let decode: ReturnType<typeof createDecoder> | undefined;
  let isDecided = encoding !== undefined || !mayGuess;
  for await (const chunk of withLongStart(chunks)) {
    let bytes = chunk;
    if (decode === undefined) {
      refuseBinary(chunk, false);
      const isMarked = beginsWith(chunk, UTF8_MARK);
      // Rejects have the mark, whatever the encoding of their file was.
      const found = isMarked ? "utf-8" : (encoding ?? findUnicode(chunk));
      if (found !== "utf-8") {
        isDecided = true;
        onEncoding?.(found);
      } else if (isMarked) bytes = chunk.subarray(UTF8_MARK.length);
      decode = createDecoder(found);
    }
    if (!isDecided) {
      const first = bytes.findIndex((byte) => byte >= 0x80);
      if (first !== -1 && !beginsUtf8(bytes.subarray(first, first + 4))) throw new WrongEncoding();
      isDecided = first !== -1;
    }
    yield decode(bytes);
  }
  const rest = decode?.();
  if (rest !== undefined && rest.length > 0) yield rest;
}

const START_BYTES = 4;

/** Joins the first chunks until there is enough to recognise a file by. */
async function* withLongStart(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const start = new Bytes();
  let isLong = false;
  for await (const chunk of chunks) {
    if (isLong) yield chunk;
    else start.add(chunk);
    if (isLong || start.length < START_BYTES) continue;
    isLong = true;
    yield start.take();
  }
  if (start.length > 0) yield start.take();
}

const binaries: readonly (readonly [signature: readonly number[], message: string])[] = [
  [
    [0x50, 0x4b, 0x03, 0x04],
    "The file is a workbook or an archive, not text. Read a workbook (.xlsx) as one, or save it as CSV.",
  ],
  [
    [0xd0, 0xcf, 0x11, 0xe0],
    "The file is an old Excel workbook (.xls), or has a password. Save it as .xlsx without a password.",
  ],
  [[0x1f, 0x8b], "The file is compressed with gzip. Unpack it and import what is inside."],
];

/** Throws a MalformedFile if the file is neither text nor, where it may be one, an archive. */
export function refuseBinary(start: Uint8Array, mayBeArchive: boolean): void {
  const refused = mayBeArchive ? binaries.slice(1) : binaries;
  const found = refused.find(([signature]) => beginsWith(start, signature));
  if (found !== undefined) throw new MalformedFile(found[1]);
}

const beginsWith = (bytes: Uint8Array, start: readonly number[]): boolean =>
  start.every((byte, at) => bytes[at] === byte);

const UTF8_MARK = [0xef, 0xbb, 0xbf];

/** UTF-16 has a mark, or zeros in its first letters. */
function findUnicode(start: Uint8Array): Encoding {
  const zeros = Array.from(start.subarray(0, START_BYTES), (byte) => (byte === 0 ? "0" : "x"));
  if (beginsWith(start, [0xff, 0xfe]) || zeros.join("") === "x0x0") return "utf-16le";
  if (beginsWith(start, [0xfe, 0xff]) || zeros.join("") === "0x0x") return "utf-16be";
  return "utf-8";
}

/** Whether a character of UTF-8 begins here. Where the chunk ends too soon to tell, it does. */
function beginsUtf8(bytes: Uint8Array): boolean {
  const [first = 0] = bytes;
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, length), { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** The function is called without a chunk at the end of the file. */
function createDecoder(encoding: Encoding): (chunk?: Uint8Array) => Uint8Array {
  if (encoding === "utf-8") return (chunk = new Uint8Array()) => chunk;
  const decoder = new TextDecoder(encoding, { fatal: true });
  const encoder = new TextEncoder();
  return (chunk) => {
    try {
      return encoder.encode(decoder.decode(chunk, { stream: chunk !== undefined }));
    } catch (error) {
      throw new MalformedFile(`The file is not valid ${encoding.toUpperCase()}.`, { cause: error });
    }
  };
}
