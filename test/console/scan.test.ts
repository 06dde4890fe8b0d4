/** Which keys are a scan, by their times alone. */

import { describe, expect, test } from "bun:test";
import { ScanReader, type TypedKey } from "../../console/state/scan.ts";

const CODE = "4006381333931";

/** The codes that are read from these keys. Each comes after the gap; a key of several letters is named. */
function readCodes(keys: readonly (string | Partial<TypedKey>)[], gapMs: number): string[] {
  const reader = new ScanReader();
  let atMs = 10_000;
  return keys.flatMap((given) => {
    const typed = typeof given === "string" ? { key: given } : given;
    atMs += gapMs;
    const reading = reader.read({ key: "", atMs, ...typed });
    return reading.kind === "scan" ? reading.code : [];
  });
}

const keysOf = (text: string): string[] => Array.from(text);

describe("a scan", () => {
  test.each([2, 10, 30, 50])("is digits and Enter, %i ms apart", (gapMs) => {
    expect(readCodes([...keysOf(CODE), "Enter"], gapMs)).toEqual([CODE]);
  });

  test("is digits typed faster than a person can, not those of a fast typist", () => {
    for (const gapMs of [51, 60, 100, 300])
      expect(readCodes([...keysOf(CODE), "Enter"], gapMs)).toEqual([]);
  });

  test("of a short code has to come faster, and of one or two digits is text", () => {
    expect(readCodes([...keysOf("123"), "Enter"], 30)).toEqual(["123"]);
    expect(readCodes([...keysOf("12345"), "Enter"], 31)).toEqual([]);
    expect(readCodes([...keysOf("123456"), "Enter"], 31)).toEqual(["123456"]);
    expect(readCodes([...keysOf("12"), "Enter"], 1)).toEqual([]);
  });

  test("ends with Enter, Tab or a line feed, at the same speed", () => {
    for (const end of ["Enter", "Tab", { key: "j", isModified: true }])
      expect(readCodes([...keysOf(CODE), end], 10)).toEqual([CODE]);
    const late = [...keysOf(CODE), { key: "Enter", atMs: 11_000 }];
    expect(readCodes(late, 10)).toEqual([]);
  });

  test("may begin with the kind of its code, a few other characters, or a sign", () => {
    for (const prefix of ["]E0", "]C1", "*", "ID:"])
      expect(readCodes([...keysOf(prefix + CODE), "Enter"], 10)).toEqual([CODE]);
    expect(readCodes([...keysOf("-4711"), "Enter"], 10)).toEqual(["-4711"]);
    expect(readCodes([...keysOf(`${CODE}x`), "Enter"], 10)).toEqual([]);
    expect(readCodes([...keysOf(`Rosa ${CODE}`), "Enter"], 10)).toEqual([]);
  });

  test("starts after a pause, so what a person typed before is no part of it", () => {
    const keys = [{ key: "7", atMs: 9_900 }, ...keysOf(CODE), "Enter"];
    expect(readCodes(keys, 10)).toEqual([CODE]);
  });

  test("is not a key that is held down, nor a shortcut, nor corrected text", () => {
    const held = Array.from({ length: 20 }, () => ({ key: "1", isRepeat: true }));
    expect(readCodes(["1", ...held, "Enter"], 30)).toEqual([]);
    expect(readCodes(["1", ...held, ...keysOf("234567"), "Enter"], 30)).toEqual([]);
    expect(readCodes([{ key: "v", isModified: true }, ...keysOf("12345678"), "Enter"], 10)).toEqual(
      [],
    );
    expect(readCodes([...keysOf("1234"), "Backspace", ...keysOf("45678"), "Enter"], 10)).toEqual(
      [],
    );
  });

  test("follows another one, and neither has a digit of the other", () => {
    const keys = [...keysOf(CODE), "Enter", ...keysOf("4006381333948"), "Enter"];
    expect(readCodes(keys, 10)).toEqual([CODE, "4006381333948"]);
  });

  test("is not disturbed by Shift and the like", () => {
    expect(readCodes(["Shift", "]", "E", "0", ...keysOf(CODE), "Enter"], 10)).toEqual([CODE]);
  });

  test("may end with two Enters, and leaves a later one alone", () => {
    const reader = new ScanReader();
    const kinds = [...keysOf(CODE), "Enter", "Enter"].map(
      (key, index) => reader.read({ key, atMs: 1_000 + index * 10 }).kind,
    );
    expect(kinds.slice(-2)).toEqual(["scan", "end"]);
    expect(reader.read({ key: "Enter", atMs: 2_000 }).kind).toBe("other");
  });

  test("is also a text that is inserted at once, with Enter right after it", () => {
    const reader = new ScanReader();
    reader.insert(CODE, 1_000);
    expect(reader.read({ key: "Enter", atMs: 1_020 })).toEqual({ kind: "scan", code: CODE });
    reader.insert(CODE, 3_000);
    expect(reader.read({ key: "Enter", atMs: 3_400 }).kind).toBe("other");
  });

  test("is not what an input method composes", () => {
    const reader = new ScanReader();
    for (const [index, key] of keysOf(CODE).entries()) {
      if (index === 5) reader.interrupt();
      reader.read({ key, atMs: 1_000 + index * 10 });
    }
    expect(reader.read({ key: "Enter", atMs: 1_150 }).kind).toBe("other");
  });
});
