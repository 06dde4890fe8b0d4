/** A PgBouncer of the test's own, in the mode in which every transaction may get another server connection. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SQL } from "bun";
import { makeTemporaryFolder } from "./folder.ts";
import { giveToServer, spawnOptions } from "./postgres-binaries.ts";
import { findFreePort, HOSTNAME } from "./postgres-folder.ts";
import { guardFolder } from "./postgres-guard.ts";

/** Debian has it where only root looks for programs. */
const BINARY = Bun.which("pgbouncer") ?? ["/usr/sbin/pgbouncer"].find((path) => existsSync(path));

export const hasPgbouncer = BINARY !== undefined;

const START_MS_MAX = 10_000;

export interface Pgbouncer extends AsyncDisposable {
  readonly urlOf: (database: string) => string;
  /** Rows of one of its own commands, as in `SHOW POOLS`. */
  readonly show: (what: string) => Promise<Record<string, unknown>[]>;
}

/** `poolSize` is how many server connections a database gets, for however many clients. */
export async function startPgbouncer(
  serverPort: number,
  { poolSize }: { readonly poolSize: number },
): Promise<Pgbouncer> {
  if (BINARY === undefined) throw new Error("PgBouncer is not here");
  const folder = makeTemporaryFolder();
  guardFolder(folder.path);
  const port = findFreePort();
  const settings = join(folder.path, "pgbouncer.ini");
  const log = join(folder.path, "log");
  writeFileSync(
    settings,
    `[databases]
* = host=${HOSTNAME} port=${serverPort} user=postgres
[pgbouncer]
listen_addr = ${HOSTNAME}
listen_port = ${port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = ${poolSize}
max_client_conn = 200
logfile = ${log}
`,
  );
  // It has no statements of its own to replace named ones by: before 1.21 it could not, since then it need not.
  const version = Bun.spawnSync([BINARY, "--version"]).stdout.toString();
  if (!/ 1\.(\d|1\d|20)\./.test(version))
    writeFileSync(settings, `${readFileSync(settings, "utf8")}max_prepared_statements = 0\n`);
  giveToServer(folder.path);
  const child = Bun.spawn([BINARY, "-q", settings], {
    ...spawnOptions,
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  const urlOf = (database: string): string => `postgres://postgres@${HOSTNAME}:${port}/${database}`;
  const show = async (what: string): Promise<Record<string, unknown>[]> => {
    await using admin = new SQL(urlOf("pgbouncer"), { max: 1, tls: false });
    return [...((await admin.unsafe(`SHOW ${what}`).simple()) as Record<string, unknown>[])];
  };
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await child.exited;
    folder[Symbol.dispose]();
  };
  const startedAtMs = performance.now();
  for (;;) {
    try {
      await show("VERSION");
      break;
    } catch (error) {
      if (child.exitCode !== null || performance.now() - startedAtMs > START_MS_MAX) {
        const text = existsSync(log) ? readFileSync(log, "utf8") : "";
        await stop();
        throw new Error(`PgBouncer did not start:\n${text}`, { cause: error });
      }
      await Bun.sleep(10);
    }
  }
  return { urlOf, show, [Symbol.asyncDispose]: stop };
}
