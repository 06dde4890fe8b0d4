/** Services on one PostgreSQL server, and clients who know what they were told by them. */

import type { Clients } from "../support/clients.ts";
import type { ServiceProcess } from "../support/command.ts";
import { Fleet } from "../support/fleet.ts";
import { limits } from "../support/limits.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { findPostgresBinaries } from "../support/postgres-files.ts";
import { createTestDatabase, startPostgres } from "../support/postgres-server.ts";
import { startProxy } from "../support/proxy.ts";
import { fork, type Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { Load } from "./mixed-load.ts";
import { Findings } from "./scenario.ts";
import { ask, ownSettings } from "./service.ts";
import { compareAnswers } from "./shimmed-disk.ts";

const INSTANCES = 3;
const CLIENTS = 12;
const CONTENDERS = 8;
export const BATCH_LENGTH_MAX = 30;
const QUEUE_SECONDS_MAX = 2;
/** The same for services on any database that is about to fail. */
export const environment: Readonly<Record<string, string>> = {
  PLANTSTORE_TOKEN: TEST_TOKEN,
  ...limits({ statementSecondsMax: 1, queueSecondsMax: QUEUE_SECONDS_MAX }),
  ...ownSettings,
};

/** Sent through each service, to see whether it takes writes. No client writes to it. */
export const probe: StoredPlant = { id: -500n, name: "probe", tag: null };

export type Scene = Awaited<ReturnType<typeof openScene>>;

export async function openScene(random: Random, settings: Readonly<Record<string, string>> = {}) {
  await using opened = new AsyncDisposableStack();
  const server = opened.use(
    await startPostgres({ settings: { shared_buffers: "64MB", ...settings } }),
  );
  const { name: database } = await createTestDatabase(server);
  const proxy = opened.use(await startProxy(server.port));
  const DATABASE_URL = `postgres://postgres@127.0.0.1:${proxy.port}/${database}`;
  const fleet = opened.use(new Fleet(server, { ...environment, DATABASE_URL }));
  await fleet.start(INSTANCES);
  const found = new Findings();
  const choosing = fork(random);
  const surroundings = {
    findUrl: () => fleet.findUrl(choosing),
    untilQuiet: () => fleet.quiet,
    batchLengthMax: BATCH_LENGTH_MAX,
    onLost: (lostUrl: string): void => {
      if (!fleet.ended.some(({ started }) => started.url === lostUrl))
        found.faults.push(`a connection to ${lostUrl} was lost although the service was not ended`);
    },
  };
  const load = opened.use(new Load(CLIENTS, CONTENDERS, surroundings, random));
  const scene = opened.move();
  return {
    server,
    database,
    proxy,
    fleet,
    load,
    found,
    [Symbol.asyncDispose]: (): Promise<void> => scene.disposeAsync(),
  };
}

export function findMissingPostgres(): string | undefined {
  try {
    findPostgresBinaries();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Beyond the time that a write may wait, on a busy machine. */
const ANSWER_SLACK_MS = 60_000;

/**
 * After the load: all in which what is stored, or shown, differs from what the clients were told, and whether the
 * services are sound, in time, and quiet. Ends them.
 */
export async function examine({ server, database, load, fleet }: Scene): Promise<string[]> {
  await load[Symbol.asyncDispose]();
  const rows = await server.run<StoredPlant>(
    "SELECT id, name, tag FROM plants ORDER BY id",
    database,
  );
  const faults = load.compare(rows.filter(({ id }) => id !== probe.id));
  if (!rows.some((row) => isSamePlant(row, probe)))
    faults.push("the probe was acknowledged, and lost");
  const examined = await Promise.all([
    ...fleet.services.map(async (service) => {
      const { url } = service.started;
      const shown = await compareAnswers(url, rows).catch(() => [`${url} does not answer`]);
      const { status } = await ask(`${url}/readyz`);
      const ready = status === 200 ? [] : [`readiness is ${status} when all is well again`];
      return [...shown, ...ready, ...(await findUnsound(service))];
    }),
    ...fleet.ended.map(async ({ stderr }) => findErrors(await stderr)),
  ]);
  return [...faults, ...examined.flat(), ...findDelays(load.clients)];
}

/** Tells it to stop, which only the very process does that was started. */
export async function findUnsound(service: ServiceProcess): Promise<string[]> {
  service.kill("SIGTERM");
  const exitCode = await service.exited;
  const stderr = await service.stderr;
  const last = stderr.trimEnd().split("\n").at(-1);
  return [
    ...(exitCode === 0 ? [] : [`${service.started.url} exited with ${exitCode}: ${last}`]),
    ...findErrors(stderr),
  ];
}

function findErrors(stderr: string): string[] {
  const lines = stderr.split("\n").filter((line) => line.includes('"level":"error"'));
  return lines.map((line) => `a service logged an error: ${line}`);
}

export function findDelays({ answerMsMax }: Clients): string[] {
  return answerMsMax < QUEUE_SECONDS_MAX * 1_000 + ANSWER_SLACK_MS
    ? []
    : [`an answer took ${answerMsMax.toFixed(0)} ms, and ${QUEUE_SECONDS_MAX} s are promised`];
}
