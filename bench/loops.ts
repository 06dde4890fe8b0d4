/** SQLite alone, without a service: the loops that bulk operations are held against, and the filling of stores. */

import { Database } from "bun:sqlite";
import { SqliteStore } from "../src/store/sqlite/sqlite-store.ts";

const [loop = "", path = "", rows = "0", withIndex = ""] = process.argv.slice(2);

/** Our own schema and settings, so that only the service is left out. */
async function prepare(): Promise<Database> {
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

/** As many rows a commit as a batch of the service has. */
const ROWS_A_COMMIT = 512;

function insertRows(db: Database, count: number): void {
  const insert = db.prepare(
    "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
  );
  const commit = db.transaction((first: number) => {
    for (let id = first; id < Math.min(first + ROWS_A_COMMIT, count); id++)
      insert.run(BigInt(id), "Monstera deliciosa", `tag ${id % 50}`);
  });
  for (let first = 0; first < count; first += ROWS_A_COMMIT) commit.immediate(first);
}

function selectRows(db: Database): number {
  let count = 0;
  for (const row of db.query("SELECT id, name, tag FROM plants ORDER BY id").iterate())
    if (row) count++;
  return count;
}

function fill(db: Database, count: number): void {
  db.run(
    `WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ${count})
     INSERT INTO plants SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50) FROM ids`,
  );
}

const db = await prepare();
if (withIndex === "without-tag-index") db.run("DROP INDEX plants_tag");
const startedMs = performance.now();
let done = Number(rows);
if (loop === "insert") insertRows(db, done);
else if (loop === "select") done = selectRows(db);
else if (loop === "fill") fill(db, done);
else throw new Error("usage: loops.ts insert|select|fill <file> <rows> [without-tag-index]");
const seconds = (performance.now() - startedMs) / 1000;
db.query("PRAGMA wal_checkpoint(TRUNCATE)").get();
db.close();
process.stdout.write(`${JSON.stringify({ perSecond: done / seconds })}\n`);
