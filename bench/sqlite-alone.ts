/**
 * SQLite without a service, on a store of ours: the upper limit of import and export.
 * A separate program, so it can be pinned to the server's core: sqlite-alone.ts insert|select <file> <rows>
 */

import { Database } from "bun:sqlite";

/** The length of a block in POST /plants/batch. */
const ROWS_PER_COMMIT = 512;

function insertRows(db: Database, count: number): number {
  const insert = db.prepare(
    "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
  );
  const commit = db.transaction((first: number) => {
    for (let id = first; id < Math.min(first + ROWS_PER_COMMIT, count); id++)
      insert.run(BigInt(id), "Monstera deliciosa", `tag ${id % 50}`);
  });
  for (let first = 0; first < count; first += ROWS_PER_COMMIT) commit.immediate(first);
  return count;
}

function selectRows(db: Database): number {
  let count = 0;
  for (const row of db.query("SELECT id, name, tag FROM plants ORDER BY id").iterate())
    if (row) count++;
  return count;
}

const [loop = "", path = "", rows = "0"] = process.argv.slice(2);
const run = { insert: insertRows, select: selectRows }[loop];
if (run === undefined) throw new Error(`there is no loop “${loop}”`);

const db = new Database(path, { create: false, readwrite: true, safeIntegers: true });
db.run("PRAGMA synchronous = FULL");
const startedMs = performance.now();
const cpuBefore = process.cpuUsage();
const done = run(db, Number(rows));
const { user, system } = process.cpuUsage(cpuBefore);
const seconds = (performance.now() - startedMs) / 1000;
db.close();
process.stdout.write(JSON.stringify({ value: done / seconds, cpuUs: (user + system) / done }));
