/** What the page knows of an import. The worker posts what has changed in it. */

import type { Plant } from "../../domain/plant.ts";
import type { PlantField } from "../../format/csv.ts";
import type { Encoding } from "../../format/encoding.ts";
import { type FileFormat, isTable } from "../../format/plants.ts";

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
  readonly reading: Reading;
  /** Of a workbook. */
  readonly sheets: readonly string[];
  /** The columns that can be picked. */
  readonly columns: readonly string[];
  /** The heading and the first rows of a table, as they are. */
  readonly table: readonly (readonly string[])[];
  /** Why the file can't be read. */
  readonly problem?: string;
  /** The first records: a plant, or what is wrong with it. */
  readonly rows: readonly { readonly line: number; readonly plant: Plant | string }[];
}

export interface Difference {
  readonly stored: Plant;
  readonly given: Plant;
}

/** What the store has of the file's plants already. */
export interface Comparison {
  readonly created: number;
  readonly same: number;
  readonly refused: number;
  readonly differences: readonly Difference[];
  readonly rows: number;
  /** All rows were compared. */
  readonly isComplete: boolean;
}

export interface Progress {
  readonly created: number;
  readonly updated: number;
  readonly replayed: number;
  readonly refused: number;
  /** How much of the file, from 0 to 1. */
  readonly done: number;
  readonly seconds: number;
  /** The store is busy or does not answer; the worker waits and tries again. */
  readonly isWaiting: boolean;
  /** The text is the start of the record. */
  readonly firstRefused: readonly {
    readonly line: number;
    readonly reason: string;
    readonly text: string;
  }[];
  /** All refused records, as a file. */
  readonly rejects: Blob;
}

export interface Ending {
  /** The last two are about the token. */
  readonly kind: "done" | "cancelled" | "failed" | "refused" | "expired";
  /** Why it has failed. */
  readonly message?: string;
}

/** A worker does one task: it compares the file with the store, or imports it. */
export interface Task {
  readonly file: File;
  /** Guessed if not given. */
  readonly reading?: Reading | undefined;
  /** Of an import: the plants to update, as they were compared. */
  readonly updates?: readonly Difference[];
}

export interface Import {
  readonly task: Task;
  /** Undefined until the file is read for the first time. */
  readonly preview?: Preview | undefined;
  /** The preview is out of date. */
  readonly isReading?: boolean;
  /** How much of the file was compared with the store, from 0 to 1, while that goes on. */
  readonly comparing?: number | undefined;
  readonly comparison?: Comparison;
  /** Undefined until the import begins. */
  readonly progress?: Progress;
  /** Undefined while the import runs. */
  readonly ending?: Ending;
}

/** What a worker is told. */
export interface Order extends Task {
  readonly url: string;
  /** Undefined if it may not read plants: then nothing is compared. */
  readonly token: string | undefined;
}
