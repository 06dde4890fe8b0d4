/** plantstore serve: from the configuration to a running service, and from a signal to a clean end. */

import packageJson from "../../package.json";
import { Authenticator } from "../auth/authenticate.ts";
import { makeFirstToken } from "../auth/token.ts";
import { type Config, findIgnoredVariables } from "../config.ts";
import type { StoreDescription } from "../domain/store.ts";
import { type RunningServer, startServer } from "../http/server.ts";
import { createLog, type Log, Stderr } from "../observe/log.ts";
import { Histogram } from "../observe/metrics.ts";
import { openStore } from "../store/open.ts";
import { createWebhookSender } from "../webhooks/sender.ts";
import { CommandError, describeMigration, onSignal } from "./command.ts";
import { failOutput, isTerminal } from "./terminal.ts";

export async function serve(config: Config): Promise<void> {
  const stderr = new Stderr();
  const writeLog = isTerminal("stderr")
    ? (line: string) => stderr.write(formatLogLine(line))
    : stderr.write;
  const log = createLog(config.logLevel, writeLog);
  for (const warning of findIgnoredVariables(process.env))
    log.warn("ignored_variable", { warning });
  const backups =
    config.backupTo === "" ? undefined : (await import("./backup.ts")).scheduleBackups(config, log);
  const commits = { durations: new Histogram(), sizes: new Histogram() };
  const onCommit = (durationMs: number, writes: number): void => {
    commits.durations.add(durationMs);
    commits.sizes.add(writes);
  };
  const store = await openStore(config.databaseUrl, { ...config, onCommit }, (change) =>
    log.warn("migrating", { warning: describeMigration(change) }),
  );
  // Without a journal there is nothing to send.
  const sender = config.changesDays > 0 ? createWebhookSender(store, config, log) : undefined;
  const facts = {
    backups: backups?.state,
    commits,
    countDroppedLines: () => stderr.droppedTotal,
    reportWebhooks: () => sender?.report(),
  };
  const parts = { config, store, log, writeLog, facts };
  let server: RunningServer;
  let firstToken: string | undefined;
  try {
    // Loaded on demand: threads, and the code that starts them, take memory.
    server =
      config.workers === 1
        ? startServer({ ...parts, authenticator: new Authenticator(store, config.token) })
        : await (await import("../workers/start.ts")).startWorkers(parts);
    firstToken = config.token === undefined ? await makeFirstToken(store) : undefined;
  } catch (error) {
    await store.close();
    throw explainListen(error as NodeJS.ErrnoException, config);
  }
  if (!server.hasConsole)
    log.warn("console_missing", { warning: "The console is not built; npm run build builds it." });
  backups?.start();
  sender?.start();
  stopOnSignal(log, stderr, async () => {
    await Promise.all([server.stop(), backups?.stop(), sender?.stop()]);
    await store.close();
  });
  const { workers } = config;
  const started = { url: server.url, store: store.description, workers, firstToken };
  const text = isTerminal("stdout") ? formatForPeople(started) : formatAsJson(started);
  Bun.write(Bun.stdout, text).catch(failOutput);
}

/** The system's code for a name that cannot be resolved varies, so it is what is left. */
function explainListen(error: NodeJS.ErrnoException, { host, port }: Config): Error {
  if (error.syscall !== "listen") return error;
  const message =
    error.code === "EADDRINUSE"
      ? `Port ${port} of ${host} is in use. Choose another with --port or PORT.`
      : error.code === "EACCES"
        ? `This user may not listen on port ${port}. Choose another with --port or PORT.`
        : `${host} is not an address of this machine. Choose another with --host or HOST.`;
  return new CommandError(message, { cause: error });
}

function stopOnSignal(log: Log, stderr: Stderr, stop: () => Promise<void>): void {
  let isStopping = false;
  const begin = async (reason: string, code: number): Promise<void> => {
    if (isStopping) return;
    isStopping = true;
    let exitCode = code;
    const sinceMs = performance.now();
    log.info("stopping", { reason });
    try {
      await stop();
      log.info("stopped", { durationMs: Math.round(performance.now() - sinceMs) });
    } catch (cause) {
      log.error("stop_failed", { cause });
      exitCode = 1;
    }
    await stderr.flush();
    process.exit(exitCode);
  };
  onSignal((name, isSecond) => (isSecond ? process.exit(1) : void begin(name, 0)));
  // A defect that nothing caught: requests in flight may finish, but the process cannot be trusted.
  for (const event of ["uncaughtException", "unhandledRejection"] as const)
    process.on(event, (cause: unknown) => {
      log.error(event, { cause });
      void begin(event, 1);
    });
}

interface Started {
  readonly url: string;
  readonly store: StoreDescription;
  readonly workers: number;
  /** Made by this start, and never shown again. */
  readonly firstToken: string | undefined;
}

export function formatForPeople({ url, store, workers, firstToken: token }: Started): string {
  const threads = workers === 1 ? "" : `\n  Threads     ${workers} accept, one writes`;
  const first = `  Your first token. It is shown only now; keep it:
    ${token}
  Open the console with it:
    ${url}/#token=${token}
  Or store a plant:
    ${formatCurl(url, String(token)).replaceAll("\n", "\n    ")}

`;
  return `
  Plant Store ${packageJson.version}

  Address     ${url}
  Store       ${store.location} (${store.engine})
  Durability  ${store.durability}${threads}
  Console     ${url}/
  Reference   ${url}/docs

${token === undefined ? "" : first}  Ctrl-C stops it.

`;
}

/** The same facts on one line. Standard output is not the log, which never holds a token. */
function formatAsJson({ url, store, workers, firstToken: token }: Started): string {
  const line = { time: new Date().toISOString(), level: "info", event: "listening" };
  const first = token === undefined ? {} : { token, try: formatCurl(url, token) };
  const { version } = packageJson;
  return `${JSON.stringify({ ...line, version, url, store, workers, ...first })}\n`;
}

const formatCurl = (url: string, token: string): string => `curl ${url}/plants \\
  -H 'Authorization: Bearer ${token}' \\
  -H 'Content-Type: application/json' \\
  -d '{"id": 1, "name": "Monstera deliciosa", "tag": "tropical"}'`;

/** One JSON line of the log, for a terminal: time, level, event and fields; the stack of an error below. */
export function formatLogLine(line: string): string {
  const { time, level, event, cause, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const { message, stack } = (cause ?? {}) as { message?: string; stack?: string };
  const facts = message === undefined ? fields : { ...fields, cause: message };
  const shown = Object.entries(facts)
    .map(([name, value]) => ` ${name}=${JSON.stringify(value).replace(/^"([^\s"\\]+)"$/, "$1")}`)
    .join("");
  const below = stack === undefined ? "" : `${stack.replaceAll(/^/gm, "    ")}\n`;
  return `${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${String(event)}${shown}\n${below}`;
}
