/** Excel workbooks (.xlsx): the rows of a sheet as CSV. The script that reads them is loaded on demand. */

import { unzipSync } from "fflate";
import { type CellValue, readXlsx, type Sheet } from "hucre/xlsx";
import type { Fault } from "../domain/errors.ts";
import { createFault } from "../domain/faults.ts";
import { formatCell, UNUSABLE } from "./csv.ts";
import { refuseBinary } from "./encoding.ts";
import { MalformedFile } from "./records.ts";

/** A zip bomb unpacks to almost any size, and a workbook is unpacked in memory. */
export const UNPACKED_BYTES_MAX = 250_000_000;

/** 128 columns: the library allocates every cell before one that is read, which could take all memory. */
const RANGE = "A1:DX9999999";

export type Workbook = Awaited<ReturnType<typeof openWorkbook>>;

export async function openWorkbook(file: Blob, unpackedBytesMax = UNPACKED_BYTES_MAX) {
  refuseLarge(file.size, unpackedBytesMax);
  const bytes = new Uint8Array(await file.arrayBuffer());
  refuseBinary(bytes, true);
  const sheets: string[] = [];
  const listSheet = ({ name }: { name: string }): boolean => {
    sheets.push(name);
    return false;
  };
  await orMalformed(createFault("notWorkbook"), async () => {
    refuseLarge(countUnpacked(bytes), unpackedBytesMax);
    refuseMissingTexts(bytes);
    await readXlsx(bytes, { sheets: listSheet });
  });

  const parsed = new Map<string, Promise<Sheet>>();
  /** The sheet, by default the first, as CSV with commas. All rows have as many cells as the longest. */
  async function* readRows(sheet = sheets[0] ?? "", onProgress?: (share: number) => void) {
    if (!sheets.includes(sheet)) {
      const known = sheets.map((one) => JSON.stringify(one)).join(", ");
      const named = { sheet: JSON.stringify(sheet), sheets: known };
      throw new MalformedFile([createFault("noSheet", named)]);
    }
    // Parsed once for all readers: a sheet may have a million rows.
    const fault = createFault("sheetDamaged", { sheet: JSON.stringify(sheet) });
    const read = async (): Promise<Sheet> =>
      fillMerged((await readXlsx(bytes, { sheets: [sheet], range: RANGE })).sheets[0] as Sheet);
    const reading = parsed.get(sheet) ?? orMalformed(fault, read);
    parsed.set(sheet, reading);
    const { rows, cells } = await reading;
    const encoder = new TextEncoder();
    const width = rows.reduce((most, row) => Math.max(most, lengthOf(row)), 0);
    let csv = "";
    for (const [number, values] of rows.entries()) {
      const row = Array.from({ length: width }, (_, column) => {
        const value = values[column] ?? null;
        const details = cells?.get(`${number},${column}`);
        if (details?.type === "error") return quote(UNUSABLE + String(value));
        if (details?.formula === undefined) return toText(value);
        if (value === null) return quote(`${UNUSABLE}=`);
        // A formula whose result is "" shows an empty cell.
        return value === "" ? "" : toText(value);
      });
      csv += `${row.join(",")}\n`;
      if (csv.length < CSV_PIECE_CHARACTERS) continue;
      onProgress?.(number / rows.length);
      yield encoder.encode(csv);
      csv = "";
    }
    yield encoder.encode(csv);
  }
  return { sheets, readRows };
}

/** A merged cell is shown once for several rows, and belongs to each of them. */
function fillMerged(sheet: Sheet): Sheet {
  const { rows, merges = [], cells } = sheet;
  for (const { startRow, endRow, startCol } of merges) {
    const value = rows[startRow]?.[startCol] ?? null;
    if (value === null || cells?.get(`${startRow},${startCol}`)?.type === "error") continue;
    // It ends at a filled cell, so overlapping ranges take no longer.
    for (let at = startRow + 1; at <= endRow; at++) {
      const row = rows[at];
      if (row === undefined || (row[startCol] ?? null) !== null) break;
      row[startCol] = value;
    }
  }
  return sheet;
}

const CSV_PIECE_CHARACTERS = 65_536;

async function orMalformed<Result>(fault: Fault, run: () => Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (cause) {
    if (cause instanceof MalformedFile) throw cause;
    throw new MalformedFile([fault], cause);
  }
}

function refuseLarge(bytes: number, bytesMax: number): void {
  if (bytes > bytesMax)
    throw new MalformedFile([createFault("workbookTooLarge", { bytes: bytesMax })]);
}

/** PKWARE's APPNOTE.TXT, section 4.3.12. */
const ENTRY = { signature: 0x02014b50, bytes: 46, isDeflated: 8, sizesFollow: 8 };

/** Sums all entries: an archive can have several directories. A size that is 0 or follows the data is not trusted. */
function countUnpacked(archive: Uint8Array): number {
  const view = new DataView(archive.buffer);
  let bytes = 0;
  for (let at = archive.indexOf(0x50); at !== -1; at = archive.indexOf(0x50, at + 1)) {
    if (at + ENTRY.bytes > archive.length) break;
    if (view.getUint32(at, true) !== ENTRY.signature) continue;
    if (view.getUint16(at + 10, true) !== ENTRY.isDeflated) continue;
    const [packed, unpacked] = [view.getUint32(at + 20, true), view.getUint32(at + 24, true)];
    const isOpen =
      packed === 0 ? (view.getUint16(at + 8, true) & ENTRY.sizesFollow) !== 0 : unpacked === 0;
    bytes += isOpen ? Number.POSITIVE_INFINITY : unpacked;
  }
  return bytes;
}

/** A cell that refers to a shared string, and the string's index. */
const TEXT_CELL =
  /<(?:\w+:)?c(?=\s(?:[^<>]*\s)?t=["']s["'])(?:[^<>]*\/>|[^<>]*>[\s\S]*?<\/?(?:\w+:)?[cv](?:\s[^<>]*)?>\s*(\d*))/g;

/** The library reads a missing index as the first string, and a missing string as an empty cell. */
function refuseMissingTexts(archive: Uint8Array): void {
  const parts = unzipSync(archive, {
    filter: ({ name }) => /(sharedStrings|worksheets\/[^/]+)\.xml$/i.test(name),
  });
  let texts = 0;
  let end = 0;
  for (const part of Object.values(parts)) {
    const xml = new TextDecoder().decode(part);
    for (const [, number] of xml.matchAll(TEXT_CELL))
      end = Math.max(end, number ? Number(number) + 1 : Number.POSITIVE_INFINITY);
    texts += xml.match(/<(?:\w+:)?si[\s>/]/g)?.length ?? 0;
  }
  if (end > texts) throw new MalformedFile([createFault("textMissing")]);
}

const lengthOf = (row: readonly CellValue[]): number =>
  row.findLastIndex((value) => value !== null && value !== "") + 1;

/** Digits stay unquoted: a spreadsheet cannot run an id. */
const quote = (text: string): string => (/^-?\d+$/.test(text) ? text : formatCell(text));

/** What the cell shows, as CSV. */
function toText(value: CellValue): string {
  if (value === null) return "";
  if (typeof value === "string") return quote(value);
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  if (value instanceof Date) return formatDate(value);
  // Spreadsheets keep 15 digits: a longer number has already lost the rest.
  if (Math.abs(value) >= 1e15) return quote(UNUSABLE + value.toExponential().toUpperCase());
  return String(Number(value.toPrecision(15)));
}

const [FIRST_DAY, END_OF_DAYS] = [Date.UTC(1899, 11, 31), Date.UTC(10_000)];

function formatDate(shown: Date): string {
  const atMs = Math.round(shown.getTime() / 1000) * 1000;
  if (!(atMs >= FIRST_DAY && atMs < END_OF_DAYS)) return quote(`${UNUSABLE}########`);
  const [date = "", time = ""] = new Date(atMs).toISOString().split(/[T.]/);
  // A time without a date is on the day before the first.
  if (atMs < FIRST_DAY + 86_400_000) return time;
  return time === "00:00:00" ? date : `${date} ${time}`;
}
