/** The service on a disk that loses its power, or fails, when it is told to. */

import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { canFailSyncs, runSystemCommand } from "../support/system.ts";
import { DiskControl } from "./disk-control.ts";
import { type DiskRecord, readDiskLog } from "./disk-log.ts";
import type { Disk, Files } from "./disk-model.ts";
import { isKeptFile, placeFiles, readFiles, STORE_NAME } from "./stored-files.ts";

const KILLED = 137;

export const lackOfShim = (): string | undefined =>
  canFailSyncs ? undefined : "it takes Linux and a C compiler (cc)";

export class ShimmedDisk implements Disposable {
  readonly control: DiskControl;
  private readonly folder: TemporaryFolder = makeTemporaryFolder();
  private readonly library: string;
  private readonly log: string;
  private readonly place: string;

  constructor() {
    const { path } = this.folder;
    this.library = join(path, "disk-shim.so");
    this.log = join(path, "log");
    this.place = join(path, "disk");
    mkdirSync(this.place);
    this.control = new DiskControl(join(path, "control"));
    const source = join(import.meta.dir, "disk-shim.c");
    runSystemCommand("cc", "-O2", "-shared", "-fPIC", "-o", this.library, source, "-ldl");
  }

  /** Undefined where the power went before it listened. */
  async start(settings: Readonly<Record<string, string>>): Promise<ServiceProcess | undefined> {
    rmSync(this.log, { force: true });
    try {
      return await spawnService({
        DATABASE_URL: `sqlite:${join(this.place, STORE_NAME)}`,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        LD_PRELOAD: this.library,
        DISK_FOLDER: this.place,
        DISK_LOG: this.log,
        DISK_CONTROL: this.control.path,
        ...settings,
      });
    } catch (error) {
      if ((error as Error).message.includes(`(exit ${KILLED})`)) return undefined;
      throw error;
    }
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
