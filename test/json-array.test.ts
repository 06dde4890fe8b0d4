/** Elements cut out of a JSON array: exact texts, right lines, whatever the pieces they come in. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import type { Refusal } from "../src/domain/errors.ts";
import { ElementReader, type Line, MalformedFile } from "../src/format/records.ts";
import { inPieces } from "./support/arbitrary.ts";
import { rejectionOf } from "./support/expect.ts";
import { seed } from "./support/random.ts";

async function cut(
  text: string | Uint8Array,
  { pieceLength = 7, bytesMax = 1_000 } = {},
): Promise<Line[]> {
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  const elements: Line[] = [];
  for await (const block of new ElementReader(bytesMax).read(inPieces(bytes, pieceLength), 2)) {
    expect(block.length).toBeWithin(1, 3);
    elements.push(...block);
  }
  return elements;
}

const texts = (elements: readonly Line[]): unknown[] => elements.map((element) => element.text);

describe("ElementReader", () => {
  test("keeps every element as it is written, with the line it begins on", async () => {
    const file = ' [\n{"id": 9223372036854775807},\r\n\n  {"id":\n2} ,[1,[2]], "a,b" ,\ttrue\n] \n';
    const expected = [
      { number: 2, text: '\n{"id": 9223372036854775807}' },
      { number: 4, text: '\r\n\n  {"id":\n2} ' },
      { number: 5, text: "[1,[2]]" },
      { number: 5, text: ' "a,b" ' },
      { number: 5, text: "\ttrue\n" },
    ];
    for (let pieceLength = 1; pieceLength <= file.length; pieceLength++)
      expect(await cut(file, { pieceLength })).toEqual(expected);
  });

  test.each<[file: string, elements: string[]]>([
    ["[]", []],
    [" [ \n ] ", []],
    // One that is missing between commas is left out.
    ["[1,,2,\n]", ["1", "2"]],
    // One with unbalanced brackets spoils none but itself.
    ['[{"id":1],{"id":2},}3,{"id":4}]', ['{"id":1]', '{"id":2}', "}3", '{"id":4}']],
    // Brackets, commas and quotes inside strings are text.
    [
      String.raw`[{"name":"],[}{,\"]\\"},"\\",{"a":{"b":["]"]}},"\u005d\""]`,
      [
        String.raw`{"name":"],[}{,\"]\\"}`,
        String.raw`"\\"`,
        '{"a":{"b":["]"]}}',
        String.raw`"\u005d\""`,
      ],
    ],
  ])("%j has the elements %j", async (file, elements) => {
    expect(texts(await cut(file, { pieceLength: 1 }))).toEqual(elements);
  });

  test.each([
    ["", "The file is empty; expected a JSON array."],
    ["  \n ", "The file is empty; expected a JSON array."],
    [
      '\n{"id":1}',
      "Line 2 does not begin a JSON array. For one plant on each line, the format is ndjson.",
    ],
    ['[{"id":1},\n{"id":2', "The file ends inside its array, in the record that begins on line 2."],
    ['[{"id":1}\n', "The file ends inside its array, in the record that begins on line 1."],
    ['[{"id":1},\n', "The file ends inside its array, in the record that begins on line 2."],
    ['["\\"]', "The file ends inside its array, in the record that begins on line 1."],
    ["[1]\n\n[2]", "Line 3 has more text after the end of the array."],
  ])("%j is refused as a file", async (file, message) => {
    const error = await rejectionOf(cut(file, { pieceLength: 1 }));
    expect(error).toBeInstanceOf(MalformedFile);
    expect((error as Error).message).toBe(message);
  });

  test.each(["[1,2,3", "[1,2] and more"])(
    "%j: what comes before the fault counts",
    async (file) => {
      for (const pieceLength of [2, 100]) {
        const seen: unknown[] = [];
        const bytes = new TextEncoder().encode(file);
        const reading = (async () => {
          for await (const block of new ElementReader(10).read(inPieces(bytes, pieceLength), 10))
            seen.push(...texts(block));
        })();
        expect(await rejectionOf(reading)).toBeInstanceOf(MalformedFile);
        expect(seen).toEqual(["1", "2"]);
      }
    },
  );

  test("an element over the bound, or not in UTF-8, is a refusal in its place", async () => {
    const long = `"${"x".repeat(9)}"`;
    const file = Buffer.concat([
      Buffer.from(`["12345678",${long},\n"`),
      Buffer.from([0xff]),
      Buffer.from('","é"]'),
    ]);
    const [fits, tooLarge, notText, after] = await cut(file, { bytesMax: 10, pieceLength: 3 });
    expect(fits).toEqual({ number: 1, text: '"12345678"' });
    expect((tooLarge as { text: Refusal }).text.reason).toBe("body_too_large");
    expect(notText?.number).toBe(2);
    expect((notText as { text: Refusal }).text.reason).toBe("invalid_utf8");
    expect(after).toEqual({ number: 2, text: '"é"' });
  });

  test("any array, written in any way and come in any pieces, has its elements", async () => {
    const spaces = fc.stringMatching(/^[ \t\r\n]{0,3}$/);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(spaces, fc.json({ noUnicodeString: false }), spaces)),
        fc.integer({ min: 1, max: 50 }),
        async (elements, pieceLength) => {
          const file = `[${elements.map((parts) => parts.join("")).join(",")}]`;
          const found = await cut(file, { pieceLength, bytesMax: 1_000_000 });
          expect(texts(found)).toEqual(elements.map((parts) => parts.join("")));
        },
      ),
      { seed, numRuns: 200 },
    );
  });
});
