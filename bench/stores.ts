/** Where stores are kept during a run, and how they are filled and counted. */

import { Database } from "bun:sqlite";
import { constants, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runLoop } from "./run-loop.ts";

let folder: string | undefined;

/** Gone when the benchmark is over, however it ends. */
export function getFolder(): string {
  if (folder !== undefined) return folder;
  const made = mkdtempSync(join(process.env["BENCH_FOLDER"] ?? tmpdir(), "plantstore-bench-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  // A signal alone would end the process without its exit handlers.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
  return (folder = made);
}

let paths = 0;
let passing: string[] = [];

/** A path that nothing is at yet, and nothing will be after the scenario. */
export function makePath(name: string): string {
  const path = makeLastingPath(name);
  passing.push(path);
  return path;
}

/** The same, for the whole run. */
export const makeLastingPath = (name: string): string => join(getFolder(), `${paths++}-${name}`);

/** Gigabytes that nobody needs any more. */
export function removePassing(): void {
  for (const path of passing)
    for (const suffix of ["", "-wal", "-shm"])
      rmSync(path + suffix, { recursive: true, force: true });
  passing = [];
}

export const makeStore = (): string => makePath("plants.db");

export function copyStore(from: string): string {
  const path = makePath("plants.db");
  copyFileSync(from, path, constants.COPYFILE_FICLONE);
  return path;
}

/** Whose table: ours with its index, or one as people make it. */
type Schema = "fill" | "fill-plain";

const filled = new Map<string, Promise<string>>();

/** A store with so many plants, from id 0 on. */
export async function fillStore(
  count: number,
  schema: Schema = "fill",
  path = makeStore(),
): Promise<string> {
  await runLoop(schema, path, String(count));
  return path;
}

/** The same, as a copy of one that is filled once a run. */
export async function makeFilledStore(count: number, schema: Schema = "fill"): Promise<string> {
  const key = `${schema} ${count}`;
  const original = filled.get(key) ?? fillStore(count, schema, makeLastingPath("original.db"));
  filled.set(key, original);
  return copyStore(await original);
}

/** While a server has it open, too. */
export function countRows(path: string): number {
  const db = new Database(path, { readonly: true });
  try {
    const { count } = db.query("SELECT count(*) AS count FROM plants").get() as { count: number };
    return count;
  } finally {
    db.close();
  }
}

/** What was filled or copied is on its way to the disk for a while: that is not for the next round to pay. */
export function settleDisk(): void {
  if (folder !== undefined) Bun.spawnSync(["sync"]);
}
