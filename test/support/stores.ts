/** Stores as files: made, looked at and spoilt by a test. */

import { Database } from "bun:sqlite";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Store } from "../../src/domain/store.ts";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { makeTemporaryFolder } from "./folder.ts";
import type { StoredPlant } from "./plants.ts";

const PAGE_BYTES = 4096;

/** A store at rest with that many plants: ids from 1, every third without a tag. */
export function makeStore(path: string, count: number, name = "plant"): void {
  const db = openDatabase(path);
  db.run(
    `INSERT INTO plants (id, name, tag)
      WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT ?)
      SELECT id, ? || ' ' || id, CASE id % 3 WHEN 0 THEN NULL ELSE 'tag ' || (id % 7) END FROM ids`,
    [count, name],
  );
  db.close();
}

/** A store as a crash leaves it: everything that it holds is in its log, and nothing in its file. */
export function makeCrashedStore(path: string, count: number): void {
  using folder = makeTemporaryFolder();
  const running = join(folder.path, "running.db");
  openDatabase(running).close();
  const db = openDatabase(running);
  db.run("PRAGMA wal_autocheckpoint = 0");
  for (let id = 1; id <= count; id++)
    db.run("INSERT INTO plants (id, name) VALUES (?, 'logged')", [id]);
  for (const suffix of ["", "-wal"]) cpSync(running + suffix, path + suffix);
  db.close();
}

const PLANTS = "SELECT id, name, tag FROM plants";

/** Every plant in the file, by a connection of the test's own. */
export const readPlants = (path: string): StoredPlant[] =>
  reading(path, (db) => db.query<StoredPlant, []>(`${PLANTS} ORDER BY id`).all());

export const countPlants = (path: string): number =>
  readNumber(path, "SELECT count(*) FROM plants");

/** The one value of a query. */
export const readNumber = (path: string, query: string): number =>
  reading(path, (db) => Number(db.query(query).values()[0]?.[0]));

export const findPlant = (path: string, id: bigint): StoredPlant | undefined =>
  reading(path, (db) => db.query<StoredPlant, bigint>(`${PLANTS} WHERE id = ?`).all(id))[0];

/** What SQLite itself thinks of the file: `ok`, or everything that is wrong with it. */
export const checkIntegrity = (path: string): string =>
  reading(path, (db) => db.query("PRAGMA integrity_check").values().flat().join("\n"));

function reading<Result>(path: string, read: (db: Database) => Result): Result {
  // Not read-only: after a crash the first to open the file has to recover its log.
  using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  // Another process may be recovering it now.
  db.run("PRAGMA busy_timeout = 60000");
  return read(db);
}

/** Changes a store by SQL, behind everyone's back. */
export function alter(path: string, ...statements: string[]): void {
  using db = new Database(path);
  for (const statement of statements) db.run(statement);
}

/** Overwrites a page in the middle of the file. */
export function damage(path: string): void {
  const bytes = readFileSync(path);
  const start = Math.floor(bytes.length / PAGE_BYTES / 2) * PAGE_BYTES;
  bytes.fill(0xa5, start, start + PAGE_BYTES);
  writeFileSync(path, bytes, { flag: "r+" });
}

/** Overwrites bytes that are in the file once, with as many others. */
export function overwrite(path: string, from: string, to: string): void {
  const bytes = readFileSync(path);
  bytes.write(to, bytes.indexOf(from));
  writeFileSync(path, bytes);
}

/** Every file of a folder, by name, with a hash of its content. */
export function readFolder(path: string): Record<string, string> {
  const files = readdirSync(path, { withFileTypes: true }).filter((entry) => entry.isFile());
  const hashOf = (name: string): string => Bun.hash(readFileSync(join(path, name))).toString(16);
  return Object.fromEntries(files.map(({ name }) => [name, hashOf(name)]));
}

/** Plants of the test's own in a store, which is made if it is not there. */
export function storePlants(path: string, plants: readonly StoredPlant[]): void {
  const db = openDatabase(path);
  const insert = db.prepare("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
  db.transaction(() => {
    for (const { id, name, tag } of plants) insert.run(id, name, tag);
  })();
  insert.finalize();
  db.close();
}

/** What the main file holds by itself, without the log beside it. */
export function readMainFile(path: string): StoredPlant[] {
  using folder = makeTemporaryFolder();
  const copy = join(folder.path, "copy.db");
  cpSync(path, copy);
  return readPlants(copy);
}

/** Stores that cannot be used, by what is wrong with them, and files that are none. */
export function makeSpoiltStores(folder: string): void {
  for (const name of ["newer.db", "damaged.db", "unindexed.db"])
    makeStore(join(folder, name), 2_000);
  alter(join(folder, "newer.db"), "PRAGMA user_version = 99");
  damage(join(folder, "damaged.db"));
  overwrite(join(folder, "unindexed.db"), "plant 1999tag 4", "plant 1999tag 9");
  alter(join(folder, "foreign.db"), "CREATE TABLE theirs (x)");
  writeFileSync(join(folder, "text.txt"), "not a database".repeat(100));
}

/** A store of these parts alone, for any caller. */
export function fakeStore(parts: Partial<Store>): Store {
  const store = { ...parts, for: () => store } as unknown as Store;
  return store;
}
