/** What is measured, beside what limits it. Each scenario prints its table and tells whether its targets were met. */

import { resolveConfig } from "../src/config.ts";
import { openStore } from "../src/store/open.ts";
import { startPostgres } from "../test/support/postgres-server.ts";
import {
  CONNECTIONS,
  makeStore,
  load,
  runLoop,
  serveLimit,
  serveDatabase,
  servePlants,
  type Server,
  TOKEN,
} from "./harness.ts";
import type { Candidate, Load, Round } from "./harness.ts";
import { measure, ratio, report } from "./report.ts";

const STORED = 1_000_000;
const BULK_ROWS = 300_000;
const RSS_MB_MAX = 64;
const MANY_CONNECTIONS = 256;

/** No two rounds of a run create the same id. */
const firstIdOf = (round: number): number => 10_000_000 + round * 10_000_000;

function candidate(name: string, server: Server, about: Omit<Load, "first" | "stored">): Candidate {
  return {
    name,
    measure: (round) => load(server, { ...about, first: firstIdOf(round), stored: STORED }),
  };
}

async function withServers<Result>(
  starting: readonly Promise<Server>[],
  use: (...servers: Server[]) => Promise<Result>,
): Promise<Result> {
  const servers = await Promise.all(starting);
  try {
    return await use(...servers);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

let filled: string | undefined;

/** A store with a million plants, filled once a run. */
async function filledStore(): Promise<string> {
  if (filled === undefined) {
    filled = makeStore();
    await runLoop("fill", filled, String(STORED));
  }
  return makeStore(filled);
}

const create = { kind: "create", path: "/plants" } as const;
/** Fifty tags at random: every commit touches as many places of the index. */
const tagged = { kind: "create-tagged", path: "/plants" } as const;

async function benchCreate(): Promise<boolean> {
  const measured = await withServers(
    [servePlants(makeStore()), serveLimit("storing-nothing"), serveLimit("bare")],
    (ours, storingNothing, bare) =>
      measure([
        candidate("plantstore", ours, create),
        candidate("the same, storing nothing", storingNothing, create),
        candidate("bare runtime, checking nothing", bare, create),
      ]),
  );
  const [ours, storingNothing] = measured;
  const rssMb = ours?.rssMb ?? Number.NaN;
  return report("create: durable, ascending ids", measured, [
    ratio("durable / storing nothing", ours, storingNothing, 0.9),
    {
      what: "memory of plantstore, MB",
      value: rssMb,
      limit: `≤ ${RSS_MB_MAX}`,
      met: rssMb <= RSS_MB_MAX,
    },
  ]);
}

async function benchTagIndex(): Promise<boolean> {
  const without = makeStore();
  await runLoop("fill", without, "0", "without-tag-index");
  const measured = await withServers(
    [servePlants(makeStore()), servePlants(without)],
    (indexed, bare) =>
      measure([
        candidate("with the index on tags", indexed, tagged),
        candidate("without it", bare, tagged),
      ]),
  );
  return report("create: what the index on tags costs, with 50 tags at random", measured, [
    ratio("with / without", measured[0], measured[1], 0.85),
  ]);
}

async function benchRandom(): Promise<boolean> {
  const measured = await withServers(
    [servePlants(await filledStore()), servePlants(await filledStore())],
    (ascending, random) =>
      measure([
        candidate("ascending ids", ascending, create),
        candidate("random ids", random, { kind: "create-random", path: "/plants" }),
      ]),
  );
  return report(`create: into ${STORED} plants, ascending and random`, measured, [
    ratio("random / ascending", measured[1], measured[0]),
  ]);
}

async function benchGet(): Promise<boolean> {
  const get = { kind: "get", path: "/plants" } as const;
  const measured = await withServers(
    [servePlants(await filledStore()), serveLimit("storing-nothing")],
    (ours, storingNothing) =>
      measure([
        candidate("plantstore", ours, get),
        candidate("the same, without a store", storingNothing, get),
      ]),
  );
  return report(`get: one of ${STORED} plants by id`, measured, [
    ratio("with / without a store", measured[0], measured[1], 0.85),
  ]);
}

async function benchList(): Promise<boolean> {
  const measured = await withServers([servePlants(await filledStore())], (ours) =>
    measure([
      candidate("first page", ours, { kind: "list", path: "/plants?limit=100" }),
      candidate("deep page", ours, {
        kind: "list",
        path: `/plants?limit=100&after=${STORED * 0.9}`,
      }),
      candidate("first page of a tag", ours, {
        kind: "list",
        path: "/plants?limit=100&tag=tag%207",
      }),
    ]),
  );
  return report(`list: pages of 100 out of ${STORED} plants`, measured, [
    ratio("deep / first", measured[1], measured[0], 0.9),
  ]);
}

async function benchBulk(): Promise<boolean> {
  const body = Array.from(
    { length: BULK_ROWS },
    (_, id) => `{"id":${id},"name":"Monstera deliciosa","tag":"tag ${id % 50}"}\n`,
  ).join("");
  const imported = await measure([
    { name: "POST /plants/batch", measure: () => importOnce(body) },
    {
      name: "SQLite's insert loop",
      measure: () => runLoop("insert", makeStore(), String(BULK_ROWS)),
    },
  ]);
  const importMet = report(`import: ${BULK_ROWS} plants, 512 rows a commit`, imported, [
    ratio("batch / bare loop", imported[0], imported[1], 0.4),
  ]);
  const store = await filledStore();
  const exported = await withServers([servePlants(store)], (ours) =>
    measure([
      { name: "GET /plants as NDJSON", measure: () => exportOnce(ours) },
      { name: "SQLite's select loop", measure: () => runLoop("select", store, "0") },
    ]),
  );
  const exportMet = report(`export: ${STORED} plants`, exported, [
    ratio("stream / bare loop", exported[0], exported[1]),
  ]);
  return importMet && exportMet;
}

const authorization = `Bearer ${TOKEN}`;

async function importOnce(body: string): Promise<Round> {
  return withServers([servePlants(makeStore())], async (server) => {
    const startedMs = performance.now();
    const response = await fetch(`${server.url}/plants/batch`, {
      method: "POST",
      headers: { authorization, "content-type": "application/x-ndjson" },
      body,
    });
    const results = await response.text();
    const seconds = (performance.now() - startedMs) / 1000;
    const good = results.match(/"status":200\}/g)?.length ?? 0;
    return { perSecond: BULK_ROWS / seconds, rssMb: server.rssMb(), notOk: BULK_ROWS - good };
  });
}

async function exportOnce(server: Server): Promise<Round> {
  const startedMs = performance.now();
  const response = await fetch(`${server.url}/plants`, {
    headers: { authorization, accept: "application/x-ndjson" },
  });
  let lines = 0;
  for await (const chunk of response.body as ReadableStream<Uint8Array>)
    for (const byte of chunk) if (byte === 10) lines++;
  const seconds = (performance.now() - startedMs) / 1000;
  return { perSecond: lines / seconds, rssMb: server.rssMb(), notOk: lines === STORED ? 0 : 1 };
}

/** Everything on the same cores, as on a small machine: the service, the database and the load. */
async function benchPostgres(): Promise<boolean> {
  await using postgres = await startPostgres();
  const makeDatabase = async (name: string): Promise<string> => {
    await postgres.run(`CREATE DATABASE ${name}`);
    const url = postgres.urlOf(name);
    await (await openStore(url, resolveConfig({}, {}).config)).close();
    return url;
  };
  let allMet = true;
  for (const connections of [CONNECTIONS, MANY_CONNECTIONS]) {
    const about = { ...create, connections, isShared: true };
    const oursUrl = await makeDatabase(`ours_${connections}`);
    const theirsUrl = await makeDatabase(`theirs_${connections}`);
    const measured = await withServers(
      [
        serveDatabase(oursUrl, { isShared: true }),
        serveDatabase(`sqlite:${makeStore()}`, { isShared: true }),
        serveLimit("storing-nothing", { isShared: true }),
        serveLimit("one-by-one", { isShared: true, url: theirsUrl }),
      ],
      (onPostgres, onSqlite, storingNothing, oneByOne) =>
        measure([
          candidate("plantstore on PostgreSQL", onPostgres, about),
          candidate("plantstore on SQLite", onSqlite, about),
          candidate("the same, storing nothing", storingNothing, about),
          candidate("one INSERT per request, pool of 10", oneByOne, about),
        ]),
    );
    const [ours, onSqlite, storingNothing, oneByOne] = measured;
    const least = (target: number): number | undefined =>
      connections === MANY_CONNECTIONS ? target : undefined;
    const isMet = report(`create on PostgreSQL: ${connections} connections`, measured, [
      ratio("PostgreSQL / one INSERT per request", ours, oneByOne, least(2.5)),
      ratio("PostgreSQL / storing nothing", ours, storingNothing, least(0.8)),
      ratio("PostgreSQL / SQLite", ours, onSqlite, least(0.75)),
    ]);
    allMet &&= isMet;
  }
  return allMet;
}

export const scenarios: Readonly<Record<string, () => Promise<boolean>>> = {
  create: benchCreate,
  "tag-index": benchTagIndex,
  random: benchRandom,
  get: benchGet,
  list: benchList,
  bulk: benchBulk,
  postgres: benchPostgres,
};
