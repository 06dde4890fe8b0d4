/** The service on a disk that fails, or loses its power, when the test says so. */

import { Database } from "bun:sqlite";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { DiskShim, type Trouble } from "../support/disk-shim.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { isSameState } from "../support/model.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import { type Disk, type Files, readDiskLog } from "./disk-model.ts";
import type { MixedLoad } from "./mixed-load.ts";
import { ask } from "./service.ts";

export const STORE_NAME = "plants.db";

export class ShimmedDisk implements Disposable {
  readonly #folder = makeTemporaryFolder();
  readonly #log = join(this.#folder.path, "log");
  readonly #place = join(this.#folder.path, "disk");
  readonly storePath = join(this.#place, STORE_NAME);
  readonly control = new DiskShim(this.#folder.path);

  /** On these files. Undefined where the power went before it listened. */
  async start(
    settings: Readonly<Record<string, string>>,
    files: Files = new Map(),
    trouble: Trouble = {},
  ): Promise<ServiceProcess | undefined> {
    rmSync(this.#log, { force: true });
    placeFiles(this.#place, files);
    this.control.set(trouble);
    try {
      return await spawnService({
        DATABASE_URL: `sqlite:${this.storePath}`,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        ...this.control.environmentFor(this.#place, this.#log),
        ...settings,
      });
    } catch (error) {
      // By SIGKILL.
      if ((error as Error).message.includes("(exit 137)")) return undefined;
      throw error;
    }
  }

  readFiles(): Files {
    const names = readdirSync(this.#place).filter(isKeptFile);
    return new Map(names.map((name) => [name, readFileSync(join(this.#place, name))]));
  }

  /** Has the model do what the service did since its start. */
  replay(model: Disk): void {
    for (const record of readDiskLog(this.#log)) model.apply(record);
  }

  /** Everything that the shim has not seen, or the model has understood wrongly: none, or no result counts. */
  compare(model: Disk): string[] {
    const [shown, files] = [model.show(), this.readFiles()];
    return [...new Set([...shown.keys(), ...files.keys()])]
      .filter((name) => isKeptFile(name) && !Bun.deepEquals(shown.get(name), files.get(name)))
      .map((name) => `the model of the disk has ${name} otherwise than the disk`);
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** The index of the log is rebuilt after a crash. */
const isKeptFile = (name: string): boolean => !name.endsWith("-shm");

/** Nothing else is there afterwards. */
function placeFiles(folder: string, files: Files): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, content] of files) writeFileSync(join(folder, name), content);
}

/** Looks at a copy: the service has to recover the files itself. What was shown has to be there. */
export function examineFiles(files: Files, load: MixedLoad, shown: readonly StoredPlant[]) {
  using folder = makeTemporaryFolder();
  const copy = join(folder.path, "copy");
  placeFiles(copy, files);
  const path = join(copy, STORE_NAME);
  try {
    using db = new Database(path);
    const integrity = checkIntegrity(path);
    // Whether a store may be without its table, because it was never finished, what was acknowledged tells.
    const table = db.query("SELECT 1 FROM sqlite_schema WHERE name = 'plants'").get();
    const rows = table === null ? [] : readPlants(path);
    const faults = [...load.compare(rows), ...findMissing(shown, rows)];
    return { rows, faults: integrity === "ok" ? faults : [`integrity: ${integrity}`, ...faults] };
  } catch (error) {
    return { rows: [], faults: [`the file cannot be read: ${(error as Error).message}`] };
  }
}

/** Plants that a service has shown, and that are no longer there. */
function findMissing(shown: readonly StoredPlant[], rows: readonly StoredPlant[]): string[] {
  const found = new Map(rows.map((row) => [row.id, row]));
  return shown
    .filter((plant) => !isSameState(found.get(plant.id), plant))
    .map(({ id }) => `${id}: lost after it was shown`);
}

/** Every plant that the service shows, or the status of another answer. Rejects if there is none. */
export async function readAnswers(url: string): Promise<StoredPlant[] | number> {
  const headers = { accept: "application/x-ndjson" };
  const { status, text } = await ask(`${url}/plants`, { headers });
  if (status === 0) throw new Error(`${url} does not answer`);
  if (status !== 200) return status;
  // No id here is beyond what a number can hold.
  return Bun.JSONL.parse(text).map((line) => {
    const { id, name, tag = null } = line as { id: number; name: string; tag?: string };
    return { id: BigInt(id), name, tag };
  });
}

/** Every difference between what the service shows and its file. Nothing may write meanwhile. */
export async function compareAnswers(url: string, rows: readonly StoredPlant[]): Promise<string[]> {
  const told = await readAnswers(url);
  if (typeof told === "number") return [`the list was answered ${told}`];
  if (told.length !== rows.length)
    return [`the file has ${rows.length} plants, and the service shows ${told.length}`];
  return rows
    .filter((row, index) => !isSamePlant(row, told[index] as StoredPlant))
    .map(({ id }) => `${id}: shown differently than it is in the file`);
}
