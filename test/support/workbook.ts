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
export function makeWorkbook({
  sheets,
  chart,
  strings,
  styles,
  bookProperties,
  merges = [],
}: BookParts): Uint8Array {
  const merged = merges.map((range) => `<mergeCell ref="${range}"/>`).join("");
  const names = Object.keys(sheets);
  const parts: Record<string, string> = {
    "[Content_Types].xml":
      '<Types><Default Extension="xml" ContentType="application/xml"/></Types>',
    "_rels/.rels": `<Relationships>${link("rId1", "officeDocument", "xl/workbook.xml")}</Relationships>`,
    "xl/workbook.xml": `<workbook><workbookPr ${bookProperties ?? ""}/><sheets>${names
      .map((name, at) => `<sheet name="${name}" sheetId="${at + 1}" r:id="rId${at + 1}"/>`)
      .join("")}${
      chart === undefined ? "" : `<sheet name="${chart}" sheetId="99" r:id="rIdC"/>`
    }</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": `<Relationships>${names
      .map((_name, at) => link(`rId${at + 1}`, "worksheet", `worksheets/sheet${at + 1}.xml`))
      .join(
        "",
      )}${link("rIdC", "chartsheet", "chartsheets/sheet1.xml")}${link("rIdS", "sharedStrings", "/xl/sharedStrings.xml")}${link(
      "rIdT",
      "styles",
      "styles.xml",
    )}</Relationships>`,
  };
  for (const [at, name] of names.entries())
    parts[`xl/worksheets/sheet${at + 1}.xml`] =
      `<worksheet><cols><col min="1"/></cols><sheetData>${sheets[name]}</sheetData>${merged && `<mergeCells>${merged}</mergeCells>`}<pageMargins/></worksheet>`;
  if (styles !== undefined) parts["xl/styles.xml"] = `<styleSheet>${styles}</styleSheet>`;
  if (strings !== undefined) parts["xl/sharedStrings.xml"] = `<sst>${strings}</sst>`;
  const files: Zippable = Object.fromEntries(
    Object.entries(parts).map(([path, xml]) => [path, strToU8(xml)]),
  );
  return zipSync(files);
}

/** A sheet of plain texts; a number becomes a number cell. */
export const rowsOf = (rows: readonly (readonly (string | number)[])[]): string =>
  rows
    .map(
      (cells) =>
        `<row>${cells
          .map((cell) =>
            typeof cell === "number"
              ? `<c><v>${cell}</v></c>`
              : `<c t="inlineStr"><is><t>${cell}</t></is></c>`,
          )
          .join("")}</row>`,
    )
    .join("");
