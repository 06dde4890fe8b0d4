/** The files of a store, as an accident left them: what is in them, and whether a service tells the same. */

import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import type { Files } from "./disk-model.ts";
import type { MixedLoad } from "./mixed-load.ts";

export const STORE_NAME = "plants.db";

/** The index of the log is made anew after any accident. */
export const isKeptFile = (name: string): boolean => !name.endsWith("-shm");

export function readFiles(folder: string): Files {
  const names = readdirSync(folder).filter(isKeptFile);
  return new Map(names.map((name) => [name, readFileSync(join(folder, name))]));
}

/** Nothing else is there afterwards. */
export function placeFiles(folder: string, files: Files): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, content] of files) writeFileSync(join(folder, name), content);
}

interface Examination {
  readonly rows: readonly StoredPlant[];
  readonly faults: readonly string[];
}

/** Looks at a copy, so that the service is the one to recover these files. */
export function examineFiles(files: Files, load: MixedLoad): Examination {
  using folder = makeTemporaryFolder();
  const copy = join(folder.path, "copy");
  placeFiles(copy, files);
  const path = join(copy, STORE_NAME);
  try {
    const integrity = existsSync(path) ? checkIntegrity(path) : "ok";
    const rows = hasPlants(path) ? readPlants(path) : [];
    const faults = load.compare(rows);
    return { rows, faults: integrity === "ok" ? faults : [`integrity: ${integrity}`, ...faults] };
  } catch (error) {
    return { rows: [], faults: [`the file cannot be read: ${(error as Error).message}`] };
  }
}

/** False for a store that was never finished: whether that is allowed, what was acknowledged tells. */
function hasPlants(path: string): boolean {
  if (!existsSync(path)) return false;
  const db = new Database(path, { readwrite: true, create: false });
  try {
    return db.query("SELECT 1 FROM sqlite_schema WHERE name = 'plants'").get() !== null;
  } finally {
    db.close();
  }
}

/** Every plant that the service shows, or the status of another answer. */
export async function readAnswers(url: string): Promise<StoredPlant[] | number> {
  const response = await fetch(`${url}/plants`, {
    headers: { authorization: `Bearer ${TEST_TOKEN}`, accept: "application/x-ndjson" },
  });
  const text = await response.text();
  if (response.status !== 200) return response.status;
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map(parseLine);
}

/** Every difference between what the service shows and its file. Nothing may write meanwhile. */
export async function compareAnswers(url: string, rows: readonly StoredPlant[]): Promise<string[]> {
  const told = await readAnswers(url);
  if (typeof told === "number") return [`the list was answered ${told}`];
  if (told.length !== rows.length)
    return [`the file has ${rows.length} plants, and the service tells ${told.length}`];
  return rows
    .filter((row, index) => !isSamePlant(row, told[index] as StoredPlant))
    .map(({ id }) => `${id}: told otherwise than it is in the file`);
}

function parseLine(line: string): StoredPlant {
  const { id, name, tag } = JSON.parse(line) as { id: number; name: string; tag?: string };
  return { id: BigInt(id), name, tag: tag ?? null };
}
