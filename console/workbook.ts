/** Reads and streams Excel workbooks. A separate bundle, loaded on demand. */

import { writeXlsxStream } from "hucre/xlsx";
import type { Plant } from "../src/domain/plant.ts";

export { openWorkbook } from "../src/format/workbook.ts";

/** Excel's own limits, less one row for the heading. */
const PLANTS_MAX = 1_048_575;
const CELL_CHARACTERS_MAX = 32_767;

const widths = { id: 22, name: 44, tag: 22 };

/** Throws a RangeError if a workbook cannot hold these plants. */
export async function* writeWorkbook(
  blocks: AsyncIterable<readonly Plant[]>,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = writeXlsxStream(toRows(blocks), {
    name: "Plants",
    freezePane: { rows: 1 },
    // Text format: Excel rounds numbers after 15 digits.
    columns: Object.entries(widths).map(([header, width]) => ({ header, width, numFmt: "@" })),
  }).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value as Uint8Array<ArrayBuffer>;
  }
}

/** A plant without a tag has an empty cell. */
async function* toRows(blocks: AsyncIterable<readonly Plant[]>): AsyncGenerator<(string | null)[]> {
  let count = 0;
  for await (const plants of blocks) {
    count += plants.length;
    if (count > PLANTS_MAX)
      throw new RangeError(`A sheet holds ${PLANTS_MAX} plants at most. Export as CSV, or filter.`);
    for (const { id, name, tag } of plants) {
      const long = [name, tag ?? ""].find((text) => text.length > CELL_CHARACTERS_MAX);
      if (long !== undefined)
        throw new RangeError(
          `A cell holds ${CELL_CHARACTERS_MAX} characters, and plant ${id} has a text of ${long.length}. Export as CSV.`,
        );
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
