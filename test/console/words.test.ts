/** The words that are marked where two versions differ. */

import { expect, test } from "bun:test";
import { compareWords } from "../../console/state/words.ts";

/** What is not common is in brackets. */
const mark = (text: string, other: string): string =>
  compareWords(text, other)
    .map(({ text: piece, isCommon }) => (isCommon ? piece : `[${piece}]`))
    .join("");

test.each([
  ["Rosa canina", "Rosa canina", "Rosa canina"],
  ["Rosa canina alba", "Rosa alba", "Rosa [canina ]alba"],
  ["Rosa alba", "Rosa canina alba", "Rosa alba"],
  ["Lemon thyme", "Thyme", "[Lemon thyme]"],
  ["Rosa 'Alba'", "Rosa 'Rubra'", "Rosa '[Alba]'"],
  ["Basil (Ocimum basilicum)", "Renamed plant", "[Basil (Ocimum basilicum)]"],
  ["", "anything", ""],
  ["all new", "", "[all new]"],
  ["Müller’s Fläche", "Müllers Fläche", "[Müller’s] Fläche"],
])("%p beside %p", (text, other, marked) => {
  expect(mark(text, other)).toBe(marked);
});

test("texts of many words are compared as a whole", () => {
  const long = "a ".repeat(200);
  expect(compareWords(long, `${long}b`)).toEqual([{ text: long, isCommon: false }]);
});
