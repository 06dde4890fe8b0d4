/** A database of a test's own, and a way to look into it and to meddle with it behind the service's back. */

import type { ErrorName } from "../../src/domain/errors.ts";
import type { StoredPlant } from "./plants.ts";
import { openPostgresDatabase } from "./postgres-database.ts";
import { openSqliteDatabase } from "./sqlite-database.ts";

const ENGINE_VARIABLE = "PLANTSTORE_TEST_ENGINE";
const engines = ["sqlite", "postgres", "postgres-serializable"] as const;

type Engine = (typeof engines)[number];

/** Over which engine the tests run. */
export const engine: Engine = parseEngine(process.env[ENGINE_VARIABLE] ?? "sqlite");

/** How a write is refused that others hold up for too long. A server has begun with it by then, and may yet end it. */
export const heldUp: ErrorName = engine === "sqlite" ? "store_busy" : "store_unavailable";

/** By connections of its own: what it sees is what has been committed. */
export interface TestDatabase extends AsyncDisposable {
  /** As `DATABASE_URL` has it. Empty until a store is opened there. */
  readonly url: string;
  /** Where the file is. Throws on an engine that has none. */
  readonly path: string;
  /** Every plant, in the order of their ids. */
  readonly readPlants: () => Promise<StoredPlant[]>;
  readonly findPlant: (id: bigint) => Promise<StoredPlant | undefined>;
  /** A statement that every engine understands. */
  readonly run: (statement: string) => Promise<void>;
  /** From now on the engine itself refuses to store a plant of this name, by a message with "failed by a test". */
  readonly failPlantsNamed: (name: string) => Promise<void>;
  readonly holdWrites: () => Promise<HeldWrites>;
}

/** Until the release, nobody else can write; reading goes on. */
export interface HeldWrites extends AsyncDisposable {
  /** Resolves when others can write again. A second time it does nothing. */
  readonly release: () => Promise<void>;
}

export function openTestDatabase(): Promise<TestDatabase> {
  return engine === "sqlite"
    ? Promise.resolve(openSqliteDatabase())
    : openPostgresDatabase({ serializable: engine === "postgres-serializable" });
}

function parseEngine(text: string): Engine {
  const found = engines.find((name) => name === text);
  if (found === undefined)
    throw new Error(`${ENGINE_VARIABLE}: expected ${engines.join(", ")}; got "${text}"`);
  return found;
}
