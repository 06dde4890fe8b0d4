/** The tasks of the backup threads. */

import type { CheckPosition } from "./names.ts";
import type { NewestCopy, Retention } from "./plan.ts";

/** A store, and the place of its backups. */
export interface Source {
  /** The file of the store. */
  readonly from: string;
  /** A folder or a bucket. */
  readonly to: string;
  readonly label: string;
  /** Random, for this run of the service. */
  readonly instance: string;
}

/** Which store of a place, and up to where. */
export interface RestoreTask {
  readonly kind: "restore";
  readonly place: string;
  /** The name of the store's file, which chooses among several stores. */
  readonly label: string;
  /** The identity of the store, if it is named. */
  readonly store?: string | undefined;
  /** The newest, unless it is named. */
  readonly timeline?: number | undefined;
  readonly change?: number | undefined;
  readonly atMs?: number | undefined;
  /** Continues although the list of the place ends before the change in its note. */
  readonly isIncomplete?: boolean | undefined;
  readonly to: string;
}

export interface ListTask {
  readonly kind: "list" | "verify";
  readonly place: string;
  readonly label: string;
  readonly store?: string | undefined;
  /** Where pieces of a bucket are downloaded. */
  readonly scratch: string;
  /** The store file whose backups are listed; by default those of every store. */
  readonly from?: string;
}

export interface BackUpTask extends Source {
  readonly kind: "backUp";
  /** The segment that the copy builds on. */
  readonly serial: number;
  readonly diskFreeBytesMin: number;
}

/** The state of the store at a change. */
export interface Digest {
  readonly change: number;
  readonly digest: string;
}

export interface ProveTask extends Source, Digest {
  readonly kind: "prove";
  /** The new copy. */
  readonly name: string;
  /** The file in which it is restored, beside the store: a folder for temporary files may be in memory. */
  readonly scratch: string;
  readonly diskFreeBytesMin: number;
}

/** Reads some pieces, in turn. */
export interface CheckTask extends Source, CheckPosition {
  readonly kind: "check";
}

export interface PruneTask extends Source {
  readonly kind: "prune";
  readonly retention: Retention;
}

interface AppendTask extends Source {
  readonly kind: "append";
  /** Noted with what is appended, and at a stop; undefined if it has not moved since the start. */
  readonly checked: CheckPosition | undefined;
}

interface CoverTask extends Source {
  readonly kind: "cover";
  readonly copy: NewestCopy;
}

export type Task =
  | { readonly kind: "copy" | "restoreFile"; readonly from: string; readonly to: string }
  | (Source & { readonly kind: "recheck" | "finish" })
  | AppendTask
  | CoverTask
  | RestoreTask
  | ListTask
  | BackUpTask
  | ProveTask
  | CheckTask
  | PruneTask;
