/** What differs between engines: statements, and where they run. */

import type { Store } from "../domain/store.ts";
import type { AtomicWrite, PlantWrite } from "../domain/write.ts";
import type { Queue } from "./queue.ts";
import type { ReadRequest, ResultOf } from "./reads.ts";

export type Value = string | number | bigint | boolean | null;
/** Without bigints, because JSON has none: one would fail every write of its group. */
export type Statement = readonly [sql: string, ...values: Exclude<Value, bigint>[]];

export interface Dialect {
  readonly prefix: string;
  /** The row-lock clause of a query; empty if the engine needs none. */
  readonly lock: string;
  /** Expands the JSON array in $1 to rows with a column `value`. */
  readonly rows: string;
  /** A CTE `insert_lock`: one row, or none if another writer has inserted since this statement's snapshot. */
  readonly insertLock: string;
  /** Whether a row of `changes` is where the journal began, so no change was made before it. */
  readonly isBeginning: string;
}

/** Figures, probes and look-ups, which the store passes on. */
type Passed = "description" | "findPlant" | "probe" | "measureBytes" | "readFigures" | "backUps";

export interface Engine extends Pick<Store, Passed | "close"> {
  readonly dialect: Dialect;
  readonly writes: Pick<Queue<PlantWrite | AtomicWrite, unknown>, "submit" | "submitAll">;
  readonly countWaiting: () => number;
  /** At once: a short read. On SQLite it runs on this thread, so its result is no promise. */
  read<Request extends ReadRequest>(
    request: Request,
  ): ResultOf<Request> | Promise<ResultOf<Request>>;
  /** In a lane, where long reads take turns. */
  readLong<Request extends ReadRequest>(request: Request): Promise<ResultOf<Request>>;
  query<Row>(statement: Statement): Promise<readonly Row[]>;
  /** Resolves to the rows of the last statement. The statements are idempotent: a retry changes nothing. */
  run<Row>(...statements: Statement[]): Promise<readonly Row[]>;
  /** Numbers the changes, if that is left to readers: there may be none. */
  readonly numberChanges?: () => Promise<unknown>;
}
