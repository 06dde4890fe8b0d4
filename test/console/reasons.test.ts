/** What is wrong with files and rows, worded in the user's language. */

import { expect, test } from "bun:test";
import { createWording } from "../../console/import/reasons.ts";
import { de } from "../../console/text/de.ts";
import { en } from "../../console/text/en.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { createFault } from "../../src/domain/faults.ts";
import { parseNewPlant, parseTexts } from "../../src/domain/plant.ts";
import { refuseBinary } from "../../src/format/encoding.ts";
import { MalformedFile } from "../../src/format/records.ts";

const { faults, errors } = de;
const fields = { id: "Id", name: "Name", tag: "Schlagwort" };
const german = createWording({
  reasons: de.imports.reasons,
  others: { faults, errors, fields },
});
const english = createWording({ reasons: en.imports.reasons, others: undefined });

function faultOf(parse: () => unknown): Refusal | MalformedFile {
  try {
    parse();
  } catch (error) {
    if (error instanceof Refusal || error instanceof MalformedFile) return error;
  }
  throw new Error("not refused");
}

const ofRow = (id: string, name?: string) => faultOf(() => parseTexts(id, name, undefined));

test("faults of a row are worded, also several, with their values", () => {
  expect(german.word(ofRow("", undefined))).toBe("Die Id fehlt. Der Name fehlt.");
  expect(german.word(ofRow("A. 1"))).toBe('Die Id ist keine ganze Zahl: "A. 1". Der Name fehlt.');
  expect(german.word(ofRow("4.00638E+12", "Rose"))).toStartWith(
    "Die Tabellenkalkulation hat den Wert (Id) auf 4.00638E+12 gerundet. Die Spalte",
  );
});

test("a rule about a plant is worded the same, whatever the file", () => {
  const said = "Das Feld (Name) enthält ein Zeichen, das sich nicht speichern lässt";
  expect(german.word(ofRow("1", "\0"))).toStartWith(said);
  expect(german.word(faultOf(() => parseNewPlant('{"id":1,"name":"\\u0000"}')))).toStartWith(said);
});

test("a fault of a file is worded, in all its sentences", () => {
  const picture = faultOf(() => refuseBinary(new Uint8Array([0x89, 0x50, 0x4e, 0x47]), false));
  expect(german.word(picture)).toBe(
    "Die Datei ist ein Bild oder ein Video. Um die Liste als Tabelle (.xlsx) oder als CSV bitten.",
  );
  const heading = new MalformedFile([createFault("inHeading"), createFault("textAfterQuote")]);
  expect(german.word(heading)).toStartWith("Die Kopfzeile: Nach dem schließenden");
});

test("an error without faults has its meaning before its message", () => {
  expect(german.word(faultOf(() => parseNewPlant("{")))).toStartWith(
    `${errors.invalid_json} (The body is not valid JSON:`,
  );
  expect(german.wordError("disk_low", "1 MB free")).toBe(`${errors.disk_low} (1 MB free)`);
  expect(german.wordError(undefined, "odd")).toBe("odd");
});

test("English is what the reader of files says", () => {
  const refused = ofRow("4.00638E+12", "Rose");
  expect(english.word(refused)).toBe(refused.message);
  expect(english.wordError("disk_low", "1 MB free")).toBe("1 MB free");
});
