/** What the page knows of an import. The worker posts what has changed in it. */

import type { Plant } from "../../src/domain/plant.ts";
import type { PlantField } from "../../src/format/csv.ts";
import type { Encoding } from "../../src/format/encoding.ts";
import { type FileFormat, isTable, type Rejected } from "../../src/format/plants.ts";

/** How to read a file. Headings and whether there are any are undefined until they are guessed; no tag is null. */
export interface Reading extends Required<FileFormat> {
  readonly encoding: Encoding;
  /** Of a workbook. The first one until it is opened. */
  readonly sheet: string | undefined;
}

/** The fields that still need a column. */
export const listMissing = (reading: Reading): PlantField[] =>
  (["id", "name"] as const).filter(
    (field) => isTable(reading) && reading.headings[field] === undefined,
  );

export interface Preview {
  /** As chosen or guessed. */
  readonly reading: Reading;
  /** Of a workbook. */
  readonly sheets: readonly string[];
  /** The columns that can be picked. */
  readonly columns: readonly string[];
  /** The heading and the first rows of a table, as they are. */
  readonly table: readonly (readonly string[])[];
  /** Why the file can't be read. */
  readonly problem: string | undefined;
  /** The first records: a plant, or what is wrong with it. */
  readonly rows: readonly { readonly line: number; readonly plant: Plant | string }[];
}

export interface Difference {
  readonly stored: Plant;
  readonly given: Plant;
}

/** Of a comparison, the counts say what an import that updates the different plants would do. */
export interface Progress {
  readonly created: number;
  readonly updated: number;
  readonly replayed: number;
  readonly refused: number;
  readonly counted: number;
  /** How much of the file, from 0 to 1. */
  readonly done: number;
  readonly seconds: number;
  /** The store is busy or does not answer; the worker waits and tries again. */
  readonly isWaiting: boolean;
  /** The text is the start of the record. */
  readonly firstRefused: readonly Rejected[];
  /** All refused records, as a file. */
  readonly rejects: Blob;
}

/** What a worker is told: to compare the file with the store, or to import it. */
export interface Order {
  readonly file: File;
  /** Guessed if not given. */
  readonly reading?: Reading | undefined;
  /** Of an import: the plants to update, as they were compared. Undefined for a comparison. */
  readonly updates?: readonly Difference[] | undefined;
  /** What an import is called in the journal. */
  readonly batch?: string | undefined;
  readonly url: string;
  /** Undefined if it may not read plants: then nothing is compared. */
  readonly token: string | undefined;
}

/** Its progress is undefined until the comparison or the import begins. */
export interface Import
  extends
    Pick<Order, "file" | "reading" | "updates" | "batch">,
    Partial<Omit<Preview, "reading"> & Progress> {
  /** The preview is out of date. */
  readonly isReading?: boolean;
  /** What the comparison found. */
  readonly differences?: readonly Difference[];
  /** Undefined while the comparison or the import runs. */
  readonly ending?: "done" | "cancelled" | "failed";
  readonly failure?: string | undefined;
}
