/** Local files of a place: pieces that are prepared, downloaded or unpacked. A killed process leaves them behind. */

import { randomBytes } from "node:crypto";
import {
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createZstdCompress, createZstdDecompress } from "node:zlib";
import { companions } from "../store/sqlite/database.ts";

export function openScratch(folder: string) {
  const own = new Set<string>();
  const remove = (path: string): void => {
    own.delete(path);
    for (const suffix of ["", ...companions]) rmSync(path + suffix, { force: true });
  };
  const create = (prefix: string): string => {
    const random = randomBytes(6).toString("hex");
    const path = join(folder, `${prefix}.${nameProcess()}.${random}.piece.tmp`);
    closeSync(openSync(path, "wx", 0o600));
    own.add(path);
    return path;
  };
  const fetched = new Map<string, { readonly path: string; readonly done: Promise<void> }>();
  sweepScratch(folder);
  return {
    create,
    remove,
    /** Reads a piece into a file once, until it is released. */
    async fetch(name: string, read: (path: string) => Promise<void>): Promise<string> {
      const start = () => {
        const path = create("fetched");
        const done = read(path).catch((error: unknown) => {
          fetched.delete(name);
          remove(path);
          throw error;
        });
        fetched.set(name, { path, done });
        return { path, done };
      };
      const { path, done } = fetched.get(name) ?? start();
      await done;
      return path;
    },
    release(): void {
      for (const { path } of fetched.values()) remove(path);
      fetched.clear();
    },
    close: () => own.forEach(remove),
  };
}

const LOCAL_NAME = /\.(\d+-\d+-\d+)\.[0-9a-f]{12}\.(piece\.)?tmp(-\w+)?$/;

/** Removes what killed processes left in the folder; with `isOver`, also what the ended threads of this one did. */
export function sweepScratch(folder: string, isOver = false, prefix = ""): void {
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) {
    const [, owner, isPiece] = LOCAL_NAME.exec(name) ?? [];
    if (owner === undefined || !name.startsWith(prefix)) continue;
    if (prefix === "" && isPiece === undefined) continue;
    const isOwn = owner === nameProcess();
    if (isOwn ? isOver : isGone(owner, join(folder, name)))
      rmSync(join(folder, name), { force: true });
  }
}

const FOREIGN_MS = 86_400_000;

/** A process of another container cannot be seen. What it left counts as left behind after a day. */
function isGone(owner: string, path: string): boolean {
  const found = hasEnded(owner);
  if (found !== undefined) return found;
  const atMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return Date.now() - atMs > FOREIGN_MS;
}

/** The namespace of its id, its id and its start: in a container every process may have the id 1. */
export const nameProcess = (pid = process.pid): string =>
  `${readNamespace()}-${pid}-${readStart(pid)}`;

/** Undefined if it ran in another namespace, so nothing is known. */
export function hasEnded(name: string): boolean | undefined {
  const [namespace, pid] = name.split("-");
  if (namespace !== readNamespace()) return undefined;
  try {
    process.kill(Number(pid), 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return true;
  }
  return nameProcess(Number(pid)) !== name;
}

/** Two machines have the same namespaces of process ids. Undefined where nothing tells them apart. */
export function readBoot(): string | undefined {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return undefined;
  }
}

/** 0 where there are none. */
function readNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  } catch {
    return "0";
  }
}

function readStart(pid: number): string {
  try {
    // The second field is the command, in parentheses, and may contain anything.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return fields[19] ?? "0";
  } catch {
    // Not on this system.
    return "0";
  }
}

/** Closed pieces are packed. Their digests are of what is inside. */
export const isPacked = (name: string): boolean => name.endsWith(".zst");

export const pack = (from: string, to: string): Promise<void> =>
  pipeline(createReadStream(from), createZstdCompress(), createWriteStream(to));

/** What is damaged is unpacked as far as possible: its reader compares checksums. */
export async function unpack(from: string, to: string): Promise<void> {
  try {
    await pipeline(createReadStream(from), createZstdDecompress(), createWriteStream(to));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall !== undefined) throw error;
  }
}
