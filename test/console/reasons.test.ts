/** What is wrong with files and rows, worded in the user's language. */

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { createWording } from "../../console/import/reasons.ts";
import { de } from "../../console/text/de.ts";
import { en } from "../../console/text/en.ts";
import { parseTexts } from "../../src/domain/plant.ts";

const { word, wordError } = createWording({
  reasons: de.imports.reasons,
  fields: { id: "Id", name: "Name", tag: "Schlagwort" },
  errors: de.errors,
});

function refusalOf(id: string, name?: string): string {
  try {
    parseTexts(id, name, undefined);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error("not refused");
}

test("faults of a row are worded, also several, with their values", () => {
  expect(word(refusalOf("", undefined))).toBe("Die Id fehlt. Der Name fehlt.");
  expect(word(refusalOf("A. 1"))).toBe('Die Id ist keine ganze Zahl: "A. 1". Der Name fehlt.');
  expect(word(refusalOf("4.00638E+12", "Rose"))).toStartWith(
    "Die Tabellenkalkulation hat den Wert (Id) auf 4.00638E+12 gerundet. Die Spalte",
  );
});

test("an unknown fault stays in English, as a whole", () => {
  const unknown = "The id is missing. The moon is full.";
  expect(word(unknown)).toBe(unknown);
});

test("an error of the service has its meaning before its message", () => {
  expect(wordError("disk_low", "1 MB free")).toBe(`${de.errors.disk_low} (1 MB free)`);
  expect(wordError(undefined, "odd")).toBe("odd");
});

test("without texts all stays in English", () => {
  const english = createWording();
  const message = refusalOf("4.00638E+12", "Rose");
  expect(english.word(message)).toBe(message);
  expect(english.wordError("disk_low", "1 MB free")).toBe("1 MB free");
});

/** The page words these itself. */
const own = new Set(["twice", "changedMeanwhile", "comparisonLimit", "empty", "gone"]);

test.each(Object.entries(en.imports.reasons).filter(([reason]) => !own.has(reason)))(
  "%s is worded as the reader of files words it",
  (_, text) => {
    const root = join(import.meta.dir, "../../src");
    const files = [...new Glob("{domain,format}/*.ts").scanSync(root)];
    const pieces = text.split(/\{\w+\}/);
    // In one line of the source, with values between the pieces.
    const isSaid = files.some((file) =>
      readFileSync(join(root, file), "utf8")
        .split("\n")
        .some((line) => {
          let at = 0;
          return pieces.every((piece) => {
            const found = line.indexOf(piece, at);
            at = found + piece.length;
            return found !== -1;
          });
        }),
    );
    expect(isSaid).toBe(true);
  },
);
