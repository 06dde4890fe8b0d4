/** Excel workbooks (.xlsx): the rows of a sheet as CSV, read in bounded memory. */

import { formatCell, UNUSABLE } from "./csv.ts";
import { refuseBinary } from "./encoding.ts";
import { MalformedFile } from "./records.ts";

/** A small archive can unpack to almost anything. */
export const workbookLimits = {
  /** Excel's own. */
  rowsMax: 1_048_576,
  rowCharactersMax: 8_000_000,
  /** Of the sheet, which is read piece by piece. */
  sheetBytesMax: 2_000_000_000,
  /** Of each other part, which is kept in memory. */
  partBytesMax: 200_000_000,
};

interface RowOptions {
  /** The first one if not given. */
  readonly sheet?: string | undefined;
  /** Shorter rows get empty cells. */
  readonly columnsMin?: number;
  /** From 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

export interface Workbook {
  readonly sheets: readonly string[];
  /**
   * The sheet as CSV with commas. Line breaks outside quotes count its rows. Every row has as many cells as the first;
   * what stands to the right of them has no heading.
   */
  readonly readRows: (options: RowOptions) => AsyncGenerator<Uint8Array>;
}

const NOT_A_WORKBOOK = "The file is damaged, or is not a workbook (.xlsx).";

/** Throws a MalformedFile. */
export async function openWorkbook(file: Blob, limits = workbookLimits): Promise<Workbook> {
  refuseBinary(new Uint8Array(await file.slice(0, 4).arrayBuffer()), true);
  const archive = await readArchive(file);
  const readPart = async (path: string): Promise<string> => {
    let text = "";
    for await (const piece of unpack(file, archive.get(path), limits.partBytesMax)) text += piece;
    return text;
  };

  const book = findPart(readLinks("", await readPart("_rels/.rels")), "officeDocument");
  const [, folder = "", name = ""] = /^(.*\/)?([^/]*)$/.exec(book) ?? [];
  const links = readLinks(folder, await readPart(`${folder}_rels/${name}.rels`));
  const bookXml = await readPart(book);
  const sheets = new Map<string, string>();
  for (const [, , attributes = ""] of bookXml.matchAll(elements("sheet"))) {
    const link = links.find(({ id }) => id === findAttribute(attributes, String.raw`\w+:id`));
    if (link?.type.endsWith("/worksheet") === true)
      sheets.set(findAttribute(attributes, "name") ?? "", link.path);
  }
  const [firstSheet] = sheets.keys();
  if (firstSheet === undefined) throw new MalformedFile(NOT_A_WORKBOOK);

  const readCells = async (): Promise<CellReader> => {
    const [stylesPath, stringsPath] = [findPart(links, "styles"), findPart(links, "sharedStrings")];
    const styles = archive.has(stylesPath) ? await readPart(stylesPath) : "";
    const texts: string[] = [];
    if (archive.has(stringsPath)) {
      const pieces = unpack(file, archive.get(stringsPath), limits.partBytesMax);
      for await (const [, , , item = ""] of readElements(pieces, "si", limits))
        texts.push(readText(item));
    }
    const is1904 = /<(\w+:)?workbookPr\s[^<>]*date1904="(1|true)"/.test(bookXml);
    return { texts, dateStyles: findDateStyles(styles), is1904 };
  };

  let cells: Promise<CellReader> | undefined;
  const readRows = async function* (options: RowOptions): AsyncGenerator<Uint8Array> {
    const { sheet = firstSheet, columnsMin = 1, onProgress } = options;
    const path = sheets.get(sheet);
    if (path === undefined) {
      const known = [...sheets.keys()].map((one) => JSON.stringify(one)).join(", ");
      throw new MalformedFile(`No sheet is called ${JSON.stringify(sheet)}; there is ${known}.`);
    }
    // Once for all readers: a workbook may have a million texts.
    const reader = await (cells ??= readCells());
    const encoder = new TextEncoder();
    const pieces = unpack(file, archive.get(path), limits.sheetBytesMax, onProgress);
    let number = 0;
    let width: number | undefined;
    let csv = "";
    for await (const [, , attributes = "", inner = ""] of readElements(pieces, "row", limits)) {
      const given = Number(findAttribute(attributes, "r") ?? number + 1);
      if (!(given > number)) throw new MalformedFile(NOT_A_WORKBOOK);
      if (given > limits.rowsMax)
        throw new MalformedFile(`The sheet has more than ${limits.rowsMax} rows.`);
      const row = readRow(inner, reader);
      if (row.length > 0) width ??= Math.max(columnsMin, row.length);
      // The empty rows before this one count, too.
      csv += "\n".repeat(given - number - 1);
      if (row.length > 0)
        csv += Array.from({ length: width ?? 0 }, (_, column) => row[column] ?? "").join(",");
      csv += "\n";
      number = given;
      if (csv.length < CSV_PIECE_CHARACTERS) continue;
      yield encoder.encode(csv);
      csv = "";
    }
    yield encoder.encode(csv);
  };

  return { sheets: [...sheets.keys()], readRows };
}

const CSV_PIECE_CHARACTERS = 65_536;

// The archive (APPNOTE.TXT of PKWARE).

interface Entry {
  readonly start: number;
  readonly packedBytes: number;
  readonly bytes: number;
  readonly isPacked: boolean;
}

const END_BYTES = 22;
const END_BYTES_MAX = END_BYTES + 65_535;
const DIRECTORY_BYTES_MAX = 10_000_000;

async function view(file: Blob, start: number, bytes: number): Promise<DataView> {
  return new DataView(await file.slice(start, start + bytes).arrayBuffer());
}

/** The parts by their paths. */
async function readArchive(file: Blob): Promise<ReadonlyMap<string, Entry>> {
  const entries = new Map<string, Entry>();
  const tail = await view(file, Math.max(0, file.size - END_BYTES_MAX), END_BYTES_MAX);
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06_05_4b_50) end--;
  if (end < 0) throw new MalformedFile(NOT_A_WORKBOOK);
  const directoryBytes = Math.min(tail.getUint32(end + 12, true), DIRECTORY_BYTES_MAX);
  const directory = await view(file, tail.getUint32(end + 16, true), directoryBytes);
  for (let at = 0; at + 46 <= directory.byteLength;) {
    const [nameBytes = 0, extraBytes = 0, commentBytes = 0] = [28, 30, 32].map((field) =>
      directory.getUint16(at + field, true),
    );
    const name = new Uint8Array(directory.buffer, at + 46).subarray(0, nameBytes);
    if ((directory.getUint16(at + 8, true) & 1) === 1)
      throw new MalformedFile("The workbook is encrypted. Save it without a password.");
    entries.set(new TextDecoder().decode(name), {
      start: directory.getUint32(at + 42, true),
      packedBytes: directory.getUint32(at + 20, true),
      bytes: directory.getUint32(at + 24, true),
      isPacked: directory.getUint16(at + 10, true) === 8,
    });
    at += 46 + nameBytes + extraBytes + commentBytes;
  }
  return entries;
}

/** The text of a part, piece by piece. */
async function* unpack(
  file: Blob,
  entry: Entry | undefined,
  bytesMax: number,
  onProgress?: (share: number) => void,
): AsyncGenerator<string> {
  if (entry === undefined) throw new MalformedFile(NOT_A_WORKBOOK);
  const head = await view(file, entry.start, 30);
  if (head.byteLength < 30) throw new MalformedFile(NOT_A_WORKBOOK);
  const start = entry.start + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const packed = file.slice(start, start + entry.packedBytes).stream();
  const stream = entry.isPacked
    ? packed.pipeThrough(new DecompressionStream("deflate-raw"))
    : packed;
  const reader = stream.getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      bytes += value.length;
      if (bytes > bytesMax)
        throw new MalformedFile(`A part of the workbook unpacks to more than ${bytesMax} bytes.`);
      onProgress?.(Math.min(1, bytes / Math.max(1, entry.bytes)));
      yield decoder.decode(value, { stream: true });
    }
  } catch (error) {
    // A file that can no longer be read is not a damaged one.
    if (error instanceof MalformedFile || error instanceof DOMException) throw error;
    throw new MalformedFile(NOT_A_WORKBOOK, { cause: error });
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

// The XML. Elements that are looked for never contain one of their own name.

/**
 * Matches: the whole, the prefix of the namespace, the attributes, the content, the closing tag. An element that is
 * not closed reaches to the end of the text. Otherwise many of them would take quadratic time.
 */
const elements = (name: string, flags = "g"): RegExp =>
  new RegExp(
    String.raw`<(\w+:)?${name}((?:\s[^<>]*?)?)(?:/>|>([\s\S]*?)(</\1${name}\s*>|$))`,
    flags,
  );

/** In a part that is too large to keep. */
async function* readElements(
  pieces: AsyncIterable<string>,
  name: string,
  { rowCharactersMax }: typeof workbookLimits,
): AsyncGenerator<RegExpExecArray> {
  const pattern = elements(name);
  const opening = new RegExp(String.raw`<(\w+:)?${name}[\s/>]`);
  let text = "";
  for await (const piece of pieces) {
    text += piece;
    let end = 0;
    for (const found of text.matchAll(pattern)) {
      // The rest of it is in the next piece.
      if (found[4] === "") break;
      yield found;
      end = found.index + found[0].length;
    }
    text = text.slice(end);
    // Other content may be long. A tag that is cut off is short.
    if (!opening.test(text)) text = text.slice(-CUT_TAG_CHARACTERS_MAX);
    if (text.length > rowCharactersMax)
      throw new MalformedFile(`A row has more than ${rowCharactersMax} characters.`);
  }
  if (opening.test(text)) throw new MalformedFile(NOT_A_WORKBOOK);
}

const CUT_TAG_CHARACTERS_MAX = 100;

const attributePatterns = new Map<string, RegExp>();

function findAttribute(attributes: string, name: string): string | undefined {
  let pattern = attributePatterns.get(name);
  if (pattern === undefined) {
    pattern = new RegExp(String.raw`\s${name}\s*=\s*(["'])(.*?)\1`);
    attributePatterns.set(name, pattern);
  }
  const text = pattern.exec(attributes)?.[2];
  return text === undefined ? undefined : decodeXml(text);
}

const findPart = (links: readonly Link[], kind: string): string =>
  links.find(({ type }) => type.endsWith(`/${kind}`))?.path ?? "";

interface Link {
  readonly id: string | undefined;
  readonly type: string;
  readonly path: string;
}

function readLinks(folder: string, xml: string): Link[] {
  return Array.from(xml.matchAll(elements("Relationship")), ([, , attributes = ""]) => {
    const target = findAttribute(attributes, "Target") ?? "";
    return {
      id: findAttribute(attributes, "Id"),
      type: findAttribute(attributes, "Type") ?? "",
      path: target.startsWith("/") ? target.slice(1) : folder + target,
    };
  });
}

const named: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
};

function decodeXml(xml: string): string {
  if (!/[&\r]/.test(xml)) return xml;
  return xml
    .replaceAll(/\r\n?/g, "\n")
    .replaceAll(/&(?:#x([\da-f]{1,6})|#(\d{1,7})|(\w+));/gi, (whole, hex, decimal, name) => {
      if (name !== undefined) return named[name] ?? whole;
      const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
      return code > 0x10_ff_ff ? whole : String.fromCodePoint(code);
    });
}

/** ST_Xstring: characters that XML cannot hold are written `_x000D_`. */
const decodeText = (xml: string): string =>
  decodeXml(xml).replaceAll(/_x([\da-f]{4})_/gi, (_whole, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );

const [TEXT, PHONETIC] = [elements("t"), elements("rPh")];

/** All runs of a text, without the hints for its pronunciation. */
const readText = (xml: string): string =>
  Array.from(
    xml
      .replaceAll(/<!\[CDATA\[([\s\S]*?)(?:\]\]>|$)/g, (_whole, text: string) =>
        text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"),
      )
      .replaceAll(PHONETIC, "")
      .matchAll(TEXT),
    ([, , , text = ""]) => decodeText(text),
  ).join("");

// Cells.

interface CellReader {
  readonly texts: readonly string[];
  readonly dateStyles: ReadonlySet<string>;
  /** Days count from 1904 in workbooks of old Macs. */
  readonly is1904: boolean;
}

const [CELL, VALUE, FORMULA] = [elements("c"), elements("v", ""), elements("f", "")];
const COLUMNS_MAX = 16_384;

/** The cells as CSV, without the empty ones at the end. */
function readRow(xml: string, reader: CellReader): string[] {
  const row: string[] = [];
  let column = -1;
  for (const [, , attributes = "", inner = ""] of xml.matchAll(CELL)) {
    const [, letters] = /\sr="([A-Z]+)/.exec(attributes) ?? [];
    column =
      letters === undefined
        ? column + 1
        : Array.from(letters).reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0) - 1;
    if (column >= COLUMNS_MAX) throw new MalformedFile(NOT_A_WORKBOOK);
    row[column] = readCell(attributes, inner, reader);
  }
  while (row.length > 0 && !row.at(-1)) row.pop();
  return row;
}

/** Digits stay bare: an id is not text that a spreadsheet could run. */
const quote = (text: string): string => (/^-?\d+$/.test(text) ? text : formatCell(text));

function readCell(attributes: string, inner: string, reader: CellReader): string {
  const type = findAttribute(attributes, "t") ?? "n";
  if (type === "inlineStr") return quote(readText(inner));
  const [, , , written] = VALUE.exec(inner) ?? [];
  if (written === undefined) return FORMULA.test(inner) ? quote(`${UNUSABLE}=`) : "";
  const value = decodeXml(written);
  if (type === "s") {
    const text = reader.texts[Number(value)];
    if (text === undefined) throw new MalformedFile(NOT_A_WORKBOOK);
    return quote(text);
  }
  // A formula whose result is "" shows an empty cell.
  if (type === "str") return value === "" ? "" : quote(decodeText(value));
  if (type === "b") return value === "1" ? "TRUE" : "FALSE";
  if (type === "e") return quote(UNUSABLE + value);
  const number = Number(value);
  if (type !== "n" || value.trim() === "" || Number.isNaN(number)) return quote(value);
  const isDate = reader.dateStyles.has(findAttribute(attributes, "s") ?? "0");
  if (isDate && number >= 0 && number < DAYS_MAX) return formatDate(number, reader.is1904);
  // Spreadsheets keep 15 digits. A longer number has lost its last ones already.
  if (Math.abs(number) >= 1e15) return quote(UNUSABLE + number.toExponential().toUpperCase());
  return String(Number(number.toPrecision(15)));
}

/** The end of the year 9999. */
const DAYS_MAX = 2_958_466;

function formatDate(days: number, is1904: boolean): string {
  // Excel counts a 29 February 1900. There was none.
  const before = days < 60 ? 31 : 30;
  const epochMs = is1904 ? Date.UTC(1904, 0, 1) : Date.UTC(1899, 11, before);
  const [date = "", time = ""] = new Date(epochMs + Math.round(days * 86_400) * 1000)
    .toISOString()
    .split(/[T.]/);
  if (Number.isInteger(days)) return date;
  return days < 1 ? time : `${date} ${time}`;
}

/** The styles of cells that show a number as a date or a time. */
function findDateStyles(xml: string): Set<string> {
  const custom = new Set<string | undefined>();
  for (const [, , attributes = ""] of xml.matchAll(elements("numFmt"))) {
    const code = findAttribute(attributes, "formatCode") ?? "";
    // Neither texts nor colours.
    if (/[ymdhs]/i.test(code.replaceAll(/"[^"]*"|\\.|\[(?!h|m|s)[^[\]]*\]/gi, "")))
      custom.add(findAttribute(attributes, "numFmtId"));
  }
  const [, , , formats = ""] = elements("cellXfs", "").exec(xml) ?? [];
  const styles = new Set<string>();
  let index = 0;
  for (const [, , attributes = ""] of formats.matchAll(elements("xf"))) {
    const id = findAttribute(attributes, "numFmtId");
    const isDate = BUILT_IN_DATES.some(([from, to]) => Number(id) >= from && Number(id) <= to);
    if (isDate || custom.has(id)) styles.add(String(index));
    index++;
  }
  return styles;
}

/** ECMA-376, part 1, 18.8.30. */
const BUILT_IN_DATES = [
  [14, 22],
  [27, 36],
  [45, 47],
  [50, 58],
] as const;
