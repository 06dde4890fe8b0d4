/** Excel workbooks: plants written while they arrive, and sheets read. A bundle of its own, loaded on demand. */

import { strToU8, Zip, ZipDeflate } from "fflate";
import type { Plant } from "../domain/plant.ts";

export { openWorkbook } from "../format/workbook.ts";

/** Excel's own limits; the heading is a row, too. */
const PLANTS_MAX = 1_048_575;
const CELL_CHARACTERS_MAX = 32_767;
/** The format of the archive ends at 4 GiB. */
const BYTES_MAX = 4_000_000_000;

/** A workbook cannot hold these plants. */
class TooLarge extends Error {
  override readonly name = "TooLarge";
}

/** Throws TooLarge. */
export async function* writeWorkbook(
  blocks: AsyncIterable<readonly Plant[]>,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let ready: Uint8Array<ArrayBuffer>[] = [];
  const zip = new Zip((error, bytes) => {
    if (error !== null) throw error;
    ready.push(bytes);
  });
  const add = (path: string, xml: string): ZipDeflate => {
    const part = new ZipDeflate(path);
    zip.add(part);
    part.push(strToU8(HEAD + xml));
    return part;
  };
  for (const [path, xml] of Object.entries(parts)) add(path, xml).push(new Uint8Array(), true);
  const sheet = add("xl/worksheets/sheet1.xml", SHEET_START);
  let count = 0;
  let bytes = 0;
  for await (const plants of blocks) {
    count += plants.length;
    if (count > PLANTS_MAX)
      throw new TooLarge(`A sheet holds ${PLANTS_MAX} plants at most. Export as CSV, or filter.`);
    sheet.push(strToU8(plants.map(formatRow).join("")));
    bytes += ready.reduce((sum, piece) => sum + piece.length, 0);
    if (bytes > BYTES_MAX) throw new TooLarge("The workbook is too large. Export as CSV.");
    yield* ready;
    ready = [];
  }
  sheet.push(strToU8(SHEET_END), true);
  zip.end();
  yield* ready;
}

/** Ids are text: a number would be rounded after 15 digits. A missing cell is no tag. */
function formatRow(plant: Plant): string {
  const { id, name, tag } = plant;
  const long = [name, tag ?? ""].find((text) => text.length > CELL_CHARACTERS_MAX);
  if (long !== undefined)
    throw new TooLarge(
      `A cell holds ${CELL_CHARACTERS_MAX} characters, and plant ${id} has a text of ${long.length}. Export as CSV.`,
    );
  const cells = [String(id), name, ...(tag === undefined ? [] : [tag])];
  return `<row>${cells.map((text) => formatCell(text)).join("")}</row>`;
}

/** The style 1 keeps what is entered there later as text, too. */
const formatCell = (text: string, style = 1): string =>
  `<c s="${style}" t="inlineStr"><is><t xml:space="preserve">${encode(text)}</t></is></c>`;

const signs: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** ST_Xstring: what XML cannot hold is written `_x000D_`, and a text that looks like that, `_x005F_x000D_`. */
const encode = (text: string): string =>
  text
    .replaceAll(/_(?=x[\da-f]{4}_)/gi, "_x005F_")
    .replaceAll(/[&<>]/g, (sign) => signs[sign] ?? sign)
    // oxlint-disable-next-line no-control-regex -- These are the characters that XML cannot hold.
    .replaceAll(/[\0-\b\v-\u001f\ufffe\uffff]/g, (sign) => {
      const code = sign.charCodeAt(0).toString(16).toUpperCase();
      return `_x${code.padStart(4, "0")}_`;
    });

const HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const PACKAGE = "http://schemas.openxmlformats.org/package/2006";
const LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml";

const link = (id: number, type: string, target: string): string =>
  `<Relationship Id="rId${id}" Type="${LINKS}/${type}" Target="${target}"/>`;
const part = (path: string, type: string): string =>
  `<Override PartName="/xl/${path}.xml" ContentType="${TYPE}.${type}+xml"/>`;

const parts = {
  "[Content_Types].xml":
    `<Types xmlns="${PACKAGE}/content-types">` +
    `<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>` +
    `${part("workbook", "sheet.main")}${part("worksheets/sheet1", "worksheet")}${part("styles", "styles")}</Types>`,
  "_rels/.rels": `<Relationships xmlns="${PACKAGE}/relationships">${link(1, "officeDocument", "xl/workbook.xml")}</Relationships>`,
  "xl/workbook.xml": `<workbook xmlns="${MAIN}" xmlns:r="${LINKS}"><sheets><sheet name="Plants" sheetId="1" r:id="rId1"/></sheets></workbook>`,
  "xl/_rels/workbook.xml.rels": `<Relationships xmlns="${PACKAGE}/relationships">${link(1, "worksheet", "worksheets/sheet1.xml")}${link(2, "styles", "styles.xml")}</Relationships>`,
  "xl/styles.xml":
    `<styleSheet xmlns="${MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>` +
    `<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>` +
    `<fills count="1"><fill><patternFill patternType="none"/></fill></fills><borders count="1"><border/></borders>` +
    `<cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="3"><xf xfId="0"/>` +
    `<xf xfId="0" numFmtId="49" applyNumberFormat="1"/><xf xfId="0" fontId="1" applyFont="1"/></cellXfs></styleSheet>`,
};

const SHEET_START =
  `<worksheet xmlns="${MAIN}"><sheetViews><sheetView workbookViewId="0">` +
  `<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>` +
  `<cols><col min="1" max="1" width="22" style="1" customWidth="1"/><col min="2" max="2" width="44" style="1" customWidth="1"/>` +
  `<col min="3" max="3" width="22" style="1" customWidth="1"/></cols>` +
  `<sheetData><row>${["id", "name", "tag"].map((text) => formatCell(text, 2)).join("")}</row>`;
/** Without this, Excel marks every id with "Number stored as text". */
const SHEET_END =
  '</sheetData><ignoredErrors><ignoredError sqref="A1:A1048576" numberStoredAsText="1"/></ignoredErrors></worksheet>';
