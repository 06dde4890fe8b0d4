/** What became of the rows of a file: counts, the first rows, and all that were refused. */

import { Refusal } from "../../src/domain/errors.ts";
import type { Plant } from "../../src/domain/plant.ts";
import {
  createRejectsFormat,
  type FileFormat,
  type PlantRecord,
  type Rejected,
} from "../../src/format/plants.ts";
import type { Wording } from "./reasons.ts";

/**
 * What the import does with a row. One that is "kept" differs from the stored plant, which stays as it is, because the
 * user did not choose the change. One that is "updatedAgain" repeats an updated one: it is recognised, or kept.
 */
export type RowOutcome = "created" | "replayed" | "updated" | "updatedAgain" | "kept" | "refused";

export interface PreviewRow {
  readonly line: number;
  /** The plant, or what is wrong with the record. */
  readonly plant: Plant | string;
  /** Undefined until it is compared. */
  readonly outcome?: RowOutcome;
}

/** What became of a row, or what an import would make of it. */
export type Fate = Exclude<RowOutcome, "refused"> | { readonly message: string };

/** By the plant of the record. */
export type Fates = Map<object, Fate>;

export const ROWS_SHOWN = 8;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

export type Tally = ReturnType<typeof createTally>;

export function createTally(reading: FileFormat, wording: Wording) {
  /** Those of a comparison predict those of an import. */
  const counts = {
    created: 0,
    updated: 0,
    updatedAgain: 0,
    kept: 0,
    removed: 0,
    replayed: 0,
    refused: 0,
    /** Refused rows that only lack a name. */
    nameless: 0,
    counted: 0,
  };
  /** The text is the start of the record. */
  const firstRefused: Rejected[] = [];
  const along = createAlong();
  const rows: PreviewRow[] = [];
  const format = createRejectsFormat(reading);
  /** The browser may move blobs to disk. */
  const rejects: Blob[] = [];

  const refuse = (rejected: readonly Rejected[]): void => {
    counts.refused += rejected.length;
    for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
      firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
  };

  return {
    counts,
    onHeading: format.onHeading,

    /** A record without a fate was not answered. */
    add(records: readonly PlantRecord[], fates: Fates): void {
      const rejected: Rejected[] = [];
      for (const { line, text, plant } of records) {
        const fate = plant instanceof Refusal ? { message: wording.word(plant) } : fates.get(plant);
        if (fate === undefined) continue;
        const isRefused = typeof fate !== "string";
        along.add(line, isRefused);
        if (isRefused) rejected.push({ line, text, reason: fate.message });
        else counts[fate]++;
        if (isNameless(plant)) counts.nameless++;
        if (rows.length < ROWS_SHOWN)
          rows.push({
            line,
            plant: isRefused ? fate.message : (plant as Plant),
            outcome: isRefused ? "refused" : fate,
          });
      }
      refuse(rejected);
      if (rejected.length > 0) rejects.push(new Blob([format.add(rejected)]));
    },

    /** Of a plant that is in no row of the file. */
    addRemoval: ({ id }: Pick<Plant, "id">, fate: Fate): void => {
      if (fate === "updated") counts.removed++;
      else if (typeof fate !== "string")
        refuse([{ line: 0, reason: fate.message, text: String(id) }]);
    },

    read: (isRead: boolean) => ({
      ...counts,
      ...((isRead || rows.length === ROWS_SHOWN) && { rows }),
      firstRefused,
      refusedAlong: along.read(),
      /** All refused records, as a file. */
      rejects: new Blob([...rejects, format.end()]),
    }),
  };
}

const isNameless = (plant: PlantRecord["plant"]): boolean =>
  plant instanceof Refusal &&
  plant.faults.length > 0 &&
  plant.faults.every(({ name }) => name === "nameMissing");

const SLOTS_MAX = 128;

/** How many rows were refused in each part of `size` lines. The parts grow with the file, so there are few. */
function createAlong() {
  let size = 1;
  let lines = 0;
  let slots: number[] = [];
  return {
    add(line: number, isRefused: boolean): void {
      lines = Math.max(lines, line);
      while (line > size * SLOTS_MAX) {
        size *= 2;
        const half = slots;
        slots = Array.from(
          { length: Math.ceil(half.length / 2) },
          (_, at) => (half[2 * at] ?? 0) + (half[2 * at + 1] ?? 0),
        );
      }
      if (!isRefused) return;
      const at = Math.floor((line - 1) / size);
      while (slots.length <= at) slots.push(0);
      slots[at] = (slots[at] ?? 0) + 1;
    },
    /** The last line that was read is `lines`. */
    read: () => ({ slots, size, lines }),
  };
}
