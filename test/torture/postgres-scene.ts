/** Services on one PostgreSQL server, and clients who know what they were told by them. */

import { Fleet } from "../support/fleet.ts";
import { Clients } from "../support/clients.ts";
import type { StoredPlant } from "../support/plants.ts";
import {
  createTestDatabase,
  type PostgresServer,
  startPostgres,
} from "../support/postgres-server.ts";
import { type Proxy, startProxy } from "../support/proxy.ts";
import { Quarrel } from "../support/quarrel.ts";
import { createRandom, type Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { limits } from "../support/limits.ts";

const INSTANCES = 3;
const CLIENTS = 12;
const QUARRELLERS = 8;
export const BATCH_LENGTH_MAX = 30;
const STATEMENT_SECONDS_MAX = 1;
export const QUEUE_SECONDS_MAX = 2;
/** The same for services on any database that is about to fail. */
export const environment: Readonly<Record<string, string>> = {
  PLANTSTORE_TOKEN: TEST_TOKEN,
  ...limits({ statementSecondsMax: STATEMENT_SECONDS_MAX, queueSecondsMax: QUEUE_SECONDS_MAX }),
  ...(process.env["PLANTSTORE_WORKERS"] === undefined
    ? {}
    : { PLANTSTORE_WORKERS: process.env["PLANTSTORE_WORKERS"] }),
};

/** Sent through each service, to see whether it takes writes. No client writes to it. */
export const probe: StoredPlant = { id: -500n, name: "probe", tag: null };

export interface Scene extends AsyncDisposable {
  readonly server: PostgresServer;
  readonly database: string;
  readonly proxy: Proxy;
  readonly fleet: Fleet;
  readonly clients: Clients;
  readonly quarrel: Quarrel;
  /** Faults that show while it goes on. */
  readonly faults: string[];
}

export async function openScene(
  random: Random,
  settings: Readonly<Record<string, string>> = {},
): Promise<Scene> {
  await using opened = new AsyncDisposableStack();
  const server = opened.use(
    await startPostgres({ settings: { shared_buffers: "64MB", ...settings } }),
  );
  const { name: database } = await createTestDatabase(server);
  const proxy = opened.use(await startProxy(server.port));
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/${database}`;
  const fleet = opened.use(new Fleet(server, url, environment));
  await fleet.start(INSTANCES);
  const faults: string[] = [];
  const fork = (): Random => createRandom(random.below(2 ** 31));
  const choosing = fork();
  const surroundings = {
    findUrl: () => fleet.findUrl(choosing),
    untilQuiet: () => fleet.untilQuiet(),
    batchLengthMax: BATCH_LENGTH_MAX,
    onLost: (lostUrl: string): void => {
      if (!fleet.ended.some(({ started }) => started.url === lostUrl))
        faults.push(`a connection to ${lostUrl}, which nobody has ended, was lost`);
    },
  };
  const clients = opened.use(new Clients(CLIENTS, surroundings, fork()));
  const quarrel = opened.use(new Quarrel(QUARRELLERS, surroundings, fork()));
  const scene = opened.move();
  return {
    server,
    database,
    proxy,
    fleet,
    clients,
    quarrel,
    faults,
    [Symbol.asyncDispose]: () => scene.disposeAsync(),
  };
}
