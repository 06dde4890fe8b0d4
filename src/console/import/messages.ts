/** The messages between the page and the import worker. */

import type { PlantField } from "../../format/csv.ts";
import type { Encoding } from "../../format/encoding.ts";

export type FileKind = "csv" | "ndjson" | "json";

/** The column of each field. */
export type Mapping = Readonly<Record<PlantField, string | undefined>>;

/** How to read a file. */
export interface Reading {
  readonly kind: FileKind;
  readonly encoding: Encoding;
  readonly delimiter: string;
  /** Undefined where the file has no columns, or they are not guessed yet. */
  readonly mapping: Mapping | undefined;
}

export interface PreviewRow {
  readonly line: number;
  readonly id: string;
  readonly name: string;
  readonly tag: string | undefined;
  readonly fault: string | undefined;
}

export interface Preview {
  readonly reading: Reading;
  /** The columns that can be picked. */
  readonly headings: readonly string[];
  /** Why the file can't be read. */
  readonly problem: string | undefined;
  /** The fields that still need a column. */
  readonly missing: readonly PlantField[];
  readonly rows: readonly PreviewRow[];
}

export interface Refused {
  readonly line: number;
  readonly reason: string;
  /** The start of the record. */
  readonly text: string;
}

export interface Progress {
  readonly created: number;
  readonly replayed: number;
  readonly refused: number;
  readonly bytesDone: number;
  readonly seconds: number;
  /** The store is busy or does not answer; the worker waits and tries again. */
  readonly isWaiting: boolean;
  readonly firstRefused: readonly Refused[];
}

export type Ending =
  | { readonly kind: "done" }
  | { readonly kind: "cancelled" }
  | { readonly kind: "token"; readonly isExpired: boolean }
  | { readonly kind: "failed"; readonly message: string };

export const UNREADABLE = "The file can no longer be read.";

export interface Outcome {
  readonly progress: Progress;
  readonly ending: Ending;
  /** Undefined where the worker was stopped. */
  readonly refused: Blob | undefined;
}

export type ToWorker =
  | { readonly to: "preview"; readonly file: File; readonly reading: Reading | undefined }
  | {
      readonly to: "run";
      /** Messages about this run carry the same number. */
      readonly run: number;
      readonly file: File;
      readonly reading: Reading;
      readonly url: string;
      readonly token: string;
    }
  | { readonly to: "cancel" };

export type FromWorker =
  | { readonly is: "preview"; readonly preview: Preview }
  | { readonly is: "progress"; readonly run: number; readonly progress: Progress }
  | (Outcome & { readonly is: "end"; readonly run: number })
  /** The worker failed; no more messages follow. */
  | { readonly is: "broken" };
