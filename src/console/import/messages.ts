/** The messages between the page and the import worker. */

import type { Plant } from "../../domain/plant.ts";
import type { Headings, PlantField } from "../../format/csv.ts";
import type { Encoding } from "../../format/encoding.ts";
import type { FileFormat } from "../../format/plants.ts";

/** How to read a file. */
export interface Reading {
  readonly kind: FileFormat["kind"] | "xlsx";
  readonly encoding: Encoding;
  readonly delimiter: string;
  /** Of a workbook. The first one until it is opened. */
  readonly sheet: string | undefined;
  /** The first row is data. Undefined until that is guessed. */
  readonly isHeadless: boolean | undefined;
  /** The columns of a table. The tag's is undefined until they are guessed, and null if there is none. */
  readonly headings: Headings;
}

/** Nothing is known of it yet. */
export const unread: Reading = {
  kind: "csv",
  encoding: "utf-8",
  delimiter: ",",
  sheet: undefined,
  isHeadless: undefined,
  headings: {},
};

export const isTable = ({ kind }: Reading): boolean => kind === "csv" || kind === "xlsx";

/** A workbook is read as CSV, and its refused rows are kept as CSV. */
export const toFormat = ({ kind, ...reading }: Reading): FileFormat => ({
  ...reading,
  isHeadless: reading.isHeadless === true,
  ...(kind === "xlsx" ? { kind: "csv", delimiter: ",", countsRows: true } : { kind }),
});

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
  readonly different: number;
  /** Empty until the end. */
  readonly differences: readonly Difference[];
  /** From 0 to 1. */
  readonly share: number;
  /** Undefined while it goes on. */
  readonly end: "complete" | "partial" | "failed" | undefined;
}

export const UNREADABLE = "The file can no longer be read.";

export interface Progress {
  readonly created: number;
  readonly updated: number;
  readonly replayed: number;
  readonly refused: number;
  readonly bytesDone: number;
  readonly seconds: number;
  /** The store is busy or does not answer; the worker waits and tries again. */
  readonly isWaiting: boolean;
  /** The text is the start of the record. */
  readonly firstRefused: {
    readonly line: number;
    readonly reason: string;
    readonly text: string;
  }[];
}

export const nothingYet: Progress = {
  created: 0,
  updated: 0,
  replayed: 0,
  refused: 0,
  bytesDone: 0,
  seconds: 0,
  isWaiting: false,
  firstRefused: [],
};

export type Ending =
  | { readonly kind: "done" | "cancelled" }
  | { readonly kind: "token"; readonly isExpired: boolean }
  | { readonly kind: "failed"; readonly message: string };

export interface Outcome {
  readonly progress: Progress;
  readonly ending: Ending;
  /** All refused records. Undefined if the worker was stopped. */
  readonly refused: Blob | undefined;
}

export interface Begun {
  readonly file: File;
  readonly reading: Reading;
  /** The plants to update, as they were compared. */
  readonly updates: readonly Difference[];
}

export interface Job extends Begun {
  readonly url: string;
  readonly token: string;
}

/** A worker gets one task. */
export type ToWorker =
  | {
      readonly to: "preview";
      readonly file: File;
      readonly reading: Reading | undefined;
      readonly url: string;
      /** Undefined if it may not read plants: then nothing is compared. */
      readonly token: string | undefined;
    }
  | (Job & { readonly to: "run" })
  | { readonly to: "cancel" };

export type FromWorker =
  | { readonly is: "preview"; readonly preview: Preview }
  | { readonly is: "comparison"; readonly comparison: Comparison }
  | { readonly is: "progress"; readonly progress: Progress }
  | (Outcome & { readonly is: "end" })
  /** The worker failed; no more messages follow. */
  | { readonly is: "broken" };
