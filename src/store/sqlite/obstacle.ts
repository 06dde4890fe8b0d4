/** What keeps this process from a file. SQLite and the system name neither the permission nor the limit. */

import { accessSync, constants, type Stats, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { countFreeDescriptors } from "../../descriptor.ts";

const { R_OK, W_OK, X_OK } = constants;
const rights = [
  [X_OK, "enter"],
  [R_OK, "read"],
  [W_OK, "write to"],
] as const;

/** For a store: its file, WAL, index and folder, and a temporary file. */
const DESCRIPTORS_NEEDED = 5;

/** For reading and writing the file, or for creating it. Undefined if nothing is in the way. */
export function findObstacle(path: string): string | undefined {
  if (countFreeDescriptors(DESCRIPTORS_NEEDED) < DESCRIPTORS_NEEDED)
    return "too few file descriptors are free; raise the limit (ulimit -n)";
  const file = resolve(path);
  let place = file;
  let found: Stats | undefined;
  // Without the right to enter a folder, nothing in it seems to exist.
  while ((found = find(place)) === undefined) place = dirname(place);
  if (place === file && found.isDirectory()) return `${place} is a folder, not a file`;
  if (place !== file && !found.isDirectory()) return `${place} is not a folder`;
  for (const [right, verb] of rights) {
    if (right === (place === file ? X_OK : R_OK)) continue;
    const code = findRefusal(place, right);
    if (code === "EROFS") return `${place} is on a read-only file system`;
    if (code !== "EACCES" && code !== "EPERM") continue;
    const mode = (found.mode & 0o7777).toString(8).padStart(4, "0");
    return `user ${process.geteuid?.()} may not ${verb} ${place} (owner ${found.uid}, mode ${mode})`;
  }
  return undefined;
}

function find(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}

function findRefusal(path: string, right: number): string | undefined {
  try {
    accessSync(path, right);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
}
