/** Copies a store into a file, and verifies it: what it holds, and by digests whether two are the same. */

import { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { existsSync, realpathSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { formatJson } from "../domain/json.ts";
import { syncFile } from "../descriptor.ts";
import {
  adviseOnTemporaryFiles,
  fileBytesOf,
  findDamage,
  findDiskFree,
  getSchemaVersion,
  isLocked,
  isOfEnvironment,
  readStore,
  START_TIMELINE,
} from "../store/sqlite/database.ts";
import { readHistory, readPoint } from "./survey.ts";

type StoreFacts = ReturnType<typeof verifyStore>;

/** One snapshot: the copy has every plant acknowledged before it began, and writes continue. */
export function copyStore(from: string, to: string): StoreFacts {
  copyInto(from, to);
  return verifyStore(to, `The copy of ${from}`);
}

function copyInto(from: string, to: string): void {
  readStore(from, (db) => {
    getSchemaVersion(db, from);
    try {
      db.run("VACUUM INTO ?", [to]);
    } catch (error) {
      if (isLocked(error)) throw error;
      const why = `${(error as Error).message}.${isOfEnvironment(error) ? adviseOn(to) : ""}`;
      throw new StoreOpenError(`${from} cannot be copied into ${dirname(to)}: ${why}`);
    }
  });
  syncFile(to);
}

/** Standard input and output are copied through a folder of ours; any other folder was named by a person. */
function adviseOn(to: string): string {
  const folder = tmpdir();
  const isOurs = existsSync(folder) && to.startsWith(`${realpathSync(folder)}/${TEMPORARY_PREFIX}`);
  if (isOurs) return ` ${adviseOnTemporaryFiles(folder)}`;
  const free = findDiskFree(to);
  return free === undefined ? "" : ` ${free} bytes are free there.`;
}

/** The start of the name of a temporary folder. */
export const TEMPORARY_PREFIX = "plantstore-copy-";

/** Verifies a backup file, and makes a store of it that starts a new timeline. */
export function copyBackup(from: string, to: string): StoreFacts {
  verifyStore(from);
  copyInto(from, to);
  if (digestStore(from) !== digestStore(to))
    throw new StoreOpenError(`The copy of ${from} differs from it. Was it written to meanwhile?`);
  changeStore(to, (db) => startTimeline(db, 0));
  return verifyStore(to, `The copy of ${from}`);
}

/** Changes a store that no service uses yet. It is synced as a whole afterwards. */
export function changeStore<Result>(path: string, change: (db: Database) => Result): Result {
  using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  db.run("PRAGMA journal_mode = OFF");
  db.run("PRAGMA synchronous = OFF");
  db.run("BEGIN");
  const result = change(db);
  db.run("COMMIT");
  db.close(true);
  syncFile(path);
  return result;
}

/**
 * Its number is above every other that is known. It follows `history`: the copy has only the timelines up to its own.
 * A store of an older schema has no timelines yet.
 */
export function startTimeline(db: Database, above: number, history = readHistory(db)): void {
  if (history.some(({ number }) => number === 0)) return;
  const { change } = readPoint(db);
  const add = db.query("INSERT OR IGNORE INTO timelines VALUES (?, ?, ?, ?)");
  for (const { number, id, after } of history)
    if (after <= change) add.run(number, id, after, Date.now());
  db.query(START_TIMELINE.replaceAll("$", "?")).run(
    randomBytes(8).toString("hex"),
    above,
    Date.now(),
    null,
  );
}

const COUNT =
  "SELECT (SELECT count(*) FROM plants) AS plants, (SELECT count(*) FROM tokens) AS tokens";
const TABLES =
  "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";

export function verifyStore(path: string, calledAs = path) {
  return readStore(path, (db) => {
    const schemaVersion = getSchemaVersion(db, calledAs);
    const [fault] = findDamage(db, 1);
    if (fault !== undefined) throw new StoreOpenError(`${calledAs} is damaged: ${fault}`);
    const counts = db.query(COUNT).get() as Readonly<Record<"plants" | "tokens", bigint>>;
    return { schemaVersion, ...counts, bytes: fileBytesOf(path) };
  });
}

/** SHA-256 over every row of every table. */
const digestStore = (path: string): string =>
  readStore(path, (db) => {
    const tables = db.query<{ name: string }, []>(TABLES).all();
    return digestRows(
      db,
      tables.map(({ name }) => [name, `SELECT * FROM "${name}"`]),
    );
  });

/** SHA-256 over what a copy and the segments after it restore exactly: no last use of a token, no delivery. */
export const digestState = (path: string): string =>
  readStore(path, (db) =>
    digestRows(db, [
      ["plants", "SELECT * FROM plants"],
      [
        "tokens",
        `SELECT hash, prefix, name, scopes, tags, rate, created_at_ms, expires_at_ms, revoked_at_ms FROM tokens`,
      ],
      [
        "webhooks",
        `SELECT name, json_extract(record, '$.url', '$.types', '$.tags', '$.secret', '$.oldSecret', '$.paused', '$.pausedWithin') FROM webhooks`,
      ],
    ]),
  );

function digestRows(
  db: Database,
  queries: readonly (readonly [name: string, query: string])[],
): string {
  const hasher = new Bun.CryptoHasher("sha256");
  let rows = 0;
  for (const [name, query] of queries)
    for (const row of db.query(query).iterate()) {
      hasher.update(`${name} ${formatJson(row)}\n`);
      if (++rows % ROWS_PER_COLLECTION === 0) Bun.gc(true);
    }
  return hasher.digest("hex");
}

/** On its own, GC lets tens of megabytes of rows pile up beside a service that is serving. */
const ROWS_PER_COLLECTION = 10_000;
