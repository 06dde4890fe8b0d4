/** What the page and the import's thread say to each other. */

import type { PlantField } from "../../format/csv-table.ts";

export type FileKind = "csv" | "ndjson" | "json";

/** Which column is which field; a tag may have none, the others are not known yet. */
export type Mapping = Readonly<Record<PlantField, string | undefined>>;

/** How a file is to be understood. */
export interface Reading {
  readonly kind: FileKind;
  readonly delimiter: string;
  /** Undefined where the file has no columns, or where they are still to be guessed. */
  readonly mapping: Mapping | undefined;
}

export interface PreviewRow {
  readonly line: number;
  /** Digits: a bigint, as text. */
  readonly id: string;
  readonly name: string;
  readonly tag: string | undefined;
  readonly fault: string | undefined;
}

export interface Preview {
  readonly reading: Reading;
  /** The columns there are; none but for a table. */
  readonly headings: readonly string[];
  /** Why the file cannot be read at all. */
  readonly problem: string | undefined;
  /** The fields that need a column, and have none. */
  readonly missing: readonly PlantField[];
  readonly rows: readonly PreviewRow[];
}

export interface Refused {
  readonly line: number;
  readonly reason: string;
  /** As it stands in the file, cut where it is long. */
  readonly text: string;
}

export interface Progress {
  readonly created: number;
  readonly replayed: number;
  readonly refused: number;
  readonly bytesDone: number;
  readonly seconds: number;
  /** Waiting to try again, because the store does not answer or is busy. */
  readonly isHeldUp: boolean;
  /** The first of the refused. */
  readonly firstRefused: readonly Refused[];
}

export type Ending =
  | { readonly kind: "done" }
  | { readonly kind: "cancelled" }
  | { readonly kind: "token"; readonly isExpired: boolean }
  | { readonly kind: "failed"; readonly message: string };

/** What is said of a file whose bytes do not come. */
export const UNREADABLE = "The file cannot be read any more.";

export interface Outcome {
  readonly progress: Progress;
  readonly ending: Ending;
  /** Undefined where the thread could not hand them over. */
  readonly refused: Blob | undefined;
}

export type ToWorker =
  | { readonly to: "preview"; readonly file: File; readonly reading: Reading | undefined }
  | {
      readonly to: "run";
      /** What is said of it bears the same number. */
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
  /** Something went wrong that nothing was prepared for: nothing more may come. */
  | { readonly is: "broken" };
