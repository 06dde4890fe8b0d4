/** The state of an import. The worker posts the members that have changed. */

import type { PlantField, PlantLimits } from "../../src/domain/faults.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Headings } from "../../src/format/csv.ts";
import type { Encoding } from "../../src/format/encoding.ts";
import { type FileFormat, isTable } from "../../src/format/plants.ts";
import type { Etags, Ids } from "./kept.ts";
import type { ReasonTexts } from "./reasons.ts";
import type { PreviewRow, Tally } from "./tally.ts";

/**
 * How to read a file. `headings`, `isHeadless` and `firstLine` are undefined until they are guessed; a null tag means
 * no tags.
 */
export interface Reading extends Required<FileFormat> {
  readonly delimiter: string;
  readonly encoding: Encoding;
  /** The sheet of a workbook. Undefined means the first one. */
  readonly sheet: string | undefined;
}

/** The fields that still need a column. */
export const listMissing = (reading: Reading): PlantField[] =>
  (["id", "name"] as const).filter(
    (field) => isTable(reading) && reading.headings[field] === undefined,
  );

/** The columns that an import used, to be used again for a file with the same columns. */
export interface Mapping {
  readonly columns: readonly string[];
  readonly headings: Headings;
}

export interface Preview {
  /** As the user chose it, or as guessed. Undefined if the file is of no kind that can be imported. */
  readonly reading: Reading | undefined;
  /** The sheets of a workbook. */
  readonly sheets: readonly string[];
  /** The rows that can be the headings. */
  readonly tops: readonly { readonly line: number; readonly text: string }[];
  /** The columns that can be picked. */
  readonly columns: readonly string[];
  /** The heading and the first rows of a table, unparsed. */
  readonly table: readonly (readonly string[])[];
  /** Why the file can't be read. */
  readonly problem: string | undefined;
  /** The first records. */
  readonly rows: readonly PreviewRow[];
}

export const DIFFERENCES_SHOWN = 50;

export interface Difference {
  readonly stored: Plant;
  readonly given: Plant;
}

/** The worker's task: compare the file with the store, or import it. */
export interface ImportRequest {
  readonly file: File;
  /** Guessed if not given. */
  readonly reading?: Reading | undefined;
  /** For an import: the ids of the file, if a comparison has read them. */
  readonly ids?: Ids | undefined;
  /** For an import that updates: the entity tags of the plants that differ, as the comparison found them. */
  readonly updates?: Etags | undefined;
  /** A comparison also looks for the plants that the file lacks. */
  readonly isWhole?: boolean | undefined;
  /** For an import: the plants to remove after it, as the comparison found them. */
  readonly missing?: readonly Plant[] | undefined;
  /** What an import is called in the journal. Undefined for a comparison. */
  readonly batch?: string | undefined;
  readonly mappings: readonly Mapping[];
  /** To word what is wrong with rows. */
  readonly texts: ReasonTexts;
  /** Of the service. */
  readonly limits: PlantLimits | undefined;
  readonly url: string;
  /** Undefined if the token may not read plants: then nothing is compared. */
  readonly token: string | undefined;
}

/** Ends an import after the rows in flight are answered. */
export const CANCEL = "cancel";

/** The progress is undefined until the comparison or the import begins. */
export interface Import
  extends
    Omit<ImportRequest, "mappings" | "texts" | "limits" | "url" | "token">,
    Partial<Omit<Preview, "reading"> & Omit<ReturnType<Tally["read"]>, "rows">> {
  /** The person who asked for it. */
  readonly by?: string | undefined;
  /** The preview is stale. */
  readonly isReading?: boolean;
  /** The share of the file that was read, from 0 to 1. */
  readonly done?: number;
  readonly seconds?: number;
  /** The store is busy or does not answer; the worker retries. */
  readonly isWaiting?: boolean;
  /** What the comparison found: the first, and the entity tags of all. */
  readonly differences?: readonly Difference[];
  readonly different?: Etags | undefined;
  /** The user has cancelled the import; the rows in flight are not answered yet. */
  readonly isEnding?: boolean;
  /** Undefined while the comparison or the import runs. */
  readonly ending?: "done" | "cancelled" | "failed";
  /** Rows in flight were not answered: more plants may be stored than were counted. */
  readonly isUnsure?: boolean;
  readonly failure?: string | undefined;
}
