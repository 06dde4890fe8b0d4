/** Workbooks: what a sheet shows is read exactly, and what it has lost already is refused. */

import { describe, expect, test } from "bun:test";
import { strToU8, zipSync } from "fflate";
import { writeWorkbook } from "../../console/workbook.ts";
import { Refusal } from "../../src/domain/errors.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { readPlants } from "../../src/format/plants.ts";
import { openWorkbook, UNPACKED_BYTES_MAX } from "../../src/format/workbook.ts";
import { malformed, measureCpuMs, rejectionOf } from "../support/expect.ts";
import { describePlant } from "../support/plants.ts";
import { type BookParts, makeWorkbook, rowsOf } from "../support/workbook.ts";
import { defaults } from "../support/limits.ts";

/** As in `2: 1 "name" "tag"`; of a refusal, its line and its message. */
async function readBook(
  bytes: Uint8Array,
  sheet?: string,
  unpackedBytesMax = UNPACKED_BYTES_MAX,
): Promise<string[]> {
  const { readRows } = await openWorkbook(new Blob([bytes]), unpackedBytesMax);
  const format = { kind: "xlsx" } as const;
  const options = {
    recordBytesMax: 1_000_000,
    limits: defaults,
    blockLengthMax: 100,
    encoding: "utf-8",
  } as const;
  const found: string[] = [];
  for await (const records of readPlants(readRows(sheet), format, options))
    for (const { line, plant } of records)
      found.push(`${line}: ${plant instanceof Refusal ? plant.message : describePlant(plant)}`);
  return found;
}

/** A workbook of one sheet, with the XML of its rows. */
const read = (rows: string, parts: Partial<BookParts> = {}): Promise<string[]> =>
  readBook(makeWorkbook({ sheets: { One: rows }, ...parts }));

/** Below the headings. */
const plantRows = (...rows: (string | number)[][]): string => rowsOf([["id", "name"], ...rows]);

const HEAD =
  '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s"><v>2</v></c></row>';
const HEAD_TEXTS = "<si><t>id</t></si><si><t>name</t></si><si><t>tag</t></si>";

describe("a sheet as Excel writes it", () => {
  test("has texts, numbers, formulas, booleans and empty rows", async () => {
    const strings = `${HEAD_TEXTS}<si><t xml:space="preserve"> Größe &amp; _x000D_ </t></si><si><r><t>Ro</t></r><r><rPr><b/></rPr><t>se</t></r><rPh sb="0"><t>ロ</t></rPh></si><si><t/></si>`;
    const rows =
      HEAD +
      '<row r="2" spans="1:3"><c r="A2"><v>12</v></c><c r="B2" t="s"><v>3</v></c></row>' +
      '<row r="5"><c r="A5" t="str"><f>A2&amp;"3"</f><v>123</v></c><c r="B5" t="s"><v>4</v></c><c r="C5" t="s"><v>5</v></c></row>' +
      '<row r="6"><c r="A6" t="inlineStr"><is><t>-9223372036854775808</t></is></c><c r="B6" t="b"><v>1</v></c><c r="C6" t="str"><f>""</f><v></v></c></row>' +
      '<row r="7" ht="15"/><row r="8"><c r="A8" s="1"/></row>' +
      '<row><c><v>4.006381333931E+12</v></c><c t="inlineStr"><is><t>=1+1\nline</t></is></c><c><v>0.30000000000000004</v></c><c><v>9</v></c></row>' +
      '<row r="10"><c r="A10" t="s"><v>0</v></c></row>';
    expect(await read(rows, { strings })).toEqual([
      '2: 12 " Größe & \\r "',
      '5: 123 "Rose" ""',
      '6: -9223372036854775808 "TRUE"',
      String.raw`9: 4006381333931 "=1+1\nline" "0.3"`,
      '10: The id is not a whole number: "id".',
    ]);
  });

  test("has namespaces with prefixes, CDATA and no references", async () => {
    const rows = plantRows(["9007199254740993", "x"])
      .replaceAll(/<(\/?)(\w)/g, "<$1x:$2")
      .replace(">x<", "><![CDATA[a < b & c > d]]><");
    expect(await read(rows)).toEqual(['2: 9007199254740993 "a < b & c > d"']);
  });

  test("what it has lost is refused, with the column: digits behind the 15th, errors, and formulas without a result", async () => {
    const ids = rowsOf([[1_234_567_890_123_456], [-1e15]]);
    const names = [
      '<c t="e"><v>#N/A</v></c>',
      "<c><f>A1</f></c>",
      "<c><v>1234567890123456789</v></c>",
    ];
    const rows = names.map((cell) => `<row><c><v>1</v></c>${cell}</row>`);
    const rounded = (field: string, to: string): string =>
      `The spreadsheet has rounded the ${field} to ${to}. Format the column as text, enter it again, and save.`;
    expect(await read(plantRows() + ids + rows.join(""))).toEqual([
      `2: ${rounded("id", "1.234567890123456E+15")}`,
      `3: ${rounded("id", "-1E+15")}`,
      "4: The cell of the name shows the error #N/A.",
      "5: The formula of the name has no saved result. Open the file in a spreadsheet and save it.",
      `6: ${rounded("name", "1.2345678901234568E+18")}`,
    ]);
  });

  test("a date is a date, and never an id", async () => {
    const styles =
      '<numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy\\ hh:mm"/><numFmt numFmtId="165" formatCode="[Red]0 &quot;days&quot;"/></numFmts>' +
      '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>' +
      '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"><alignment/></xf><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs>';
    const row = (style: number, value: number): string =>
      `<row><c><v>1</v></c><c s="${style}"><v>${value}</v></c></row>`;
    const dates = row(1, 45_292) + row(2, 45_292.5) + row(3, 45_292) + row(1, 1) + row(1, 0.25);
    const rows = `${plantRows()}${dates}<row><c s="1"><v>45292</v></c><c><v>1</v></c></row>`;
    expect(await read(rows, { styles })).toEqual([
      '2: 1 "2024-01-01"',
      '3: 1 "2024-01-01 12:00:00"',
      '4: 1 "45292"',
      '5: 1 "1900-01-01"',
      '6: 1 "06:00:00"',
      '7: The id is not a whole number: "2024-01-01".',
    ]);
    const [old] = await read(rows, { styles, bookProperties: 'date1904="1"' });
    expect(old).toBe('2: 1 "2028-01-02"');
  });

  test("a merged cell belongs to each of its rows, and to its first column only", async () => {
    const basil = rowsOf([
      ["id", "tag", "name"],
      [1, "herb", "Basil"],
    ]);
    // A cell without a value is what Excel writes below a merged one.
    const mint = '<row><c><v>2</v></c><c s="1"/><c t="str"><v>Mint</v></c></row>';
    const rows = basil + mint + rowsOf([[3, "fern", "Hart's tongue"]]);
    expect(await read(rows, { merges: ["B2:B3", "B4:C4", "A9:A99999"] })).toEqual([
      '2: 1 "Basil" "herb"',
      '3: 2 "Mint" "herb"',
      `4: 3 "Hart's tongue" "fern"`,
    ]);
  });

  test("is the first one, or the one that is named", async () => {
    const sheets = { First: plantRows([1, "a"]), "R&amp;D": plantRows([1, "b"]) };
    const bytes = makeWorkbook({ sheets, chart: "Sales" });
    expect(await readBook(bytes)).toEqual(['2: 1 "a"']);
    expect(await readBook(bytes, "R&D")).toEqual(['2: 1 "b"']);
    for (const [sheet, says] of [
      ["None", 'No sheet is called "None"; there is "First", "R&D", "Sales".'],
      ["Sales", 'The sheet "Sales" is damaged, is a chart, or has more than 20 million cells.'],
    ] as const)
      expect(await rejectionOf(readBook(bytes, sheet))).toMatchObject({ message: says });
  });
});

test("a workbook that Excel saved is read as it is shown", async () => {
  const readAll = async (name: string, sheet: string): Promise<string[]> => {
    const { readRows } = await openWorkbook(Bun.file(`${import.meta.dir}/workbooks/${name}.xlsx`));
    const pieces = await Array.fromAsync(readRows(sheet));
    return Buffer.concat(pieces).toString().split("\n");
  };
  expect((await readAll("type-me", "date_coercion")).slice(1, 6)).toEqual([
    ',"empty"',
    '2016-05-23,"date only format"',
    '2016-04-28 11:30:00,"date and time format"',
    'TRUE,"boolean true"',
    '"cabbage","""cabbage"""',
  ]);
  const numbers = await readAll("type-me", "numeric_coercion");
  expect(numbers.filter((row) => row.startsWith("123456,"))).toHaveLength(2);
  const deaths = await readAll("deaths", "other");
  expect(deaths[1]).toBe(',"of consistency",,,"in the","data layout,"');
  expect(deaths[7]).toBe('"Morley Safer","journalist",84,TRUE,1931-11-08,2016-05-19');
});

describe("a file that is no workbook, or too much of one", () => {
  const book = makeWorkbook({ sheets: { One: plantRows([1, "a"], [2, "b"]) } });
  const damaged = "The file is damaged, or is not a workbook (.xlsx).";

  test.each([
    ["an empty file", new Uint8Array(), damaged],
    ["another archive", zipSync({ mimetype: strToU8("application/vnd.oasis") }), damaged],
    ["one that is cut off", book.subarray(0, book.length - 40), damaged],
    ["one with a damaged part", book.slice().fill(0xff, 500, 620), damaged],
    ["an old or protected one", Uint8Array.of(0xd0, 0xcf, 0x11, 0xe0), "(.xls), or has a password"],
  ])("%s is refused", async (_what, bytes, says) => {
    expect(await malformed(readBook(bytes))).toContain(says);
  });

  test.each([
    ["has no number", '<c t="s"/>'],
    ["has an empty number", '<c t="s"><v></v></c>'],
    ["has a number beyond the last", '<c t="s"><v>3</v></c>'],
  ])("a cell for a text that %s is refused, and not taken for another", async (_what, cell) => {
    const reading = read(`${HEAD}<row><c><v>1</v></c>${cell}</row>`, { strings: HEAD_TEXTS });
    expect(await malformed(reading)).toContain("a text that is not in the workbook");
  });

  test("a limit is kept, whatever sizes and whichever directory the archive declares", async () => {
    const wide = makeWorkbook({ sheets: { One: rowsOf([[1, "x".repeat(9_000)]]) } });
    expect(wide.length).toBeLessThan(5000);
    const elsewhere = Buffer.from(wide);
    elsewhere.writeUInt16LE(0, elsewhere.lastIndexOf("PK\u0005\u0006") + 8);
    const over = "The workbook unpacks to more than";
    for (const [start, says] of [
      [() => readBook(wide, undefined, 5000), `${over} 5000 bytes.`],
      // This one cannot even be read.
      [() => openWorkbook({ size: 5001 } as Blob, 5000), `${over} 5000 bytes.`],
      [() => readBook(declareSizes(book, 0)), over],
      [() => readBook(declareSizes(book, 100)), damaged],
      // The sizes follow the data.
      [() => readBook(declareSizes(book, 100, 0)), over],
      [() => readBook(elsewhere, undefined, 5000), `${over} 5000 bytes.`],
    ] as const)
      expect(String(await rejectionOf(start()))).toContain(says);
  });

  test("a cell far out takes no memory", async () => {
    const far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>';
    expect(await read(plantRows([1, "a"]) + far)).toEqual(['2: 1 "a"']);
  });

  test("a row beyond Excel's last is refused", async () => {
    const tooFar = `${plantRows()}<row r="1048577"><c><v>1</v></c></row>`;
    expect(String(await rejectionOf(read(tooFar)))).toContain('The sheet "One" is damaged');
  });

  test("a row over the limit is refused alone", async () => {
    expect(await read(plantRows([1, "x".repeat(1_000_000)], [2, "b"]))).toEqual([
      "2: The record is larger than 1000000 bytes.",
      '3: 2 "b"',
    ]);
  });
});

/** The same archive, with other sizes for every part in its directory. */
function declareSizes(archive: Uint8Array, unpacked: number, packed?: number): Uint8Array {
  const copy = Buffer.from(archive);
  for (let at = -1; (at = copy.indexOf("PK\u0001\u0002", at + 1)) !== -1;) {
    copy.writeUInt32LE(unpacked, at + 24);
    if (packed === undefined) continue;
    copy.writeUInt32LE(packed, at + 20);
    // The sizes follow the data.
    copy.writeUInt16LE(8, at + 8);
  }
  return copy;
}

describe("a hostile workbook", () => {
  const many = 20_000;

  test.each<[string, Partial<BookParts>]>([
    ["rows", { sheets: { One: "<row>".repeat(many) } }],
    ["tags of rows", { sheets: { One: "<row ".repeat(many) } }],
    ["cells", { sheets: { One: `<row>${"<c>".repeat(many)}</row>` } }],
    ["columns", { sheets: { One: '<cols t="s">'.repeat(many) } }],
    ["texts", { strings: `<si>${"<t>".repeat(many)}</si>` }],
    ["CDATA", { strings: `<si>${"<![CDATA[".repeat(many)}</si>` }],
    ["properties", { bookProperties: "<workbookPr ".repeat(many) }],
    ["colours", { styles: `<numFmt formatCode="${"[".repeat(5 * many)}"/>` }],
  ])("with %s that are not closed costs little more than a sound one", async (_what, parts) => {
    const cost = (rows: string, more: Partial<BookParts> = {}): Promise<number> => {
      const bytes = makeWorkbook({ sheets: { One: rows }, ...more });
      return measureCpuMs(() => readBook(bytes).catch(() => undefined));
    };
    const sound = rowsOf(Array.from({ length: many / 10 }, (_, id) => [id, "a"]));
    expect(await cost(plantRows(), parts)).toBeLessThan(50 * (await cost(sound)));
  });

  test("with a row that is not closed loses no row", async () => {
    expect(await read(`${plantRows()}<row><c><v>1</v></c>`)).toEqual(['2: 1 ""']);
  });
});

describe("an export to a workbook", () => {
  const texts = {
    name: "Plants",
    describeFullSheet: (max: number) => `${max} plants at most`,
    describeFullCell: (max: number, { id }: Plant, characters: number) =>
      `plant ${id}: ${characters} of ${max} characters`,
  };
  async function* inBlocks(plants: readonly Plant[]): AsyncGenerator<readonly Plant[]> {
    for (let at = 0; at < plants.length; at += 2) yield plants.slice(at, at + 2);
  }

  const write = async (plants: AsyncIterable<readonly Plant[]>): Promise<Uint8Array> =>
    new Blob(await Array.fromAsync(writeWorkbook(plants, texts))).bytes();

  test("is read back without a difference", async () => {
    const names = ["=1+1", "-5", "'@x", "", " a\r\nb\t", "_x000D_ <&>\"'", "#N/A", "ünï"];
    const plants = [...names, "\u0001\ufffe\uffff🌱"].map((name, at) => ({
      id: 9_223_372_036_854_775_807n - BigInt(at),
      name,
      tag: at % 2 === 0 ? undefined : name,
    }));
    const found = await readBook(await write(inBlocks(plants)));
    expect(found).toEqual(plants.map((plant, at) => `${at + 2}: ${describePlant(plant)}`));
  });

  test("refuses what Excel cannot hold", async () => {
    const long = inBlocks([{ id: 7n, name: "x".repeat(32_768), tag: undefined }]);
    expect(String(await rejectionOf(write(long)))).toContain("plant 7: 32768 of 32767 characters");
    async function* endless(): AsyncGenerator<readonly Plant[]> {
      for (;;) yield { length: 600_000, *[Symbol.iterator]() {} } as unknown as readonly Plant[];
    }
    expect(String(await rejectionOf(write(endless())))).toContain("1048575 plants at most");
  });
});
