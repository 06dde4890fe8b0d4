/** Creates, fills and counts the stores of a run. */

import { Database } from "bun:sqlite";
import { constants, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Sample } from "./results.ts";
import { SERVER_CORE } from "./settings.ts";

let folder: string | undefined;

/** The run's temporary folder. It is removed on exit and on SIGINT and SIGTERM. */
export function getFolder(): string {
  if (folder !== undefined) return folder;
  const made = mkdtempSync(join(process.env["BENCH_FOLDER"] ?? tmpdir(), "plantstore-bench-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  // By default a signal ends the process without its exit handlers.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
  return (folder = made);
}

let pathCount = 0;
let temporaryPaths: string[] = [];

/** A new path. It is removed after the scenario, or if `isLasting` after the run. */
export function makePath(name = "plants.db", { isLasting = false } = {}): string {
  const path = join(getFolder(), `${pathCount++}-${name}`);
  if (!isLasting) temporaryPaths.push(path);
  return path;
}

/** Runs after each scenario, because the stores of a run would take gigabytes. */
export function removeTemporaryPaths(): void {
  for (const path of temporaryPaths)
    for (const suffix of ["", "-wal", "-shm"])
      rmSync(path + suffix, { recursive: true, force: true });
  temporaryPaths = [];
}

/** The built service, with the flags of `npm start`. */
export const plantstore = [
  process.execPath,
  "--no-env-file",
  "--config=/dev/null",
  "--tsconfig-override=/dev/null",
  join(import.meta.dir, "../dist/service/main.js"),
] as const;

/** Creates our schema in a SQLite file or a PostgreSQL database. */
export function makeSchema(databaseUrl: string): void {
  const { exitCode, stderr } = Bun.spawnSync([...plantstore, "migrate"], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
  });
  if (exitCode !== 0) throw new Error(`plantstore migrate failed: ${stderr.toString()}`);
}

/** An empty store of ours. */
export function makeStore(): string {
  const path = makePath();
  makeSchema(`sqlite:${path}`);
  return path;
}

/** Our schema with its index, or a plain table. */
type Schema = "ours" | "plain";

/** A store with plants from id 0 on. */
export function fillStore(count: number, schema: Schema = "ours", path = makePath()): string {
  if (schema === "ours") makeSchema(`sqlite:${path}`);
  withDatabase(path, (db) => {
    db.run("PRAGMA journal_mode = WAL");
    if (schema === "plain")
      db.run("CREATE TABLE plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)");
    db.run(
      `WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?)
       INSERT INTO plants (id, name, tag)
       SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50) FROM ids`,
      [count],
    );
    db.query("PRAGMA wal_checkpoint(TRUNCATE)").get();
  });
  return path;
}

const filled = new Map<string, string>();

/** A copy of a store that is filled once per run. */
export function copyFilledStore(count: number, schema: Schema = "ours"): string {
  const key = `${schema} ${count}`;
  const original =
    filled.get(key) ?? fillStore(count, schema, makePath("original.db", { isLasting: true }));
  filled.set(key, original);
  const path = makePath();
  copyFileSync(original, path, constants.COPYFILE_FICLONE);
  return path;
}

/** Works while a server has the file open. */
export const countRows = (path: string): number =>
  withDatabase(path, (db) => Number(db.query("SELECT count(*) FROM plants").values().flat()[0]));

export function withDatabase<T>(path: string, use: (db: Database) => T): T {
  const db = new Database(path);
  try {
    return use(db);
  } finally {
    db.close();
  }
}

/** See sqlite-alone.ts. */
export async function runSqliteAlone(
  loop: "insert" | "select",
  path: string,
  rows = 0,
): Promise<Sample> {
  const program = join(import.meta.dir, "sqlite-alone.ts");
  const child = Bun.spawn(
    ["taskset", "-c", SERVER_CORE, process.execPath, program, loop, path, String(rows)],
    { stdout: "pipe", stderr: "inherit" },
  );
  const output = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`SQLite alone failed at ${loop}`);
  return JSON.parse(output) as Sample;
}
