/** What the operating system can do to a service: small disks, and disks that fail to sync. */

import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "./command.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";

const isLinux = process.platform === "linux";

export const canLimitFileSize = Bun.which("prlimit") !== null;
export const canFailSyncs = isLinux && Bun.which("cc") !== null;
export const canMount = isLinux && process.getuid?.() === 0 && tryMount();

export function runSystemCommand(...command: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(command, { stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr.toString()}`);
}

/** A file system of two megabytes. */
export function mountSmallFolder(): TemporaryFolder {
  const folder = makeTemporaryFolder();
  const { path } = folder;
  try {
    runSystemCommand("mount", "-t", "tmpfs", "-o", "size=2M", "plantstore-test", path);
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
  return {
    path,
    [Symbol.dispose]() {
      runSystemCommand("umount", path);
      folder[Symbol.dispose]();
    },
  };
}

function tryMount(): boolean {
  try {
    mountSmallFolder()[Symbol.dispose]();
    return true;
  } catch {
    return false;
  }
}

export interface UnsyncedService extends AsyncDisposable {
  readonly process: ServiceProcess;
  readonly path: string;
  readonly startFailing: () => void;
  readonly stopFailing: () => void;
}

/** A service whose syncs fail whenever the test says so. */
export async function spawnUnsynced(
  settings: Readonly<Record<string, string>>,
): Promise<UnsyncedService> {
  const folder = makeTemporaryFolder();
  const library = `${folder.path}/fsync-shim.so`;
  const source = join(import.meta.dir, "fsync-shim.c");
  runSystemCommand("cc", "-shared", "-fPIC", "-o", library, source, "-ldl");
  const path = `${folder.path}/plants.db`;
  const flag = `${folder.path}/fails`;
  const child = await spawnService({
    DATABASE_URL: `sqlite:${path}`,
    LD_PRELOAD: library,
    FSYNC_FAILS_WHILE: flag,
    ...settings,
  });
  return {
    process: child,
    path,
    startFailing: () => writeFileSync(flag, ""),
    stopFailing: () => rmSync(flag),
    async [Symbol.asyncDispose]() {
      await child[Symbol.asyncDispose]();
      folder[Symbol.dispose]();
    },
  };
}
