/** A test's own database in a file, made by the store that is opened there first. */

import { Database } from "bun:sqlite";
import type { HeldWrites, TestDatabase } from "./database.ts";
import { makeTemporaryFolder } from "./folder.ts";
import { findPlant, readPlants } from "./stores.ts";

/** Nothing stays open between two calls: a connection that outlives a crash would spare the next store its recovery. */
export function openSqliteDatabase(): TestDatabase {
  const folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  return {
    url: `sqlite:${path}`,
    path,
    readPlants: async () => readPlants(path),
    findPlant: async (id) => findPlant(path, id),
    run: async (statement) => run(path, statement),
    failPlantsNamed: async (name) =>
      run(
        path,
        `CREATE TRIGGER fail BEFORE INSERT ON plants WHEN NEW.name = '${name}'
          BEGIN SELECT RAISE(ABORT, 'failed by a test'); END`,
      ),
    holdWrites: async () => holdWrites(path),
    async [Symbol.asyncDispose]() {
      folder[Symbol.dispose]();
    },
  };
}

function run(path: string, statement: string): void {
  using db = new Database(path, { readwrite: true, create: false });
  // Only what is sent to the service has to be durable, and not what a test undoes between two runs.
  db.run("PRAGMA synchronous = OFF");
  db.run(statement);
}

function holdWrites(path: string): HeldWrites {
  const holder = new Database(path, { readwrite: true, create: false });
  holder.run("PRAGMA busy_timeout = 5000");
  holder.run("BEGIN IMMEDIATE");
  // Closing rolls back, and a second time does nothing.
  const release = async (): Promise<void> => holder.close();
  return { release, [Symbol.asyncDispose]: release };
}
