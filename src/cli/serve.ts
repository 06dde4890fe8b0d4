/** plantstore serve: starts the service from its configuration, and shuts it down on a signal. */

import packageJson from "../../package.json";
import { type FirstToken, giveFirstToken } from "../auth/first-token.ts";
import { type Config, findIgnoredVariables, findTracing } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store, StoreDescription } from "../domain/store.ts";
import { parseStoreUrl } from "../store-url.ts";
import { DESCRIPTORS_SPARE, listRoutes, pathsOf, type RunningServer } from "../http/server.ts";
import { createLog, type Log, Stderr } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { openServed } from "../store/open.ts";
import { countFreeDescriptors } from "../descriptor.ts";
import type { Tls } from "../http/tls.ts";
import { within } from "../tick.ts";
import { createWebhookSender } from "../webhooks/sender.ts";
import { holdPort, startHttp } from "../workers/start.ts";
import { CommandError, describeMigration, explain, onSignal, UsageError } from "./command.ts";
import { failOutput, isTerminal } from "./terminal.ts";

/** Beyond those of the threads: the server's reserve, and room for connections. */
const DESCRIPTORS_MIN = DESCRIPTORS_SPARE + 24;
const DESCRIPTORS_PER_WORKER = 8;

/** Without them, what fails first is chance: a thread, the store, the listener or the runtime. */
function requireDescriptors({ databaseUrl, workers, ...limits }: Config): void {
  const isPostgres = parseStoreUrl(databaseUrl).engine === "postgres";
  const connections = isPostgres ? limits.writeConnections + limits.readConnections : 0;
  const needed = DESCRIPTORS_MIN + workers * (DESCRIPTORS_PER_WORKER + connections);
  const free = countFreeDescriptors(needed);
  if (free < needed)
    throw new CommandError(
      `The service needs ${needed} free file descriptors with these settings, and ${free} are free. ` +
        "Raise the limit (ulimit -n, or LimitNOFILE in a systemd unit).",
    );
}

export async function serve(config: Config): Promise<void> {
  requireDescriptors(config);
  const stderr = new Stderr();
  const writeLog = isTerminal("stderr")
    ? (line: string) => stderr.write(formatLogLine(line))
    : stderr.write;
  const log = createLog(config.logLevel, writeLog);
  for (const warning of findIgnoredVariables(process.env))
    log.warn("ignored_variable", { warning });
  const tls =
    config.tlsCert === "" ? undefined : await (await import("../http/tls.ts")).openTls(config, log);
  if (config.backupTo !== "" && parseStoreUrl(config.databaseUrl).engine !== "sqlite")
    throw new UsageError("--backup-to: for backups of PostgreSQL, see docs/operations.md");
  const backups =
    config.backupTo === ""
      ? undefined
      : (await import("../backup/schedule.ts")).scheduleBackups(config, log, explain);
  const routes = listRoutes(config);
  const metrics = new Metrics(pathsOf(routes));
  const tracing = findTracing(config);
  // On demand: services without traces do not pay for them.
  const tracer =
    tracing && (await import("../observe/tracer.ts")).createTracer(tracing, config, metrics, log);
  const served = await openServed(
    config.databaseUrl,
    { ...config, onCommit: metrics.countCommit, tracing: tracer },
    config.workers,
    (change) => log.warn("migrating", { warning: describeMigration(change) }),
  );
  const { store } = served;
  // Without a journal there is nothing to send.
  const sender =
    config.changesDays > 0 ? createWebhookSender(store, config, log, tracer) : undefined;
  const facts = {
    backups: backups?.state,
    countDroppedLines: () => stderr.droppedTotal,
    reportWebhooks: () => sender?.report(),
  };
  let server: RunningServer;
  let first: FirstToken;
  try {
    // The port first: if the start failed after making a token, the token would never be shown.
    holdPort(config).release();
    first = await giveFirstToken(store, config, isTerminal("stdout"), log);
    const parts = { config, served, routes, metrics, log, writeLog, facts, tls, tracer };
    server = await startHttp(parts);
  } catch (error) {
    await store.close();
    throw toStartError(error as NodeJS.ErrnoException, config, store.description);
  }
  if (!server.hasConsole)
    log.warn("console_missing", { warning: "The console is not built; npm run build builds it." });
  backups?.start(store);
  sender?.start();
  served.onEnd((error) => {
    throw error;
  });
  stopOnSignal(log, stderr, config, store, async () => {
    await Promise.all([server.stop(), sender?.stop()]);
    await Promise.all([backups?.stop(), tracer?.close()]);
  });
  const { workers } = config;
  const started = { url: server.url, store: store.description, workers, tls, ...first };
  const text = isTerminal("stdout") ? formatForPeople(started) : formatAsJson(started);
  Bun.write(Bun.stdout, text).catch(failOutput);
}

/** The error code of an unknown host varies, so it is the default. */
function toStartError(
  error: NodeJS.ErrnoException,
  { host, port }: Config,
  { location }: StoreDescription,
): Error {
  if (error instanceof Refusal && error.reason === "store_busy")
    return new CommandError(
      `${location} did not store the first token in time: another process keeps it locked, or its disk hangs.`,
      { cause: error },
    );
  if (error.syscall !== "listen" && error.syscall !== "getaddrinfo") return error;
  const message =
    error.code === "EADDRINUSE"
      ? `Port ${port} of ${host} is in use. Choose another with --port or PORT.`
      : error.code === "EACCES"
        ? `This user may not listen on port ${port}. Choose another with --port or PORT.`
        : `${host} is not an address of this machine. Choose another with --host or HOST.`;
  return new CommandError(message, { cause: error });
}

/** The whole shutdown is bounded by the drain time: a hanging disk does not keep the process. */
function stopOnSignal(
  log: Log,
  stderr: Stderr,
  config: Config,
  store: Store,
  stop: () => Promise<unknown>,
): void {
  const msMax = (config.drainDelaySeconds + config.drainSecondsMax) * 1000;
  let isStopping = false;
  const begin = async (reason: string, code: number): Promise<void> => {
    if (isStopping) return;
    isStopping = true;
    const sinceMs = performance.now();
    log.info("stopping", { reason });
    const stopAll = stop().then(async () => store.close().then(() => true));
    const hasStopped = await within(msMax, stopAll).catch((cause: unknown) => {
      log.error("stop_failed", { cause });
      return false;
    });
    const durationMs = Math.round(performance.now() - sinceMs);
    if (hasStopped) log.info("stopped", { durationMs });
    // The clients of these writes got 503, or no answer.
    if (hasStopped === undefined)
      log.error("stop_incomplete", { durationMs, writesInDoubt: store.writesWaiting });
    await stderr.flush();
    process.exit(hasStopped ? code : 1);
  };
  onSignal((name, isSecond) => (isSecond ? process.exit(1) : void begin(name, 0)));
  // An uncaught defect: requests in flight may finish, but the process cannot be trusted.
  for (const event of ["uncaughtException", "unhandledRejection"] as const)
    process.on(event, (cause: unknown) => {
      log.error(event, { cause });
      void begin(event, 1);
    });
}

interface Started extends FirstToken {
  readonly url: string;
  readonly store: StoreDescription;
  readonly workers: number;
  readonly tls?: Pick<Tls, "names" | "state"> | undefined;
}

/** Browsers take the certificate only under one of its names. */
function nameAddress(url: string, names: readonly string[]): string {
  const { hostname } = new URL(url);
  const [name = hostname] = names;
  return names.includes(hostname) ? url : url.replace(`//${hostname}`, `//${name}`);
}

export function formatForPeople({ url: address, store, workers, tls, token }: Started): string {
  const url = nameAddress(address, tls?.names ?? []);
  const until = tls && new Date(tls.state.expiresAtMs).toISOString();
  const certificate = tls && `\n  TLS         until ${until}, for ${tls.names.join(", ")}`;
  const threads = workers === 1 ? "" : `\n  Threads     ${workers} for HTTP`;
  const first = `  Your first token. It is shown only now; keep it:
    ${token}
  Open the console with it:
    ${url}/#token=${token}
  Or store a plant:
    curl ${url}/plants \\
      -H 'Authorization: Bearer ${token}' \\
      -H 'Content-Type: application/json' \\
      -d '{"id": 1, "name": "Monstera deliciosa", "tag": "tropical"}'

`;
  return `
  Plant Store ${packageJson.version}

  Address     ${url}${certificate ?? ""}
  Store       ${store.location} (${store.engine})
  Durability  ${store.durability}${threads}
  Console     ${url}/
  Reference   ${url}/docs

${token === undefined ? "" : first}  Ctrl-C stops it.

`;
}

/** The same facts as one JSON line. A log may keep it, so it has no token. */
function formatAsJson({ url, store, workers, tokenFile }: Started): string {
  const line = { time: new Date().toISOString(), level: "info", event: "listening" };
  const { version } = packageJson;
  return `${JSON.stringify({ ...line, version, url, store, workers, tokenFile })}\n`;
}

/** Formats a JSON log line for a terminal: time, level, event and fields; an error's stack below. */
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
