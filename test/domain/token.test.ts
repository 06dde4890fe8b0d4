/** Tags as people type them. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { joinList, splitList } from "../../src/domain/token.ts";
import { seed } from "../support/random.ts";

test.each([
  ["herb,vegetable", ["herb", "vegetable"]],
  [" herb , vegetable ", ["herb", "vegetable"]],
  ['"sun, shade",herb', ["sun, shade", "herb"]],
  ['"a ""b""" , " c "', ['a "b"', " c "]],
  ['6" pot, "a" b,"c', ['6" pot', '"a" b', '"c']],
  ["", [""]],
  ["a,,", ["a", "", ""]],
])("%j is the words %j", (text, words) => {
  expect(splitList(text)).toEqual([...words]);
});

test("words are read as they were written, whatever they are", () => {
  const word = fc.oneof(fc.string(), fc.stringMatching(/^[", a]{0,5}$/));
  fc.assert(
    fc.property(fc.array(word, { minLength: 1 }), (words) => {
      expect(splitList(joinList(words))).toEqual(words);
    }),
    { seed, numRuns: 1_000 },
  );
});

test("the empty word is written in quotes: a comma at the end is not one in the console", () => {
  expect(joinList(["herb", ""])).toBe('herb, ""');
  expect(joinList([""])).toBe('""');
});
