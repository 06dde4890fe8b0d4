/** plantstore serve: from configuration to a running service, and from a signal to a clean end. */

import { Authenticator } from "../auth/authenticate.ts";
import { mintToken, toRecord } from "../auth/token.ts";
import { type Config, findIgnoredVariables } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { scopes } from "../domain/token.ts";
import { type RunningServer, startServer } from "../http/server.ts";
import { createLog, type Log, Stderr } from "../observe/log.ts";
import { openStore } from "../store/open.ts";
import { announce } from "./announce.ts";
import { SAME_SIGNAL_MS } from "./interrupt.ts";

export async function serve(config: Config): Promise<void> {
  const stderr = new Stderr();
  const log = createLog(config.logLevel, stderr.write);
  for (const warning of findIgnoredVariables(process.env))
    log.warn("ignored_variable", { warning });
  const store = await openStore(config.databaseUrl, config);
  let server: RunningServer;
  let firstToken: string | undefined;
  try {
    server = await startListening(config, store, log, stderr.write);
    firstToken = config.token === undefined ? await makeFirstToken(store) : undefined;
  } catch (error) {
    await store.close();
    throw error;
  }
  if (!server.hasConsole)
    log.warn("console_missing", { warning: "The console is not built; npm run build makes it." });
  stopOnSignal(log, stderr, async () => {
    await server.stop();
    await store.close();
  });
  announce({ url: server.url, store: store.description, workers: config.workers, firstToken });
}

async function startListening(
  config: Config,
  store: Store,
  log: Log,
  writeLog: (line: string) => void,
): Promise<RunningServer> {
  if (config.workers === 1)
    return startServer({
      config,
      store,
      authenticator: new Authenticator(store, config.token),
      log,
    });
  // Threads take memory, and so does what starts them.
  const { startWorkers } = await import("../workers/start.ts");
  return startWorkers({ config, store, writeLog });
}

/** A store that has never had a token gets one, so that the first request needs no other command. */
async function makeFirstToken(store: Store): Promise<string | undefined> {
  const token = mintToken();
  const record = toRecord(token, { name: "first", scopes, createdAtMs: Date.now() });
  return (await store.createFirstToken(record)) ? token : undefined;
}

function stopOnSignal(log: Log, stderr: Stderr, stop: () => Promise<void>): void {
  let stoppingSinceMs: number | undefined;
  const begin = async (reason: string, code: number): Promise<void> => {
    let exitCode = code;
    if (stoppingSinceMs !== undefined) {
      if (performance.now() - stoppingSinceMs > SAME_SIGNAL_MS) process.exit(1);
      return;
    }
    stoppingSinceMs = performance.now();
    log.info("stopping", { reason });
    try {
      await stop();
      log.info("stopped", { durationMs: Math.round(performance.now() - stoppingSinceMs) });
    } catch (cause) {
      log.error("stop_failed", { cause });
      exitCode = 1;
    }
    await stderr.flush();
    process.exit(exitCode);
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const)
    process.on(signal, () => void begin(signal, 0));
  // A defect that nobody caught: what is in flight may finish, but this process is not to be trusted.
  for (const event of ["uncaughtException", "unhandledRejection"] as const)
    process.on(event, (cause: unknown) => {
      log.error(event, { cause });
      void begin(event, 1);
    });
}
