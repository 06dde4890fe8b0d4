/** PostgreSQL: the service, the database and the load share all cores, as on a small machine. */

import type { Load } from "./load.ts";
import {
  loaded,
  type Candidate,
  measureTable,
  nameConnections,
  type Run,
  type Scenario,
  startOurs,
} from "./measure.ts";
import { profile } from "./profile.ts";
import { ratioAtLeast, type Table, valueOf } from "./results.ts";
import { startDatabases, servePlain, servePlants, type Server } from "./servers.ts";
import { CONNECTIONS, MANY_CONNECTIONS, STORED } from "./settings.ts";
import { copyFilledStore, makePath } from "./stores.ts";

/** Our service with and without a journal and the plain server, each on its own database, and our service on SQLite. */
async function startAll(run: Run, stored = 0): Promise<(load: Load) => Candidate[]> {
  const { make, options } = await startDatabases(run.stack);
  const startOn = async (name: string, serve: (url: string) => Promise<Server>) => {
    const { url, countRows } = await make(stored);
    const server = await serve(url);
    run.stack.defer(server.stop);
    const role = name.startsWith("plantstore") ? "ours" : "peer";
    return (load: Load) => loaded({ name, role, server, load, countRows });
  };
  const bare = { ...options, env: { PLANTSTORE_CHANGES_DAYS: "0" } };
  const started = [
    await startOn("plantstore on PostgreSQL", (url) => servePlants(url, options)),
    await startOn("one statement a request", (url) => servePlain("one-by-one", url, options)),
  ];
  if (stored === 0)
    started.push(await startOn("plantstore, no journal", (url) => servePlants(url, bare)));
  const path = stored === 0 ? makePath() : copyFilledStore(stored);
  const onSqlite = await startOurs(run, path, { isShared: true });
  return (load) => [...started.map((on) => on(load)), onSqlite(load, "plantstore on SQLite")];
}

const explainOne = (withoutJournal: number): string =>
  `Both servers send one statement for each create, and wait for one sync. Ours also checks its deadline and that its commit will be synced, and writes a journal entry; without the journal the ratio is ${withoutJournal.toFixed(2)}. The rest is the checks of a request, the queue and the pool. Many clients share these costs; a single one pays for them alone.`;

const postgresCreate: Scenario = {
  name: "postgres-create",
  title: "Create on PostgreSQL",
  about:
    "POST /plants with ascending ids. The service, the database and the load share all cores. The plain server runs one INSERT per request through a pool of ten connections. CPU is that of the service and of PostgreSQL.",
  user: "clients that create plants, on PostgreSQL",
  measure: async (run) => {
    const makeCandidates = await startAll(run);
    const measureLevel = (connections: number): Promise<Table> => {
      const candidates = makeCandidates({ kind: "create", connections, isShared: true });
      const plan = { name: nameConnections(connections), unit: "creates a second", candidates };
      return measureTable(run.isQuick, plan);
    };
    // First, because a lone client sends too few requests to warm the servers up.
    const usual = await measureLevel(CONNECTIONS);
    const lone = await measureLevel(1);
    const many = await measureLevel(MANY_CONNECTIONS);
    const [ours, plain, unjournaled] = lone.rows;
    const reason = explainOne(valueOf(unjournaled) / valueOf(plain));
    const [oursOfMany, plainOfMany] = usual.rows;
    const targets = [
      ratioAtLeast(`PostgreSQL, ${lone.name} / one INSERT a request`, ours, plain, 0.85, reason),
      ratioAtLeast(
        `PostgreSQL, ${usual.name} / one INSERT a request`,
        oursOfMany,
        plainOfMany,
        2.6,
        "The service, PostgreSQL and the load share all cores, so the load limits both servers.",
      ),
    ];
    return { tables: [lone, usual, many], targets };
  },
  profile: async (run) => {
    const { make, options } = await startDatabases(run.stack);
    return profile(
      (await make(0)).url,
      { kind: "create", connections: 1, isShared: true },
      options,
    );
  },
};

const postgresRead: Scenario = {
  name: "postgres-read",
  title: "Read from PostgreSQL",
  about:
    "A million plants, 64 connections. The service, the database and the load share all cores. The plain server runs one statement per request through a pool of ten connections.",
  measure: async (run) => {
    const makeCandidates = await startAll(run, STORED);
    const measureKind = (kind: Load["kind"], name: string, unit: string): Promise<Table> => {
      const candidates = makeCandidates({ kind, isShared: true });
      return measureTable(run.isQuick, { name, unit, candidates });
    };
    const plant = await measureKind("get", "one plant", "reads a second");
    const page = await measureKind("list", "a page of 100", "pages a second");
    return { tables: [plant, page], targets: [] };
  },
};

export const postgresScenarios: readonly Scenario[] = [postgresCreate, postgresRead];
