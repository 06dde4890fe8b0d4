/** Files of every format, read back to plants: what is exported, what spreadsheets write, and what is wrong. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { Refusal } from "../../src/domain/errors.ts";
import { formatStoredPlant, type Plant } from "../../src/domain/plant.ts";
import { CSV_HEAD, formatCsv, MissingColumn } from "../../src/format/csv.ts";
import { type Encoding, WrongEncoding } from "../../src/format/encoding.ts";
import { type FileFormat, type PlantRecord, readPlants } from "../../src/format/plants.ts";
import { ElementReader, LineReader } from "../../src/format/records.ts";
import { anyPlant, inPieces } from "../support/arbitrary.ts";
import { malformed, rejectionOf } from "../support/expect.ts";
import { describePlant } from "../support/plants.ts";
import { seed } from "../support/random.ts";
import { defaults } from "../support/limits.ts";

const json = { kind: "json" } as const;
const csv = { kind: "csv", headings: {}, delimiter: "," } as const;

async function read(
  file: string | Uint8Array,
  format: FileFormat = csv,
  {
    pieceLength = 5,
    recordBytesMax = 100_000,
    encoding = undefined as Encoding | undefined,
    records = [] as PlantRecord[],
  } = {},
): Promise<PlantRecord[]> {
  const bytes = typeof file === "string" ? new TextEncoder().encode(file) : file;
  const bounds = { recordBytesMax, limits: defaults, blockLengthMax: 2, encoding };
  for await (const block of readPlants(inPieces(bytes, pieceLength), format, bounds)) {
    expect(block.length).toBeWithin(1, 3);
    records.push(...block);
  }
  return records;
}

const textsOf = (records: readonly PlantRecord[]): unknown[] => records.map(({ text }) => text);

/** As in `2: 1 "name" "tag"`; of a refusal, its line and its reason. */
const brief = ({ line, plant }: PlantRecord): string =>
  `${line}: ${plant instanceof Refusal ? plant.reason : describePlant(plant)}`;

/** Whatever the pieces it comes in. */
async function expectRead(
  file: string | Uint8Array,
  expected: readonly string[],
  format: FileFormat = csv,
  encoding?: Encoding,
): Promise<void> {
  for (const pieceLength of [1, 2, 3, 5, 100]) {
    const records = await read(file, format, { pieceLength, encoding });
    expect(records.map(brief)).toEqual([...expected]);
  }
}

describe("what is exported is read again without a difference", () => {
  /** With a member that is left out. */
  const writeMore = (plant: Plant): string =>
    formatStoredPlant(plant).replace("{", String.raw`{"more": [[{}, {"a": "]\"},"}, -1e5], null],`);
  const formats: [FileFormat, (plants: readonly Plant[]) => string][] = [
    [{ kind: "ndjson" }, (plants) => plants.map((one) => `${formatStoredPlant(one)}\n`).join("")],
    [json, (plants) => `[\n${plants.map(formatStoredPlant).join(",\n")}\n]\n`],
    [json, (plants) => ` [${plants.map((one) => `\t${writeMore(one)} `).join(",")}] `],
    [csv, (plants) => CSV_HEAD + formatCsv(plants)],
  ];
  test.each(formats)("%j", async (format, write) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyPlant.map(({ id, name, tag }): Plant => ({ id, name, tag: tag ?? undefined }))),
        fc.integer({ min: 1, max: 200 }),
        async (plants, pieceLength) => {
          const records = await read(write(plants), format, { pieceLength });
          expect(records.map((record) => record.plant)).toEqual(plants);
        },
      ),
      { seed, numRuns: 100 },
    );
  });
});

describe("JSON", () => {
  test("keeps every element as it is written, with the line it begins on", async () => {
    const file = ' [\n{"id": 9223372036854775807},\r\n\n  {"id":\n2} ,[1,[2]], "a,b" ,\ttrue\n] \n';
    for (let pieceLength = 1; pieceLength <= file.length; pieceLength++) {
      const records = await read(file, json, { pieceLength });
      expect(records.map(({ line, text }) => [line, text as string])).toEqual([
        [2, '\n{"id": 9223372036854775807}'],
        [4, '\r\n\n  {"id":\n2} '],
        [5, "[1,[2]]"],
        [5, ' "a,b" '],
        [5, "\ttrue\n"],
      ]);
    }
  });

  test.each<[file: string, elements: string[]]>([
    ["[]", []],
    [" [ \n ] ", []],
    // One that is missing between commas is left out.
    ["[1,,2,\n]", ["1", "2"]],
    // One with unbalanced brackets spoils none but itself.
    ['[{"id":1],{"id":2},}3,{"id":4}]', ['{"id":1]', '{"id":2}', "}3", '{"id":4}']],
    // Brackets, commas and quotes inside strings are text.
    [String.raw`[{"a":"],[}{,\"]\\"},"\\"]`, [String.raw`{"a":"],[}{,\"]\\"}`, String.raw`"\\"`]],
    [String.raw`[{"a":{"b":["]"]}},"\u005d\""]`, ['{"a":{"b":["]"]}}', String.raw`"\u005d\""`]],
  ])("%j has the elements %j", async (file, elements) => {
    expect(textsOf(await read(file, json, { pieceLength: 1 }))).toEqual(elements);
  });

  const instead = "For one plant on each line, the format is ndjson.";
  const inside = "The file ends inside its array, in the record that begins on line";
  test.each([
    ["", "The file is empty; expected a JSON array."],
    ["  \n ", "The file is empty; expected a JSON array."],
    ['\n{"id":1}', `Line 2 does not begin a JSON array. ${instead}`],
    ['[{"id":1},\n{"id":2', `${inside} 2.`],
    ['[{"id":1}\n', `${inside} 1.`],
    ['[{"id":1},\n', `${inside} 2.`],
    ['["\\"]', `${inside} 1.`],
    ["[1]\n\n[2]", "Line 3 has more text after the end of the array."],
  ])("%j is refused as a file", async (file, message) => {
    expect(await malformed(read(file, json, { pieceLength: 1 }))).toBe(message);
  });

  test.each(["[1,2,3", "[1,2] and more"])(
    "%j: what comes before the fault counts",
    async (file) => {
      for (const pieceLength of [2, 100]) {
        const records: PlantRecord[] = [];
        await malformed(read(file, json, { pieceLength, records }));
        expect(textsOf(records)).toEqual(["1", "2"]);
      }
    },
  );
});

describe("CSV", () => {
  const tables: Record<string, [file: string, expected: string[], format?: Partial<FileFormat>]> = {
    "an empty tag cell is no tag, and one of two quotes is the empty tag": [
      'id,name,tag\n1,a,\n2,b,""\n3,"",x\n4,,x\n',
      ['2: 1 "a"', '3: 2 "b" ""', '4: 3 "" "x"', '5: 4 "" "x"'],
    ],
    "an empty name is refused if a name is needed": [
      'id,name\n1,a\n2,\n3,""\n4,"  "\n',
      ['2: 1 "a"', "3: invalid_plant", "4: invalid_plant", "5: invalid_plant"],
      { needsName: true },
    ],
    "rows above the first line are skipped, whatever they have": [
      'sep=;\nStock "May"\n;;\nNr\n\nid;name\n1;a\n',
      ['7: 1 "a"'],
      { firstLine: 6 },
    ],
    "a defused formula is restored in names and tags, and nothing else is": [
      "id,name,tag\n1,'=1+1,'-5\n2,''=x,'a\n-3,=1,'\n4,'＝x,\"'\n\"\n",
      ['2: 1 "=1+1" "-5"', `3: 2 "'=x" "'a"`, `4: -3 "=1" "'"`, '5: 4 "＝x" "\\n"'],
    ],
    "a quote inside a cell that does not begin with one is text": [
      'id,name,tag\n1,Rose 6" pot,5"\n2, "a",b"c""d\n3,"x"y,z\n4,a,b\n',
      [
        String.raw`2: 1 "Rose 6\" pot" "5\""`,
        String.raw`3: 2 " \"a\"" "b\"c\"\"d"`,
        "4: invalid_plant",
        '5: 4 "a" "b"',
      ],
    ],
    "a column of tags can be ignored, even one that occurs twice": [
      "id,name,tag,tag\n1,Fern,a,b\n",
      ['2: 1 "Fern"'],
      { headings: { tag: null } },
    ],
    "columns are found by their headings in any order, among others": [
      "Bed,Type,Plant,Nr\nnorth,fern,Adder's tongue,7\n",
      [`2: 7 "Adder's tongue" "fern"`],
      { headings: { id: "Nr", name: "Plant", tag: "Type" } },
    ],
    "rows of empty cells, as spreadsheets write them around their data, are left out": [
      ';;\nid;name;tag\n;;\n1;a;x\n ; ;\n;"";\n;;\n;;',
      ['4: 1 "a" "x"', "6: invalid_plant"],
      { delimiter: ";" },
    ],
    "rows of empty cells between tabs are left out": [
      "id\tname\n\t\n1\ta\n\t\n",
      ['3: 1 "a"'],
      { delimiter: "\t" },
    ],
    "sep= is a row like any other behind the first": [
      "id,name\nsep=;\n1,a\n",
      ["2: invalid_plant", '3: 1 "a"'],
    ],
  };
  test.each(Object.entries(tables))("%s", (_what, [file, expected, format = {}]) =>
    expectRead(file, expected, { ...csv, ...format }),
  );

  const missing = (heading: string, columns: string): string =>
    `No column is headed "${heading}"; the columns are ${columns}.`;
  test.each([
    ["a,b\n1,x\n", {}, missing("id", '"a", "b"')],
    ["id,tag\n1,x\n", {}, missing("name", '"id", "tag"')],
    ["id,name\n1,x\n", { tag: "Type" }, missing("Type", '"id", "name"')],
    ["id;name\n1;x\n", {}, missing("id", '"id;name"')],
    ["id,id\n", {}, 'More than one column is headed "id"; the columns are "id", "id".'],
    ["", {}, "The file is empty; expected a heading."],
    ["\n\n", {}, "The file is empty; expected a heading."],
    ['"i"d,name\n', {}, "The heading: Text follows the closing quote of a cell."],
  ])("%j with the headings %j has not the columns", async (file, headings, message) => {
    const error = await rejectionOf(read(file, { ...csv, headings }));
    expect(error).toBeInstanceOf(MissingColumn);
    expect((error as Error).message).toBe(message);
  });

  test.each(["\n", "\r\n", "\r"])("lines may end in %j, the last one in nothing", (end) =>
    expectRead(["id,name,tag", "1,a,x", "", '2,"b\r\nb",x', "3,c,x"].join(end), [
      '2: 1 "a" "x"',
      String.raw`4: 2 "b\r\nb" "x"`,
      '6: 3 "c" "x"',
    ]),
  );

  test.each(["\t", ";", "|", ","])(
    "%j separates cells, by a first line sep= too",
    async (delimiter) => {
      const rows = 'id,name,tag\r\n1,"a,b",x\r\n,,\r\n'.replaceAll(",", delimiter);
      const plant = `1 ${JSON.stringify(`a${delimiter}b`)} "x"`;
      await expectRead(rows, [`2: ${plant}`], { ...csv, delimiter });
      await expectRead(`\ufeffsep=${delimiter}\r\n${rows}`, [`3: ${plant}`]);
    },
  );

  test.each(["\t", ";", "|", ","])(
    "%j is detected, whatever signs the texts have, and overruled by sep=",
    async (delimiter) => {
      const detected = { kind: "csv" } as const;
      const rows = 'id_name_tag\r\n1_"a_b;;,,"_x\r\n2_a, b; c|d_\r\n'
        .replaceAll(delimiter, "")
        .replaceAll("_", delimiter);
      const name = (text: string): string => JSON.stringify(text.replaceAll(delimiter, ""));
      const [first, second] = [`a_b;;,,`, "a, b; c|d"].map(name);
      const plants = [
        `2: 1 ${first?.replace("_", JSON.stringify(delimiter).slice(1, -1))} "x"`,
        `3: 2 ${second}`,
      ];
      await expectRead(rows, plants, detected);
      const other = delimiter === ";" ? "," : ";";
      await expectRead(
        `sep=${other}\nid${other}name\n1${other}a${delimiter}b\n`,
        [`3: 1 ${JSON.stringify(`a${delimiter}b`)}`],
        detected,
      );
      // Refused rows may have any number of cells.
      const refused = "2_reason_1_a;b_x_y\n3_reason_2_a;b\n4_reason_3_a_x\n";
      const rejects = `line_reason_id_name_tag\n${refused}`.replaceAll("_", delimiter);
      await expectRead(
        rejects,
        [
          "2: invalid_plant",
          delimiter === ";" ? '3: 2 "a" "b"' : "3: invalid_plant",
          '4: 3 "a" "x"',
        ],
        detected,
      );
    },
  );

  test("the delimiter of a long file is detected in its beginning, and one column has a comma", async () => {
    const many = Array.from({ length: 5_000 }, (_, at) => `${at};Rose, ${at}\n`).join("");
    const records = await read(`id;name\n${many}`, { kind: "csv" }, { pieceLength: 70_000 });
    expect(records.map(brief).at(-1)).toBe('5001: 4999 "Rose, 4999"');
    const error = await rejectionOf(read("id\n1\n", { kind: "csv" }));
    expect((error as Error).message).toBe('No column is headed "name"; the columns are "id".');
  });

  test("rows are passed on before the file ends, once the delimiter is known", async () => {
    async function* endless() {
      yield new TextEncoder().encode(`id;name\n${"1;a\n".repeat(60)}`);
      await new Promise(() => undefined);
    }
    const blocks = readPlants(
      endless(),
      { kind: "csv" },
      { recordBytesMax: 100, limits: defaults, blockLengthMax: 9 },
    );
    expect((await blocks.next()).value?.map(brief)[0]).toBe('2: 1 "a"');
  });

  test("a bad row is refused alone, with its line and its text", async () => {
    const file =
      '1,a,x|2,a|3,a,x,y|4,"a"b",x|5,"a"b,x|six,a,x|7,"a\nb"c",x|8,a,x|9,"a,x\n10,"b",x|11,a,x';
    const rows = file.split("|");
    const records = await read(`id,name,tag\n${rows.join("\n")}\n`);
    expect(textsOf(records)).toEqual(rows);
    expect(records.map((record) => record.line)).toEqual([2, 3, 4, 5, 6, 7, 8, 10, 11, 13]);
    const bad = records.flatMap(({ line, plant }) =>
      plant instanceof Refusal ? [`${line} ${plant.reason}: ${plant.message}`] : [],
    );
    const follows = "Text follows the closing quote of a cell.";
    expect(bad).toEqual([
      "3 invalid_plant: Cells in the row: 2, in the heading: 3.",
      "4 invalid_plant: Cells in the row: 4, in the heading: 3.",
      ...[5, 6].map((line) => `${line} invalid_plant: ${follows}`),
      '7 invalid_plant: The id is not a whole number: "six".',
      ...[8, 11].map((line) => `${line} invalid_plant: ${follows}`),
    ]);
  });

  test.each(["4.00638E+12", "4,00638E+12", " 4e12 ", "-4.E12", "1E+0"])(
    "an id of %j is refused, because a spreadsheet has rounded it",
    async (id) => {
      const [record] = await read(`id;name\n${id};a\n`, { ...csv, delimiter: ";" });
      expect((record as { plant: Refusal }).plant.message).toBe(
        `The spreadsheet has rounded the id to ${id.trim()}. Format the column as text, enter it again, and save.`,
      );
      // In JSON, a number may be written so.
      const plant = `{"id":${id.trim()},"name":"a"}`;
      if (/^\d+(\.\d+)?e\+?\d+$/i.test(id.trim()))
        await expectRead(plant, [`1: ${Number(id)} "a"`], { kind: "ndjson" });
    },
  );

  test("a quote that is never closed is the file's fault", async () => {
    const says = "The file ends inside a quoted cell, in the row that begins on line 3.";
    expect(await malformed(read('id,name\n1,a\n2,"b\n3,c\n'))).toBe(says);
  });
});

describe("any format", () => {
  test("empty records are counted in blocks too, so that a file of nothing else is not read at once", async () => {
    const measure = async (reader: LineReader | ElementReader, text: string): Promise<number[]> => {
      const lengths: number[] = [];
      for await (const block of reader.read([new TextEncoder().encode(text)], 10))
        lengths.push(block.length);
      return lengths;
    };
    const unusual = "\n\u00a0\n".repeat(20);
    expect(await measure(new LineReader(100), `${unusual}1\n\n2`)).toEqual([0, 0, 1, 1]);
    expect(await measure(new ElementReader(100), `[${",".repeat(20)}1]`)).toEqual([0, 0, 1]);
  });

  test("empty lines cost no record each, and count in the numbers of the others, wherever a piece ends", async () => {
    const bytes = new TextEncoder().encode(`${"\n \t\v\f\r\n".repeat(10)}  1 \n\r\n2\n \n`);
    for (let cut = 0; cut < bytes.length; cut++) {
      const pieces = [bytes.subarray(0, cut), bytes.subarray(cut)];
      const blocks = await Array.fromAsync(new LineReader(100).read(pieces, 2));
      expect(blocks.length).toBeLessThanOrEqual(2);
      expect(blocks.flat()).toEqual([
        { number: 21, text: "  1 " },
        { number: 23, text: "2" },
      ]);
    }
  });

  const x18 = "x".repeat(18);
  test.each<[FileFormat, file: string, expected: string[]]>([
    [
      csv,
      `id,name\n1,${x18}\n2,x${x18}\n3,f\xfcr\n4,c\n`,
      [`2: 1 "${x18}"`, "3: body_too_large", "4: invalid_utf8", '5: 4 "c"'],
    ],
    [
      json,
      '[{"id":1,"name":"ab"},{"id":2,"name":"abc"},\n"\xfc",{"id":4,"name":"c"}]',
      ['1: 1 "ab"', "1: body_too_large", "2: invalid_utf8", '2: 4 "c"'],
    ],
  ])(
    "%j: a record over 20 bytes, or not in UTF-8, is refused alone",
    async (format, file, expected) => {
      const bounds = { recordBytesMax: 20, encoding: "utf-8" } as const;
      const records = await read(Buffer.from(file, "latin1"), format, bounds);
      expect(records.map(brief)).toEqual(expected);
      expect(textsOf(records).slice(1, 3)).toEqual([undefined, undefined]);
    },
  );

  const files: [FileFormat, string][] = [
    [{ kind: "ndjson" }, '{"id":1,"name":"\ufeff"}\n'],
    [json, '[{"id":1,"name":"\ufeff"}]'],
    [csv, "id,name\n1,\ufeff\n"],
  ];
  /** The line of its plant. */
  const lineOf = ({ kind }: FileFormat): number => (kind === "csv" ? 2 : 1);

  test.each(files)("%j: a byte order mark in front is skipped, and no other", (format, file) =>
    // It is stronger than what a person says.
    expectRead(`\ufeff${file}`, [`${lineOf(format)}: 1 "\ufeff"`], format, "windows-1252"),
  );

  test.each(files)("%j: UTF-16 is converted, with and without a mark", async (format, file) => {
    const name = "Größe 🌵 \ud7ff\ue000";
    const text = file.replace("\ufeff", name);
    for (const written of [text, `\ufeff${text}`]) {
      const bytes = Buffer.from(written, "utf16le");
      for (const ordered of [bytes, Buffer.from(bytes).swap16()])
        await expectRead(ordered, [`${lineOf(format)}: 1 "${name}"`], format);
    }
  });

  test.each([
    ["a half of a pair", Buffer.from("\ufeffid,name\n1,\ud800x\n", "utf16le")],
    ["half a unit", Buffer.from("\ufeffid,name\n1,ab\n", "utf16le").subarray(0, -1)],
  ])("UTF-16 with %s is refused as a file", async (_, bytes) => {
    expect(await malformed(read(bytes))).toBe("The file is not valid UTF-16LE.");
  });

  test("a table in Windows-1252 is recognised, refused, and read when that is confirmed", async () => {
    const bytes = Buffer.from("id,name\n1,Gr\xf6\xdfe \x80 \x96\n2,\xe9\n", "latin1");
    for (const pieceLength of [1, 2, 100]) {
      const error = await rejectionOf(read(bytes, csv, { pieceLength }));
      expect(error).toBeInstanceOf(WrongEncoding);
      expect(error).toMatchObject({ guess: "windows-1252" });
    }
    await expectRead(bytes, ['2: 1 "Größe € –"', '3: 2 "é"'], csv, "windows-1252");
  });

  test("one bad byte in a table that is UTF-8 spoils its row alone", () => {
    const bytes = Buffer.from("id,name\n1,é\n2,?\n3,c\n");
    bytes[bytes.indexOf("?")] = 0xe9;
    return expectRead(bytes, ['2: 1 "é"', "3: invalid_utf8", '4: 3 "c"']);
  });

  test.each([
    ["an .xlsx file", "PK\u0003\u0004", "a workbook or an archive, not text"],
    ["an .xls file", "\xd0\xcf\x11\xe0", "an old Excel workbook (.xls)"],
    ["a .gz file", "\x1f\x8b\b\0", "compressed with gzip"],
    ["a screenshot", "\x89PNG\r\n\x1a\n", "is a picture"],
    ["a photograph", "\xff\xd8\xff\xe0\0\x10JFIF", "is a picture"],
    ["a photograph of a phone", "\0\0\0\x24ftypheic", "is a picture or a video"],
    ["a picture from the web", "RIFF\x24\0\0\0WEBP", "is a picture"],
    ["a PDF", "%PDF-1.7\n", "is a PDF"],
  ])("%s is recognised and named", async (_, start, says) => {
    const bytes = Buffer.from(`${start}${"\0\x01\xff".repeat(50)}`, "latin1");
    for (const [format] of files)
      for (const pieceLength of [1, 100])
        expect(await malformed(read(bytes, format, { pieceLength }))).toContain(says);
  });
});
