/** Bulk changes that the service finishes without their client, as the store keeps them. */

/** The oldest that has ended makes room for a new one. */
export const JOBS_MAX = 32;
/** Each has a block of plants in memory. */
export const JOBS_RUNNING_MAX = 4;

/** Plants that were left alone, in a record. */
export const LEFT_MAX = 100;

export type JobKind = "change" | "remove" | "revert" | "upsert";

/** With the counts of its kind and, if it ended early, an error. */
export interface JobReport {
  readonly plants: number;
  readonly batch: string;
  readonly complete: boolean;
}

/** Whether its work may still write. */
export const isActive = ({ state }: { readonly state: string }): boolean =>
  state === "running" || state === "stopping";

/** The service that runs it writes the record every second. If it stops, the job is lost. */
export interface Job {
  /** The batch: it names the job, and its writes in the journal. */
  readonly name: string;
  readonly kind: JobKind;
  /** The name of the token. */
  readonly by: string | undefined;
  /** Of the token; undefined for the whole store. */
  readonly tags?: readonly string[] | undefined;
  /** The hash of the request, so a repeated one is recognized. */
  readonly digest: string;
  readonly startedAtMs: number;
  readonly state: "running" | "stopping" | "ended";
  /** The last line of a streamed answer. */
  readonly report: JobReport;
  /** JSON lines of the first plants that were left alone. */
  readonly left: readonly string[];
  /** Changes with every write. */
  readonly version: string;
}
