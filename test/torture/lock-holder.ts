/** A process that holds the lock on a store for most of the time, as a slow neighbour does; run with the store's path. */

import { Database } from "bun:sqlite";

const HELD_MS = 40;
const FREE_MS = 10;

const db = new Database(process.argv[2] ?? "", { readwrite: true, create: false });
db.run("PRAGMA busy_timeout = 5000");
for (;;) {
  db.run("BEGIN IMMEDIATE");
  await Bun.sleep(HELD_MS);
  db.run("ROLLBACK");
  await Bun.sleep(FREE_MS);
}
