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
import { ratioAtLeast, type Table } from "./results.ts";
import { startDatabases, servePlain, servePlants } from "./servers.ts";
import { CONNECTION_LEVELS, STORED } from "./settings.ts";
import { copyFilledStore, makePath } from "./stores.ts";

/** Our service and the plain server on a database each, and our service on SQLite. */
async function startAll(run: Run, stored = 0): Promise<(load: Load) => Candidate[]> {
  const databases = await startDatabases(run.stack);
  const database = await databases.make(stored);
  const other = await databases.make(stored);
  const server = await servePlants(database.url, databases.options);
  run.stack.defer(server.stop);
  const plain = await servePlain("one-by-one", other.url, databases.options);
  run.stack.defer(plain.stop);
  const path = stored === 0 ? makePath() : copyFilledStore(stored);
  const onSqlite = await startOurs(run, path, { isShared: true });
  const ours = { name: "plantstore on PostgreSQL", role: "ours", server } as const;
  const peer = { name: "one statement a request", role: "peer", server: plain } as const;
  return (load) => [
    loaded({ ...ours, load, countRows: database.countRows }),
    loaded({ ...peer, load, countRows: other.countRows }),
    onSqlite(load, "plantstore on SQLite"),
  ];
}

const profileOn = (stored: number, load: Load) => async (run: Run) => {
  const { make, options } = await startDatabases(run.stack);
  return profile((await make(stored)).url, load, options);
};

const ONE_CONNECTION =
  "Both servers send one statement for a create. Ours also writes an entry of the journal and compares the clock, for which the database takes a third more processor time. A single client pays alone for the queue of the group commit.";
const SHARED_CORES =
  "The load generator and both servers share the cores, so the rate also has what the load generator takes for a request.";
const PAGE =
  "Making rows out of what the database sends takes most of it on both servers. Ours also checks the length of each row in the database, so a page of long names stays within its bound, reads ids as exact integers, and formats the link to the next page.";

const postgresCreate: Scenario = {
  name: "postgres-create",
  title: "Create on PostgreSQL",
  about:
    "POST /plants with ascending ids. The service, the database and the load share all cores. The plain server runs one INSERT a request through a pool of ten connections. CPU is that of the service and of PostgreSQL.",
  measure: async (run) => {
    const makeCandidates = await startAll(run);
    const tables: Table[] = [];
    for (const connections of CONNECTION_LEVELS) {
      const name = nameConnections(connections);
      const candidates = makeCandidates({ kind: "create", connections, isShared: true });
      const plan = { name, unit: "creates a second", candidates };
      tables.push(await measureTable(run.isQuick, plan));
    }
    const targets = tables.map(({ name, rows: [first, second] }) =>
      ratioAtLeast(
        `PostgreSQL, ${name} / one INSERT a request`,
        first,
        second,
        name === nameConnections(1) ? 0.85 : 2.6,
        name === nameConnections(1) ? ONE_CONNECTION : SHARED_CORES,
      ),
    );
    return { tables, targets };
  },
  profile: profileOn(0, { kind: "create", connections: 1, isShared: true }),
};

const postgresRead: Scenario = {
  name: "postgres-read",
  title: "Read from PostgreSQL",
  about:
    "A million plants, 64 connections. The service, the database and the load share all cores. The plain server runs one statement a request through a pool of ten connections.",
  measure: async (run) => {
    const makeCandidates = await startAll(run, STORED);
    const measureKind = (kind: Load["kind"], name: string, unit: string): Promise<Table> => {
      const candidates = makeCandidates({ kind, isShared: true });
      return measureTable(run.isQuick, { name, unit, candidates });
    };
    const plant = await measureKind("get", "one plant", "reads a second");
    const page = await measureKind("list", "a page of 100", "pages a second");
    const [first, second] = page.rows;
    return {
      tables: [plant, page],
      targets: [ratioAtLeast("PostgreSQL, page of 100 / plain server", first, second, 1, PAGE)],
    };
  },
  profile: profileOn(STORED, { kind: "list", isShared: true }),
};

export const postgresScenarios: readonly Scenario[] = [postgresCreate, postgresRead];
