/** Workbooks as Excel and others write them, put together by hand. */

import { strToU8, type Zippable, zipSync } from "fflate";

const LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

const link = (id: string, type: string, target: string): string =>
  `<Relationship Id="${id}" Type="${LINKS}/${type}" Target="${target}"/>`;

export interface BookParts {
  /** The XML inside `sheetData`, by the names of the sheets. */
  readonly sheets: Readonly<Record<string, string>>;
  /** The name of a sheet that is a chart. */
  readonly chart?: string;
  /** The XML inside `sst`. */
  readonly strings?: string;
  readonly styles?: string;
  readonly bookProperties?: string;
  /** The merged cells of every sheet, as in "A1:B2". */
  readonly merges?: readonly string[];
}

/** The bytes of an .xlsx file. Excel puts the texts behind the sheets that use them. */
export function makeWorkbook(book: BookParts): Uint8Array {
  const { sheets, chart, strings, styles, bookProperties = "", merges = [] } = book;
  const merged = merges.map((range) => `<mergeCell ref="${range}"/>`).join("");
  const files: Zippable = {};
  const add = (path: string, root: string, inside: string): void => {
    files[path] = strToU8(`<${root}>${inside}</${root}>`);
  };
  const links = [
    link("rIdC", "chartsheet", "chartsheets/sheet1.xml"),
    link("rIdS", "sharedStrings", "/xl/sharedStrings.xml"),
    link("rIdT", "styles", "styles.xml"),
  ];
  const listed: string[] = [];
  add("[Content_Types].xml", "Types", '<Default Extension="xml" ContentType="application/xml"/>');
  add("_rels/.rels", "Relationships", link("rId1", "officeDocument", "xl/workbook.xml"));
  for (const [at, [name, rows]] of Object.entries(sheets).entries()) {
    const nth = at + 1;
    listed.push(`<sheet name="${name}" sheetId="${nth}" r:id="rId${nth}"/>`);
    links.push(link(`rId${nth}`, "worksheet", `worksheets/sheet${nth}.xml`));
    add(
      `xl/worksheets/sheet${nth}.xml`,
      "worksheet",
      `<cols><col min="1"/></cols><sheetData>${rows}</sheetData>${merged && `<mergeCells>${merged}</mergeCells>`}<pageMargins/>`,
    );
  }
  if (chart !== undefined) listed.push(`<sheet name="${chart}" sheetId="99" r:id="rIdC"/>`);
  const properties = `<workbookPr ${bookProperties}/>`;
  add("xl/workbook.xml", "workbook", `${properties}<sheets>${listed.join("")}</sheets>`);
  add("xl/_rels/workbook.xml.rels", "Relationships", links.join(""));
  if (styles !== undefined) add("xl/styles.xml", "styleSheet", styles);
  if (strings !== undefined) add("xl/sharedStrings.xml", "sst", strings);
  return zipSync(files);
}

/** A sheet of plain texts; a number becomes a number cell. */
export const rowsOf = (rows: readonly (readonly (string | number)[])[]): string =>
  rows.map((cells) => `<row>${cells.map(formatCell).join("")}</row>`).join("");

const formatCell = (cell: string | number): string =>
  typeof cell === "number"
    ? `<c><v>${cell}</v></c>`
    : `<c t="inlineStr"><is><t>${cell}</t></is></c>`;
