/** A service on a pair of PostgreSQL servers, under load by clients who know what they were told. */

import { Clients } from "../support/clients.ts";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import type { StoredPlant } from "../support/plants.ts";
import { type PairOptions, type PostgresPair, startPair } from "../support/postgres-server.ts";
import { createRandom, type Random } from "../support/random.ts";
import { BATCH_LENGTH_MAX, environment } from "./postgres-scene.ts";

const CLIENTS = 24;

export interface PairScene extends AsyncDisposable {
  readonly pair: PostgresPair;
  readonly service: ServiceProcess;
  readonly clients: Clients;
}

export async function openPair(options: PairOptions, random: Random): Promise<PairScene> {
  await using opened = new AsyncDisposableStack();
  const pair = opened.use(await startPair(options));
  const hosts = [pair.primary, pair.standby].map(({ port }) => `127.0.0.1:${port}`).join();
  const service = opened.use(
    await spawnService({ ...environment, DATABASE_URL: `postgres://postgres@${hosts}/postgres` }),
  );
  const surroundings = { findUrl: () => service.started.url, batchLengthMax: BATCH_LENGTH_MAX };
  const choosing = createRandom(random.below(2 ** 31));
  const clients = opened.use(new Clients(CLIENTS, surroundings, choosing));
  const scene = opened.move();
  return { pair, service, clients, [Symbol.asyncDispose]: () => scene.disposeAsync() };
}

/** After the standby has taken over: all in which it differs from what the clients were told. */
export async function compare({ pair, clients }: PairScene): Promise<string[]> {
  const rows = await pair.standby.run<StoredPlant>("SELECT id, name, tag FROM plants");
  return clients.compare(rows);
}
