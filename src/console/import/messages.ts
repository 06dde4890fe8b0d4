/** The messages between the page and the import worker. */

import type { Plant } from "../../domain/plant.ts";
import type { Headings, PlantField } from "../../format/csv.ts";
import type { Encoding } from "../../format/encoding.ts";
import type { FileFormat } from "../../format/plants.ts";

/** How to read a file. */
export interface Reading {
  readonly kind: FileFormat["kind"];
  readonly encoding: Encoding;
  readonly delimiter: string;
  /** The columns of a table. The tag's is undefined until they are guessed, and null if there is none. */
  readonly headings: Headings;
}

/** The fields that still need a column. */
export const listMissing = ({ kind, headings }: Reading): PlantField[] =>
  (["id", "name"] as const).filter((field) => kind === "csv" && headings[field] === undefined);

export interface Preview {
  readonly reading: Reading;
  /** The columns that can be picked. */
  readonly columns: readonly string[];
  /** Why the file can't be read. */
  readonly problem?: string;
  /** The first records: a plant, or what is wrong with it. */
  readonly rows: readonly { readonly line: number; readonly plant: Plant | string }[];
}

export const UNREADABLE = "The file can no longer be read.";

export interface Progress {
  readonly created: number;
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

export interface Job {
  readonly file: File;
  readonly reading: Reading;
  readonly url: string;
  readonly token: string;
}

/** A worker gets one task. */
export type ToWorker =
  | { readonly to: "preview"; readonly file: File; readonly reading: Reading | undefined }
  | (Job & { readonly to: "run" })
  | { readonly to: "cancel" };

export type FromWorker =
  | { readonly is: "preview"; readonly preview: Preview }
  | { readonly is: "progress"; readonly progress: Progress }
  | (Outcome & { readonly is: "end" })
  /** The worker failed; no more messages follow. */
  | { readonly is: "broken" };
