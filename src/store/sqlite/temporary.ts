/** A file that exists only until it gets its name, and is gone if it never does. */

import { randomBytes } from "node:crypto";
import { chmodSync, chownSync, closeSync, openSync, rmSync, type Stats } from "node:fs";
import { companions } from "./replace.ts";

export interface TemporaryFile extends Disposable {
  readonly path: string;
}

/** Beside the file that it is to become. It holds hashes of tokens: its owner's alone, or as `model` was. */
export function makeTemporaryFile(beside: string, model: Stats | undefined): TemporaryFile {
  const path = `${beside}.${randomBytes(6).toString("hex")}.tmp`;
  closeSync(openSync(path, "wx", 0o600));
  if (model !== undefined) resemble(path, model);
  return {
    path,
    [Symbol.dispose]() {
      for (const suffix of ["", ...companions]) rmSync(path + suffix, { force: true });
    },
  };
}

/** What an administrator restores must still belong to the service afterwards. */
function resemble(path: string, model: Stats): void {
  if (process.getuid?.() === 0) chownSync(path, model.uid, model.gid);
  if (model.isFile()) chmodSync(path, model.mode & 0o777);
}
