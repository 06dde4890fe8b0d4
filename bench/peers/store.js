/** The store of the peers, as people usually write it, and what they print when they listen. */

import Database from "better-sqlite3";

const db = new Database(process.env.BENCH_STORE);
db.pragma("journal_mode = WAL");
db.pragma("synchronous = FULL");
db.exec("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)");
export const insert = db.prepare("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
export const select = db.prepare("SELECT name, tag FROM plants WHERE id = ?");
export const selectPage = db.prepare(
  "SELECT id, name, tag FROM plants WHERE id > ? ORDER BY id LIMIT ?",
);

export function printDurability() {
  const [journal, synchronous] = ["journal_mode", "synchronous"].map((name) =>
    db.pragma(name, { simple: true }),
  );
  const durability = `${journal.toUpperCase()}, synchronous=${synchronous === 2 ? "FULL" : synchronous}`;
  process.stdout.write(`${JSON.stringify({ durability })}\n`);
}
