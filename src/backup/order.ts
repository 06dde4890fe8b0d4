/** The orders of the backup thread. */

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
export interface RestoreOrder {
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
  readonly to: string;
}

export interface ListOrder {
  readonly kind: "list" | "verify";
  readonly place: string;
  readonly label: string;
  readonly store?: string | undefined;
  /** Where pieces of a bucket are downloaded. */
  readonly scratch: string;
  /** The store file whose backups are listed; by default those of every store. */
  readonly from?: string;
}

export interface BackUpOrder extends Source {
  readonly kind: "backUp";
  /** The copy has everything in the segments before this one. */
  readonly serial: number;
  /** There is no journal, so the store cannot be compared with the copy later. */
  readonly isAlone: boolean;
}

/** The plants of the store at a change. */
export interface Digest {
  readonly change: number;
  readonly digest: string;
}

export interface ProveOrder extends Source, Digest {
  readonly kind: "prove";
  /** The file in which it is restored, beside the store: a folder for temporary files may be in memory. */
  readonly scratch: string;
  readonly diskFreeBytesMin: number;
}

export interface PruneOrder extends Source {
  readonly kind: "prune";
  readonly keep: number;
}

export type Order =
  | { readonly kind: "copy" | "restoreFile"; readonly from: string; readonly to: string }
  | { readonly kind: "digest"; readonly from: string }
  | (Source & { readonly kind: "append" | "roll" | "cover" | "recheck" | "finish" })
  | RestoreOrder
  | ListOrder
  | BackUpOrder
  | ProveOrder
  | PruneOrder;
