/** Where an export goes: to standard output, or to a file that is there in whole or not at all. */

import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { writeDescriptor } from "./descriptor.ts";
import { CommandError } from "./failure.ts";

export interface Output {
  readonly write: (text: string) => Promise<void>;
  /** What was written is there, by its name and on the disk. */
  readonly finish: () => void;
  /** What was written is gone, as far as it can be. Does nothing after `finish`. */
  readonly abandon: () => void;
}

/** Whoever reads our output has seen enough, as `head` has. */
export class ReaderGone extends Error {
  override readonly name = "ReaderGone";
}

const STANDARD_OUTPUT = 1;

export function openStandardOutput(signal: AbortSignal): Output {
  return {
    write: async (text) => {
      try {
        await writeDescriptor(STANDARD_OUTPUT, text, signal);
      } catch (error) {
        throw (error as NodeJS.ErrnoException).code === "EPIPE" ? new ReaderGone() : error;
      }
    },
    finish: () => undefined,
    abandon: () => undefined,
  };
}

export function openFileOutput(
  path: string,
  { force }: { force: boolean },
  signal: AbortSignal,
): Output {
  requireFree(path, force);
  // Through a symbolic link: the file that it names is replaced, and not the link.
  const target = existsSync(path) ? realpathSync(path) : path;
  const temporary = join(dirname(target), `.${basename(target)}.${process.pid}.partial`);
  const descriptor = openSync(temporary, "wx");
  let isOpen = true;
  const close = (): void => {
    if (isOpen) closeSync(descriptor);
    isOpen = false;
  };
  return {
    write: (text) => writeDescriptor(descriptor, text, signal),
    finish: () => {
      fsyncSync(descriptor);
      close();
      requireFree(path, force);
      renameSync(temporary, target);
      syncFolder(dirname(target));
    },
    abandon: () => {
      close();
      rmSync(temporary, { force: true });
    },
  };
}

function requireFree(path: string, force: boolean): void {
  // A link that leads nowhere is somebody's, too.
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!statSync(path, { throwIfNoEntry: false })?.isFile())
    throw new CommandError(`${path} is there, and is no file.`);
  if (!force) throw new CommandError(`${path} is there already; --force replaces it.`);
}

function syncFolder(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
