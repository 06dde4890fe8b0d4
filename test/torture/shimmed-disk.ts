/** The service on a disk that fails, or loses its power, when the test says so. */

import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { DiskShim } from "../support/disk-shim.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "../support/folder.ts";
import { isSameState } from "../support/model.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import { type Disk, type DiskRecord, type Files, readDiskLog } from "./disk-model.ts";
import type { MixedLoad } from "./mixed-load.ts";

/** The exit code after a SIGKILL. */
const KILLED = 137;

export class ShimmedDisk implements Disposable {
  readonly control: DiskShim;
  private readonly folder: TemporaryFolder = makeTemporaryFolder();
  private readonly log: string;
  private readonly place: string;

  constructor() {
    const { path } = this.folder;
    this.log = join(path, "log");
    this.place = join(path, "disk");
    mkdirSync(this.place);
    this.control = new DiskShim(path);
  }

  /** Undefined where the power went before it listened. */
  async start(settings: Readonly<Record<string, string>>): Promise<ServiceProcess | undefined> {
    rmSync(this.log, { force: true });
    try {
      return await spawnService({
        DATABASE_URL: `sqlite:${this.storePath}`,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        ...this.control.environmentFor(this.place, this.log),
        ...settings,
      });
    } catch (error) {
      if ((error as Error).message.includes(`(exit ${KILLED})`)) return undefined;
      throw error;
    }
  }

  get storePath(): string {
    return join(this.place, STORE_NAME);
  }

  /** In place of all that is there; the service is not running. */
  put(files: Files): void {
    placeFiles(this.place, files);
  }

  readFiles(): Files {
    return readFiles(this.place);
  }

  /** What the service did since its start. */
  readLog(): Generator<DiskRecord> {
    return readDiskLog(this.log);
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

/** Everything that the shim has not seen, or the model has understood wrongly: none, or nothing else can be believed. */
export function compareModel(disk: Disk, files: Files): string[] {
  const shown = disk.show();
  return [...new Set([...shown.keys(), ...files.keys()])]
    .filter(isKeptFile)
    .filter((name) => {
      const [one, other] = [shown.get(name), files.get(name)];
      return one === undefined || other === undefined || !one.equals(other);
    })
    .map((name) => `the model of the disk has ${name} otherwise than the disk`);
}

export const STORE_NAME = "plants.db";

/** The index of the log is rebuilt after a crash. */
const isKeptFile = (name: string): boolean => !name.endsWith("-shm");

function readFiles(folder: string): Files {
  const names = readdirSync(folder).filter(isKeptFile);
  return new Map(names.map((name) => [name, readFileSync(join(folder, name))]));
}

/** Nothing else is there afterwards. */
function placeFiles(folder: string, files: Files): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, content] of files) writeFileSync(join(folder, name), content);
}

interface Examination {
  readonly rows: readonly StoredPlant[];
  readonly faults: readonly string[];
}

/** Looks at a copy: the service has to recover the files itself. What was shown has to be there. */
export function examineFiles(
  files: Files,
  load: MixedLoad,
  shown: readonly StoredPlant[],
): Examination {
  using folder = makeTemporaryFolder();
  const copy = join(folder.path, "copy");
  placeFiles(copy, files);
  const path = join(copy, STORE_NAME);
  try {
    const integrity = existsSync(path) ? checkIntegrity(path) : "ok";
    const rows = hasPlants(path) ? readPlants(path) : [];
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
