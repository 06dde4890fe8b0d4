/** Reads and streams Excel workbooks. A separate bundle, loaded on demand. */

import { writeXlsxStream } from "hucre/xlsx";
import type { Plant } from "../src/domain/plant.ts";
import { createCellParser, restoreCell, RowReader } from "../src/format/csv.ts";

export { openWorkbook } from "../src/format/workbook.ts";

/** Excel's own limits, less one row for the heading. */
const PLANTS_MAX = 1_048_575;
const CELL_CHARACTERS_MAX = 32_767;

const widths = { id: 22, name: 44, tag: 22 };

/** The texts of the page: this script has none. */
interface SheetTexts {
  readonly name: string;
  readonly describeFullSheet: (plantsMax: number) => string;
  readonly describeFullCell: (charactersMax: number, plant: Plant, characters: number) => string;
}

/** Throws a RangeError if a workbook cannot hold these plants. */
export const writeWorkbook = (
  blocks: AsyncIterable<readonly Plant[]>,
  texts: SheetTexts,
): AsyncGenerator<Uint8Array<ArrayBuffer>> =>
  writeSheet(texts.name, Object.entries(widths), toRows(blocks, texts));

/** The widths of `line` and `reason`. */
const reasonWidths = [8, 60];

/** Refused rows, which are kept as CSV, as a workbook. */
export async function* writeRows(csv: Blob, name: string): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const rows = readCells(csv);
  const { value: heads = [] } = await rows.next();
  const columns = heads.map((head, at) => [head ?? "", reasonWidths[at] ?? 24] as const);
  yield* writeSheet(name, columns, rows);
}

/** Far above what a row can have. */
const ROW_BYTES_MAX = 10_000_000;
/** The byte order mark. */
const MARK_BYTES = 3;

async function* readCells(csv: Blob): AsyncGenerator<(string | null)[], undefined> {
  const bytes = new Uint8Array(await csv.slice(MARK_BYTES).arrayBuffer());
  const delimiter = ",";
  const reader = new RowReader({ kind: "csv", delimiter }, ROW_BYTES_MAX);
  const parse = createCellParser(delimiter);
  for await (const lines of reader.read([bytes], 1000))
    for (const { text } of lines)
      yield parse(String(text)).map((cell) => (cell === null ? null : encode(restoreCell(cell))));
}

async function* writeSheet(
  name: string,
  columns: readonly (readonly [header: string, width: number])[],
  rows: AsyncIterable<(string | null)[]>,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = writeXlsxStream(rows, {
    name,
    freezePane: { rows: 1 },
    // Text format: Excel rounds numbers after 15 digits.
    columns: columns.map(([header, width]) => ({ header, width, numFmt: "@" })),
  }).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value as Uint8Array<ArrayBuffer>;
  }
}

/** A plant without a tag has an empty cell. */
async function* toRows(
  blocks: AsyncIterable<readonly Plant[]>,
  { describeFullSheet, describeFullCell }: SheetTexts,
): AsyncGenerator<(string | null)[]> {
  let count = 0;
  for await (const plants of blocks) {
    count += plants.length;
    if (count > PLANTS_MAX) throw new RangeError(describeFullSheet(PLANTS_MAX));
    for (const plant of plants) {
      const { id, name, tag } = plant;
      const long = [name, tag ?? ""].find((text) => text.length > CELL_CHARACTERS_MAX);
      if (long !== undefined)
        throw new RangeError(describeFullCell(CELL_CHARACTERS_MAX, plant, long.length));
      yield [String(id), encode(name), tag === undefined ? null : encode(tag)];
    }
  }
}

/**
 * ST_Xstring escapes characters that XML forbids as `_x000D_`, and text that looks like an escape as `_x005F_x000D_`.
 * The library escapes neither the latter nor U+FFFE and U+FFFF.
 */
const encode = (text: string): string =>
  text
    .replaceAll(/_(?=x[\da-f]{4}_)/gi, "_x005F_")
    .replaceAll("\ufffe", "_xFFFE_")
    .replaceAll("\uffff", "_xFFFF_");
