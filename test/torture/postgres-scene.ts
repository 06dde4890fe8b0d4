/** Services on one PostgreSQL server, and clients who know what they were told by them. */

import { Clients } from "../support/clients.ts";
import type { ServiceProcess } from "../support/command.ts";
import { Fleet } from "../support/fleet.ts";
import { limits } from "../support/limits.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { findPostgresBinaries } from "../support/postgres-files.ts";
import { createTestDatabase, startPostgres } from "../support/postgres-server.ts";
import { startProxy } from "../support/proxy.ts";
import { Contest } from "../support/history.ts";
import { fork, type Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { compareBoth } from "./mixed-load.ts";
import { ask } from "./service.ts";
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
  ...(process.env["PLANTSTORE_WORKERS"] === undefined
    ? {}
    : { PLANTSTORE_WORKERS: process.env["PLANTSTORE_WORKERS"] }),
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
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/${database}`;
  const fleet = opened.use(new Fleet(server, url, environment));
  await fleet.start(INSTANCES);
  /** Found during the run. */
  const faults: string[] = [];
  const choosing = fork(random);
  const surroundings = {
    findUrl: () => fleet.findUrl(choosing),
    untilQuiet: () => fleet.untilQuiet(),
    batchLengthMax: BATCH_LENGTH_MAX,
    onLost: (lostUrl: string): void => {
      if (!fleet.ended.some(({ started }) => started.url === lostUrl))
        faults.push(`a connection to ${lostUrl} was lost although the service was not ended`);
    },
  };
  const clients = opened.use(new Clients(CLIENTS, surroundings, fork(random)));
  const contest = opened.use(new Contest(CONTENDERS, surroundings, fork(random)));
  const scene = opened.move();
  return {
    server,
    database,
    proxy,
    fleet,
    clients,
    contest,
    faults,
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

/** After the load has stopped: all in which what is stored, or shown, differs from what the clients were told. */
export async function compare(scene: Scene): Promise<string[]> {
  const { server, database, clients, contest, fleet } = scene;
  const rows = await server.run<StoredPlant>(
    "SELECT id, name, tag FROM plants ORDER BY id",
    database,
  );
  const shown = await Promise.all(
    fleet.services.map(({ started: { url } }) =>
      compareAnswers(url, rows).catch(() => [`${url} does not answer`]),
    ),
  );
  return [
    ...compareBoth(
      clients,
      contest,
      rows.filter(({ id }) => id !== probe.id),
    ),
    ...(rows.some((row) => isSamePlant(row, probe))
      ? []
      : ["the probe was acknowledged, and lost"]),
    ...shown.flat(),
  ];
}

/** After all that: whether the services are sound, in time, and quiet. Ends them. */
export async function examine({ fleet, clients }: Scene): Promise<string[]> {
  const faults = await Promise.all([
    ...fleet.services.map(async (service) => {
      const { status } = await ask(`${service.started.url}/readyz`);
      const ready = status === 200 ? [] : [`readiness is ${status} when all is well again`];
      return [...ready, ...(await findUnsound(service))];
    }),
    ...fleet.ended.map(async ({ stderr }) => findErrors(await stderr)),
  ]);
  return [...faults.flat(), ...findDelays(clients)];
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
