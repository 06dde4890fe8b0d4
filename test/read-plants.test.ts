/** Files of every format, read back to plants: what is exported, what spreadsheets write, and what is wrong. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { Refusal } from "../src/domain/errors.ts";
import { formatStoredPlant, type Plant } from "../src/domain/plant.ts";
import { CSV_HEAD, formatCsv, MissingColumn } from "../src/format/csv.ts";
import { type Encoding, WrongEncoding } from "../src/format/encoding.ts";
import { type FileFormat, type PlantRecord, readPlants } from "../src/format/plants.ts";
import { MalformedFile } from "../src/format/records.ts";
import { anyPlant, inPieces } from "./support/arbitrary.ts";
import { rejectionOf } from "./support/expect.ts";
import { seed } from "./support/random.ts";

const csv = { kind: "csv", headings: {}, delimiter: "," } as const;

async function read(
  file: string | Uint8Array,
  format: FileFormat = csv,
  {
    pieceLength = 5,
    recordBytesMax = 100_000,
    blockLengthMax = 100,
    encoding = undefined as Encoding | undefined,
  } = {},
): Promise<PlantRecord[]> {
  const bytes = typeof file === "string" ? new TextEncoder().encode(file) : file;
  const bounds = { recordBytesMax, blockLengthMax, encoding };
  const records: PlantRecord[] = [];
  for await (const block of readPlants(inPieces(bytes, pieceLength), format, bounds))
    records.push(...block);
  return records;
}

/** `[id, name, tag]`, or the reason of a refusal. */
const brief = ({ plant }: PlantRecord): unknown =>
  plant instanceof Refusal ? plant.reason : [plant.id, plant.name, plant.tag];

const briefs = (records: readonly PlantRecord[]): unknown[] => records.map(brief);

describe("what is exported is read again without a difference", () => {
  const formats: [FileFormat, (plants: readonly Plant[]) => string][] = [
    [{ kind: "ndjson" }, (plants) => plants.map((one) => `${formatStoredPlant(one)}\n`).join("")],
    [{ kind: "json" }, (plants) => `[\n${plants.map(formatStoredPlant).join(",\n")}\n]\n`],
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

describe("CSV", () => {
  test("an empty tag cell is no tag, and one of two quotes is the empty tag", async () => {
    const records = await read('id,name,tag\n1,a,\n2,b,""\n3,"",x\n4,,x\n');
    expect(briefs(records)).toEqual([
      [1n, "a", undefined],
      [2n, "b", ""],
      [3n, "", "x"],
      [4n, "", "x"],
    ]);
  });

  test("an empty name is refused if a name is needed", async () => {
    const records = await read('id,name\n1,a\n2,\n3,""\n4,"  "\n', { ...csv, needsName: true });
    expect(briefs(records)).toEqual([[1n, "a", undefined], ...Array(3).fill("invalid_plant")]);
  });

  test("rows above the first line are skipped, whatever they have", async () => {
    const file = 'sep=;\nStock "May"\n;;\nNr\n\nid;name\n1;a\n';
    for (const pieceLength of [1, 5, 100])
      expect(briefs(await read(file, { ...csv, firstLine: 6 }, { pieceLength }))).toEqual([
        [1n, "a", undefined],
      ]);
  });

  test("a defused formula is restored in names and tags, and nothing else is", async () => {
    const records = await read("id,name,tag\n1,'=1+1,'-5\n2,''=x,'a\n-3,=1,'\n");
    expect(briefs(records)).toEqual([
      [1n, "=1+1", "-5"],
      [2n, "'=x", "'a"],
      [-3n, "=1", "'"],
    ]);
  });

  test("a column of tags can be ignored, even one that occurs twice", async () => {
    const headings = { tag: null };
    expect(briefs(await read("id,name,tag,tag\n1,Fern,a,b\n", { ...csv, headings }))).toEqual([
      [1n, "Fern", undefined],
    ]);
  });

  test("columns are found by their headings, in any order and among others", async () => {
    const headings = { id: "Nr", name: "Plant", tag: "Type" };
    const file = "Bed,Type,Plant,Nr\nnorth,fern,Adder's tongue,7\n";
    expect(briefs(await read(file, { ...csv, headings }))).toEqual([
      [7n, "Adder's tongue", "fern"],
    ]);
    expect(briefs(await read("name,id\na,1\n"))).toEqual([[1n, "a", undefined]]);
  });

  test.each([
    ["a,b\n1,x\n", {}, 'No column is headed "id"; the columns are "a", "b".'],
    ["id,tag\n1,x\n", {}, 'No column is headed "name"; the columns are "id", "tag".'],
    [
      "id,name\n1,x\n",
      { tag: "Type" },
      'No column is headed "Type"; the columns are "id", "name".',
    ],
    ["id;name\n1;x\n", {}, 'No column is headed "id"; the columns are "id;name".'],
    [
      "id,name,id\n",
      {},
      'More than one column is headed "id"; the columns are "id", "name", "id".',
    ],
    ["", {}, "The file is empty; expected a heading."],
    ["\n\n", {}, "The file is empty; expected a heading."],
    ['i"d,name\n', {}, "The heading: A quote stands inside a cell that is not quoted."],
  ])("%j with the headings %j has not the columns", async (file, headings, message) => {
    const error = await rejectionOf(read(file, { ...csv, headings }));
    expect(error).toBeInstanceOf(MissingColumn);
    expect((error as Error).message).toBe(message);
  });

  test.each(["\n", "\r\n", "\r"])("lines may end in %j, the last one in nothing", async (end) => {
    const file = ["id,name,tag", "1,a,x", "", '2,"b\r\nb",x', "3,c,x"].join(end);
    for (const pieceLength of [1, 2, 3, 5, 100]) {
      const records = await read(file, csv, { pieceLength });
      expect(briefs(records)).toEqual([
        [1n, "a", "x"],
        [2n, "b\r\nb", "x"],
        [3n, "c", "x"],
      ]);
      expect(records.map((record) => record.line)).toEqual([2, 4, 6]);
    }
  });

  test("rows of empty cells, as spreadsheets write them around their data, are left out", async () => {
    const records = await read(';;\nid;name;tag\n;;\n1;a;x\n ; ;\n;"";\n;;\n;;', {
      ...csv,
      delimiter: ";",
    });
    expect(briefs(records)).toEqual([[1n, "a", "x"], "invalid_plant"]);
    expect(records.map((record) => record.line)).toEqual([4, 6]);
    expect(briefs(await read("id\tname\n\t\n1\ta\n\t\n", { ...csv, delimiter: "\t" }))).toEqual([
      [1n, "a", undefined],
    ]);
  });

  test.each([";", "|", "\t", ","])(
    "a first line sep=%s is the delimiter, for Excel",
    async (sign) => {
      const rows = `id${sign}name${sign}tag\r\n1${sign}"a${sign}b"${sign}x\r\n${sign}${sign}\r\n`;
      for (const pieceLength of [1, 1000]) {
        const records = await read(`\ufeffsep=${sign}\r\n${rows}`, csv, { pieceLength });
        expect(briefs(records)).toEqual([[1n, `a${sign}b`, "x"]]);
        expect(records.map((record) => record.line)).toEqual([3]);
      }
      // Elsewhere it is a row like any other.
      expect(briefs(await read("id,name\nsep=;\n1,a\n"))).toEqual([
        "invalid_plant",
        [1n, "a", undefined],
      ]);
    },
  );

  test("a bad row is refused alone, with its line and its text", async () => {
    const rows = [
      "1,a,x",
      "2,a",
      "3,a,x,y",
      '4,a"b,x',
      '5,"a"b,x',
      "six,a,x",
      '7,"a\nb"c",x',
      "8,a,x",
      '9,"a,x\n10,"b",x',
      "11,a,x",
    ];
    const records = await read(`id,name,tag\n${rows.join("\n")}\n`);
    expect(records.map((record) => record.text)).toEqual(rows);
    expect(records.map((record) => record.line)).toEqual([2, 3, 4, 5, 6, 7, 8, 10, 11, 13]);
    const bad = records.flatMap(({ line, plant }) =>
      plant instanceof Refusal ? [[line, plant.reason, plant.message]] : [],
    );
    expect(bad).toEqual([
      [3, "invalid_plant", "The row has 2 cells, and the heading has 3."],
      [4, "invalid_plant", "The row has 4 cells, and the heading has 3."],
      [5, "invalid_plant", "A quote stands inside a cell that is not quoted."],
      [6, "invalid_plant", "Text follows the closing quote of a cell."],
      [7, "invalid_plant", 'The id is not a whole number: "six".'],
      [8, "invalid_plant", "Text follows the closing quote of a cell."],
      [11, "invalid_plant", "Text follows the closing quote of a cell."],
    ]);
  });

  test.each(["4.00638E+12", "4,00638E+12", " 4e12 ", "-4.E12", "1E+0"])(
    "an id of %j is refused, because a spreadsheet has rounded it",
    async (id) => {
      const [record] = await read(`id;name\n${id};a\n`, { ...csv, delimiter: ";" });
      expect((record as { plant: Refusal }).plant.message).toBe(
        `The spreadsheet has rounded the id to ${id.trim()}. Format the column as text, enter the ids again, and save.`,
      );
      const json = `{"id":${id.trim()},"name":"a"}`;
      if (/^\d+(\.\d+)?e\+?\d+$/i.test(id.trim()))
        expect(brief((await read(json, { kind: "ndjson" }))[0] as PlantRecord)).toEqual([
          BigInt(Number(id)),
          "a",
          undefined,
        ]);
    },
  );

  test("a quote that is never closed is the file's fault", async () => {
    const error = await rejectionOf(read('id,name\n1,a\n2,"b\n3,c\n'));
    expect(error).toBeInstanceOf(MalformedFile);
    expect((error as Error).message).toBe(
      "The file ends inside a quoted cell, in the row that begins on line 3.",
    );
  });

  test("a row over the bound, or not in UTF-8, is refused alone", async () => {
    const file = Buffer.concat([
      Buffer.from(`id,name\n1,${"x".repeat(50)}\n2,f`),
      Buffer.from([0xfc]),
      Buffer.from("r\n3,c\n"),
    ]);
    const records = await read(file, csv, { recordBytesMax: 20, encoding: "utf-8" });
    expect(briefs(records)).toEqual(["body_too_large", "invalid_utf8", [3n, "c", undefined]]);
    expect(records.map((record) => record.text)).toEqual([undefined, undefined, "3,c"]);
  });

  test.each(["\t", ";", "|"])(
    "cells may be separated by %j, and hold commas",
    async (delimiter) => {
      const rows = [
        ["id", "name", "tag"],
        ["1", `"a${delimiter}b"`, "x,y"],
      ];
      const file = rows.map((row) => row.join(delimiter)).join("\n");
      expect(briefs(await read(file, { kind: "csv", headings: {}, delimiter }))).toEqual([
        [1n, `a${delimiter}b`, "x,y"],
      ]);
    },
  );
});

describe("any format", () => {
  const files: [FileFormat, string][] = [
    [{ kind: "ndjson" }, '{"id":1,"name":"\ufeff"}\n'],
    [{ kind: "json" }, '[{"id":1,"name":"\ufeff"}]'],
    [csv, "id,name\n1,\ufeff\n"],
  ];
  test.each(files)(
    "%j: a byte order mark in front is skipped, and no other",
    async (format, file) => {
      for (const pieceLength of [1, 2, 100])
        expect(briefs(await read(`\ufeff${file}`, format, { pieceLength }))).toEqual([
          [1n, "\ufeff", undefined],
        ]);
    },
  );

  const swapped = (text: string): Buffer => Buffer.from(text, "utf16le").swap16();

  test.each(files)("%j: UTF-16 is converted, with and without a mark", async (format, file) => {
    const long = file.replace("\ufeff", "Größe 🌵 \ud7ff\ue000");
    const plants = briefs(await read(long, format));
    for (const bytes of [
      Buffer.from(`\ufeff${long}`, "utf16le"),
      swapped(`\ufeff${long}`),
      Buffer.from(long, "utf16le"),
      swapped(long),
    ])
      for (const pieceLength of [1, 2, 3, 100])
        expect(briefs(await read(bytes, format, { pieceLength }))).toEqual(plants);
  });

  test.each([
    ["a half of a pair", Buffer.from("\ufeffid,name\n1,\ud800x\n", "utf16le")],
    ["half a unit", Buffer.from("\ufeffid,name\n1,ab\n", "utf16le").subarray(0, -1)],
  ])("UTF-16 with %s is refused as a file", async (_, bytes) => {
    const error = await rejectionOf(read(bytes));
    expect(error).toBeInstanceOf(MalformedFile);
    expect((error as Error).message).toBe("The file is not valid UTF-16LE.");
  });

  test("a table in Windows-1252 is recognised, refused, and read when that is confirmed", async () => {
    const bytes = Buffer.from("id,name\n1,Gr\xf6\xdfe \x80 \x96\n2,\xe9\n", "latin1");
    for (const pieceLength of [1, 2, 100]) {
      const error = await rejectionOf(read(bytes, csv, { pieceLength }));
      expect(error).toBeInstanceOf(WrongEncoding);
      expect(error).toMatchObject({ guess: "windows-1252" });
      const records = await read(bytes, csv, { pieceLength, encoding: "windows-1252" });
      expect(briefs(records)).toEqual([
        [1n, "Größe € –", undefined],
        [2n, "é", undefined],
      ]);
    }
  });

  test("one bad byte in a table that is UTF-8 spoils its row alone", async () => {
    const bytes = Buffer.concat([
      Buffer.from("id,name\n1,é\n2,"),
      Buffer.from([0xe9]),
      Buffer.from("\n3,c\n"),
    ]);
    for (const pieceLength of [1, 2, 3, 100])
      expect(briefs(await read(bytes, csv, { pieceLength }))).toEqual([
        [1n, "é", undefined],
        "invalid_utf8",
        [3n, "c", undefined],
      ]);
  });

  test.each([
    ["an .xlsx file", "PK\u0003\u0004", "a workbook or an archive, not text"],
    ["an .xls file", "\xd0\xcf\x11\xe0", "an old Excel workbook (.xls)"],
    ["a .gz file", "\x1f\x8b\b\0", "compressed with gzip"],
    ["a photograph", "\xff\xd8\xff\xe0\0\x10JFIF", "is a picture"],
    ["a photograph of a phone", "\0\0\0\x24ftypheic", "is a picture or a video"],
    ["a picture from the web", "RIFF\x24\0\0\0WEBP", "is a picture"],
    ["a PDF", "%PDF-1.7\n", "is a PDF"],
  ])("%s is recognised and named", async (_, start, says) => {
    const bytes = Buffer.from(`${start}${"\0\x01\xff".repeat(50)}`, "latin1");
    for (const [format] of files)
      for (const pieceLength of [1, 100]) {
        const error = await rejectionOf(read(bytes, format, { pieceLength }));
        expect(error).toBeInstanceOf(MalformedFile);
        expect((error as Error).message).toContain(says);
      }
  });

  test("ids are exact, and a bad element of an array is refused alone", async () => {
    const file =
      '[{"id":9223372036854775807,"name":"a"},\n{"id":9223372036854775808,"name":"b"},\n5,\n{"id":-9007199254740993,"name":"c"}]';
    const records = await read(file, { kind: "json" });
    expect(briefs(records)).toEqual([
      [9223372036854775807n, "a", undefined],
      "invalid_plant",
      "invalid_plant",
      [-9007199254740993n, "c", undefined],
    ]);
    expect(records.map((record) => record.line)).toEqual([1, 2, 3, 4]);
  });
});
