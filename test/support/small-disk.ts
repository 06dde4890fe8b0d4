/** File systems that are soon full. Mounting one takes root on Linux. */

import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";
import { runSync } from "./processes.ts";

export const canMount = process.platform === "linux" && process.getuid?.() === 0 && tryMount();

/** A file system of two megabytes, unless the test says another size. */
export function mountSmallFolder(size = "2M"): TemporaryFolder {
  const folder = makeTemporaryFolder();
  const { path } = folder;
  try {
    runSystemCommand("mount", "-t", "tmpfs", "-o", `size=${size}`, "plantstore-test", path);
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

export function runSystemCommand(...command: string[]): void {
  const { exitCode, stderr } = runSync(command, { stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr.toString()}`);
}
