/** What a PostgreSQL server needs before it can start: a data folder and a port. */

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { findPostgresBinaries, giveToServer, spawnOptions } from "./postgres-binaries.ts";

export const HOSTNAME = "127.0.0.1";

export interface DataFolderOptions {
  readonly initdbArgs?: readonly string[];
  /** Lines of pg_hba.conf that count before those that trust everyone on this machine. */
  readonly hbaLines?: readonly string[];
  /** A data folder at rest that is moved here, in place of a new one. */
  readonly takeOver?: string;
  /** Puts files into the data folder; it is at rest then. */
  readonly prepare?: (dataFolder: string) => void | Promise<void>;
}

/** Whatever is put there belongs to the server in the end, and so does the folder around it. */
export async function makeDataFolder(path: string, options: DataFolderOptions): Promise<void> {
  giveToServer(dirname(path));
  if (options.takeOver === undefined) initialise(path, options.initdbArgs);
  else renameSync(options.takeOver, path);
  const hba = join(path, "pg_hba.conf");
  writeFileSync(hba, [...(options.hbaLines ?? []), readFileSync(hba, "utf8")].join("\n"));
  await options.prepare?.(path);
  giveToServer(dirname(path));
}

function initialise(dataFolder: string, args: readonly string[] = []): void {
  const command = "initdb -U postgres -E UTF8 --no-locale --auth=trust --no-sync --no-instructions";
  const [program = "", ...flags] = command.split(" ");
  const { exitCode, stderr } = Bun.spawnSync(
    [join(findPostgresBinaries(), program), ...flags, "-D", dataFolder, ...args],
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
