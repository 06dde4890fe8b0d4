/** The model of a disk loses and keeps what a disk may. */

import { expect, test } from "bun:test";
import { createRandom } from "../support/random.ts";
import { choosePieces, Disk, FOLDER, Kind } from "./disk-model.ts";

type Step = readonly [kind: number, name: string, offset?: number, text?: string];

/** All that may be there after these operations on a disk with one file, and what is read until then. */
function imagine(
  steps: readonly Step[],
  random = createRandom(),
): { lost: string[]; shown: string } {
  const disk = new Disk(new Map([["old", Buffer.from("old")]]), random);
  for (const [index, [kind, name, offset = 0, text = ""]] of steps.entries())
    disk.apply({ number: index + 1, kind, name, offset, data: Buffer.from(text) });
  const format = (files: ReturnType<Disk["show"]>): string =>
    files
      .entries()
      .map(([name, content]) => `${name}=${content.toString()}`)
      .toArray()
      .join(" ");
  const lost = Array.from({ length: 500 }, () => format(disk.lose(choosePieces(random))));
  return { lost: [...new Set(lost)].toSorted(), shown: format(disk.show()) };
}

const written: Step = [Kind.written, "old", 0, "new"];

test("the disk of the model may lose or keep what was not synced, and keeps what was", () => {
  expect(imagine([written])).toEqual({ lost: ["old=new", "old=old"], shown: "old=new" });
  const synced: Step[] = [written, [Kind.syncBegun, "old"], [Kind.synced, "old", 2]];
  expect(imagine(synced).lost).toEqual(["old=new"]);
  const meanwhile: Step[] = [[Kind.syncBegun, "old"], written, [Kind.synced, "old", 1]];
  expect(imagine(meanwhile).lost).toEqual(["old=new", "old=old"]);
});

test("the disk of the model keeps a name for certain only when its folder was synced", () => {
  const made: Step[] = [
    [Kind.opened, "a"],
    [Kind.written, "a", 0, "x"],
    [Kind.syncBegun, "a"],
    [Kind.synced, "a", 3],
  ];
  expect(imagine(made).lost).toEqual(["old=old", "old=old a=x"]);
  const named: Step[] = [...made, [Kind.syncBegun, FOLDER], [Kind.synced, FOLDER, 5]];
  expect(imagine(named).lost).toEqual(["old=old a=x"]);
  expect(imagine([[Kind.unlinked, "old"]]).lost).toEqual(["", "old=old"]);
});

test("the disk of the model keeps no more of a write for a sync that comes after one that failed", () => {
  const random = createRandom();
  const steps: Step[] = [
    written,
    [Kind.syncBegun, "old"],
    [Kind.syncFailed, "old", 2],
    [Kind.syncBegun, "old"],
    [Kind.synced, "old", 4],
  ];
  const outcomes = Array.from({ length: 100 }, () => imagine(steps, random));
  expect(new Set(outcomes.map(({ shown }) => shown))).toEqual(new Set(["old=new"]));
  const lost = outcomes.map((outcome) => outcome.lost.join(" or "));
  expect(new Set(lost)).toEqual(new Set(["old=new", "old=old"]));
});
