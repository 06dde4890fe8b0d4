/** SQLite alone, without a service: the loops that bulk operations are held against, and the filling of stores. */

import { Database } from "bun:sqlite";
import { SqliteStore } from "../src/store/sqlite/store.ts";

/** Our own schema and settings, so that only the service is left out. */
async function openOurs(path: string): Promise<Database> {
  await new SqliteStore(path, {
    queueLengthMax: 1,
    queueSecondsMax: 1,
    batchLengthMax: 1,
    scanRowsMax: 1,
    bodyBytesTotalMax: 1,
  }).close();
  const db = new Database(path, { safeIntegers: true });
  db.run("PRAGMA synchronous = FULL");
  return db;
}

/** A table as people make it, and as the peers do. */
function openPlain(path: string): Database {
  const db = new Database(path);
  db.run("PRAGMA journal_mode = WAL");
  db.run("CREATE TABLE plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)");
  return db;
}

const prepareInsert = (db: Database): ((id: number) => void) => {
  const insert = db.prepare(
    "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
  );
  return (id) => void insert.run(BigInt(id), "Monstera deliciosa", `tag ${id % 50}`);
};

/** As many rows a commit as a batch of the service has. */
const ROWS_A_COMMIT = 512;

function insertRows(db: Database, count: number): number {
  const insert = prepareInsert(db);
  const commit = db.transaction((first: number) => {
    for (let id = first; id < Math.min(first + ROWS_A_COMMIT, count); id++) insert(id);
  });
  for (let first = 0; first < count; first += ROWS_A_COMMIT) commit.immediate(first);
  return count;
}

/** For a time and not for a number: a disk may need 10 ms for each. */
function insertSingly(db: Database, seconds: number): number {
  const insert = prepareInsert(db);
  const untilMs = performance.now() + seconds * 1000;
  let id = 0;
  while (performance.now() < untilMs) insert(id++);
  return id;
}

function selectRows(db: Database): number {
  let count = 0;
  for (const row of db.query("SELECT id, name, tag FROM plants ORDER BY id").iterate())
    if (row) count++;
  return count;
}

function fill(db: Database, count: number): number {
  db.run(
    `WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ${count})
     INSERT INTO plants (id, name, tag)
     SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50) FROM ids`,
  );
  return count;
}

const [loop = "", path = "", amount = "0"] = process.argv.slice(2);
const count = Number(amount);

const loops: Readonly<Record<string, (db: Database) => number>> = {
  insert: (db) => insertRows(db, count),
  "insert-singly": (db) => insertSingly(db, count),
  select: selectRows,
  fill: (db) => fill(db, count),
  "fill-plain": (db) => fill(db, count),
  "drop-tag-index": (db) => db.run("DROP INDEX plants_tag").changes,
};

const run = loops[loop];
if (run === undefined)
  throw new Error(`usage: loops.ts ${Object.keys(loops).join("|")} <file> [rows, or seconds]`);
const db = loop === "fill-plain" ? openPlain(path) : await openOurs(path);
const startedMs = performance.now();
const done = run(db);
const seconds = (performance.now() - startedMs) / 1000;
db.query("PRAGMA wal_checkpoint(TRUNCATE)").get();
db.close();
process.stdout.write(`${JSON.stringify({ perSecond: done / seconds })}\n`);
