/** Every scenario, in the order in which they run and are shown. */

import { exportFrom, importInto, type Load, makeLines } from "./load.ts";
import {
  BARE,
  type Candidate,
  checkStored,
  measureTable,
  nameConnections,
  OURS,
  type Run,
  type Scenario,
  startBare,
  startBaseline,
  startOurs,
  startPeer,
  startPeers,
  startStoring,
  STORE_THREAD,
} from "./measure.ts";
import { BATCH_LENGTH, importIntoPocketBase, POCKETBASE, servePocketBase } from "./pocketbase.ts";
import { profile } from "./profile.ts";
import {
  atMost,
  bestPeer,
  ratioAtLeast,
  type Row,
  rowOf,
  type Table,
  type Target,
  valueOf,
} from "./results.ts";
import { measureRestores } from "./restores.ts";
import { slowDisk } from "./scenarios-disk.ts";
import { compress } from "./scenarios-link.ts";
import { postgresScenarios } from "./scenarios-postgres.ts";
import { change } from "./scenarios-change.ts";
import { jwt, start, traces, workers } from "./scenarios-process.ts";
import { FASTIFY, servePlants } from "./servers.ts";
import {
  BULK_ROWS,
  CONNECTIONS,
  FEW_ROUNDS,
  MANY_CONNECTIONS,
  READERS,
  ROUNDS,
  STORED,
  STORED_MANY,
} from "./settings.ts";
import {
  copyFilledStore,
  countRows,
  fillStore,
  makePath,
  makeStore,
  runSqliteAlone,
  withDatabase,
} from "./stores.ts";

const atUsual = nameConnections(CONNECTIONS);
const durability = "WAL, synchronous=FULL";

/** Why a target may be missed. */
const reasons = {
  storing:
    "Both commit groups on a second thread, with the same tables. The rest is the checks of a request, and the queue.",
  create:
    "The bare runtime stores nothing, and makes few of our checks. The rows with a group commit show what storing costs, on one thread and on two. The second thread keeps reads free of slow syncs (see slow-disk).",
  shared:
    "The load and both threads of the service share all cores, and each group wakes one thread and then the other.",
  get: "The bare runtime checks neither the URL nor most headers, and sends no entity tag.",
  single:
    "Both servers wake a second thread for each create, and are woken by it; the row with one thread shows what that costs. Their system calls are the same, but for our look at the file before each commit. The rest is the checks of a request, the queue and the checks of a commit, on CPU caches that the other thread and the sync have evicted. Many clients share most of it.",
  pages:
    "Fastify writes one page for each create. Ours writes three (the plant, the index on tags, the journal), on a second thread.",
  readers:
    "Every event is copied to every reader, and these copies are most of the bytes that the service sends. They also take time from the store thread, which is on the same core here.",
  peer: "Express and Fastify sync each create alone. The less a sync costs, the less a group commit saves.",
  memory:
    "It is the runtime's executable, live heap and garbage. On a machine with more than 16 GB the GC lets the heap grow to four times the live heap.",
  deep: "The plants of the deep page have longer ids and names, so it has more bytes.",
  size: "The B-trees are deeper.",
  journal:
    "A commit also writes the page of its journal block, with the text of each plant once more.",
  backup:
    "A backup thread reads the store and writes a copy or the change log, on the core that also answers.",
  restore:
    "A restore also checks every piece, compares each plant with what its change expects, and verifies the store.",
};

const create: Scenario = {
  name: "create",
  title: "Create a plant",
  about:
    "POST /plants, ascending ids, into an empty store. Express and Fastify commit each plant separately, as is usual. PocketBase has its own settings and a text as id, and its user is a superuser. The bare runtime compares the token, parses the JSON, answers JSON, and stores nothing, or stores in our tables with a group commit, on the same thread or on another.",
  user: "clients that create plants, a lone one or many",
  isQuick: true,
  measure: async (run) => {
    const ours = await startOurs(run, makePath());
    const bare = await startBare(run);
    const storing = await startStoring(run);
    const makePeers = await startPeers(run);
    const measureLevel = (connections: number): Promise<Table> => {
      const load: Load = { kind: "create", connections };
      return measureTable(run.isQuick, {
        name: nameConnections(connections),
        unit: "creates a second",
        rounds: connections <= CONNECTIONS ? ROUNDS : FEW_ROUNDS,
        candidates: [ours(load), ...makePeers(load), ...storing(load), bare(load)],
      });
    };
    // The level with most targets runs first, while the stores are small.
    const usual = await measureLevel(CONNECTIONS);
    const single = await measureLevel(1);
    const many = run.isQuick ? [] : [await measureLevel(MANY_CONNECTIONS)];
    const beside = run.baseline === undefined ? [] : await besideBaseline(run, run.baseline);
    return {
      tables: [single, usual, ...many, ...beside],
      targets: [
        ...singleTargets(single),
        ...createTargets(usual),
        ...beside.slice(0, 1).map(baselineTarget),
      ],
    };
  },
  profile: () => profile(`sqlite:${makePath()}`, { kind: "create" }),
};

/** Neither build is pinned to a core: the service's threads and the load share all cores. */
async function besideBaseline(run: Run, folder: string): Promise<Table[]> {
  const options = { isShared: true };
  const ours = await startOurs(run, makePath(), options);
  const baseline = await startBaseline(run, folder, options);
  const tables: Table[] = [];
  for (const connections of [CONNECTIONS, 1]) {
    const load: Load = { kind: "create", connections, isShared: true };
    const name = `${nameConnections(connections)}, on all cores beside the load`;
    const candidates = [ours(load), baseline(load)];
    tables.push(await measureTable(run.isQuick, { name, unit: "creates a second", candidates }));
  }
  return tables;
}

const baselineTarget = ({ rows: [ours, baseline] }: Table): Target =>
  ratioAtLeast("create, on all cores / baseline", ours, baseline, 1.1, reasons.shared);

const p99Of = (row: Row | undefined): number => row?.figures?.p99Ms ?? Number.NaN;

function singleTargets(table: Table): Target[] {
  const ours = rowOf(table, OURS);
  const fastify = rowOf(table, FASTIFY);
  const storing = rowOf(table, STORE_THREAD);
  const what = `create, ${nameConnections(1)}`;
  return [
    ratioAtLeast(`${what} / ${STORE_THREAD}`, ours, storing, 0.85, reasons.single),
    ratioAtLeast(`${what} / ${FASTIFY}`, ours, fastify, 0.85, reasons.pages),
    atMost(`${what}: p99 / p99 of ${FASTIFY}`, p99Of(ours) / p99Of(fastify), 2, reasons.pages),
  ];
}

function createTargets(table: Table): Target[] {
  const ours = rowOf(table, OURS);
  const peer = bestPeer(table);
  const bare = rowOf(table, BARE);
  const memoryMb = ours?.figures?.rssMb ?? Number.NaN;
  return [
    ratioAtLeast(
      `create / ${STORE_THREAD}`,
      ours,
      rowOf(table, STORE_THREAD),
      0.85,
      reasons.storing,
    ),
    ratioAtLeast(`create / ${BARE}`, ours, bare, 0.62, reasons.create),
    ratioAtLeast(`create / best peer (${peer?.name ?? "none"})`, ours, peer, 7.5, reasons.peer),
    atMost("create: memory, MB", memoryMb, 90, reasons.memory),
  ];
}

const LOOKING = "bare runtime, with the look-up";

const get: Scenario = {
  name: "get",
  title: "Read a plant",
  about: `GET /plants/{id}, one of a million plants at random, ${atUsual}. The bare runtime compares the token and answers a fixed plant, or with the look-up the stored one.`,
  user: "clients that look plants up, many at once",
  isQuick: true,
  measure: async (run) => {
    const load: Load = { kind: "get" };
    const ours = await startOurs(run, copyFilledStore(STORED));
    const makePeers = await startPeers(run, { isFilled: true });
    const bare = await startBare(run);
    const looking = await startBare(run, copyFilledStore(STORED));
    const table = await measureTable(run.isQuick, {
      name: atUsual,
      unit: "reads a second",
      candidates: [ours(load), ...makePeers(load), bare(load), looking(load, LOOKING)],
    });
    const [read] = table.rows;
    const other = rowOf(table, LOOKING);
    const target = ratioAtLeast(`get / ${LOOKING}`, read, other, 0.94, reasons.get);
    return { tables: [table], targets: [target] };
  },
  profile: () => profile(`sqlite:${copyFilledStore(STORED)}`, { kind: "get" }),
};

const DEEP_PAGE = "plantstore, deep page";

const list: Scenario = {
  name: "list",
  title: "List plants",
  about: `The first page of 100 out of a million plants, unless named otherwise, ${atUsual}. PocketBase is asked not to count all plants with each page, as none of the others does.`,
  user: "clients that page through a large store",
  isQuick: true,
  measure: async (run) => {
    const load: Load = { kind: "list" };
    const ours = await startOurs(run, copyFilledStore(STORED));
    const makePeers = await startPeers(run, { isFilled: true });
    const table = await measureTable(run.isQuick, {
      name: atUsual,
      unit: "pages a second",
      candidates: [
        ours(load),
        ours({ ...load, listPath: `/plants?limit=100&after=${STORED * 0.9}` }, DEEP_PAGE),
        ours({ ...load, listPath: "/plants?limit=100&tag=tag%207" }, "plantstore, page of a tag"),
        ...makePeers(load),
      ],
    });
    const first = rowOf(table, OURS);
    const deep = rowOf(table, DEEP_PAGE);
    const target = ratioAtLeast("deep page / first page", deep, first, 0.9, reasons.deep);
    return { tables: [table], targets: [target] };
  },
};

type Environment = Readonly<Record<string, string>>;

/** Creates at 64 connections: the same service on different stores, or with different settings. */
const compareStores =
  (
    makeStores: () => readonly (readonly [
      name: string,
      path: string,
      kind: Load["kind"],
      env?: Environment,
      readers?: number,
    ])[],
    ...targets: readonly ((table: Table) => Target)[]
  ): Scenario["measure"] =>
  async (run) => {
    const candidates: Candidate[] = [];
    for (const [name, path, kind, env = {}, readers = 0] of makeStores())
      candidates.push((await startOurs(run, path, { env }))({ kind, readers }, name));
    const plan = { name: atUsual, unit: "creates a second", candidates };
    const table = await measureTable(run.isQuick, plan);
    return { tables: [table], targets: targets.map((judge) => judge(table)) };
  };

const size: Scenario = {
  name: "size",
  title: "Create in a large store",
  about: "POST /plants with ascending ids, 64 connections.",
  user: "stores that grow",
  measure: compareStores(
    () => [
      ["0 plants before", makePath(), "create"],
      ["1 million plants before", copyFilledStore(STORED), "create"],
      ["10 million plants before", fillStore(STORED_MANY), "create"],
    ],
    ({ rows: [empty, , huge] }) =>
      ratioAtLeast("create: 10 million / empty", huge, empty, 0.9, reasons.size),
  ),
};

const tagIndex: Scenario = {
  name: "tag-index",
  title: "The cost of the index on tags",
  about:
    "POST /plants with one of fifty tags at random, 64 connections. Every commit touches many pages of the index.",
  measure: compareStores(() => {
    const path = makeStore();
    withDatabase(path, (db) => db.run("DROP INDEX plants_tag"));
    return [
      ["with the index", makePath(), "create-tagged"],
      ["without the index", path, "create-tagged"],
    ];
  }),
};

const random: Scenario = {
  name: "random",
  title: "Create with random ids",
  about:
    "POST /plants into a million plants, 64 connections. Ascending ids fill one page of the table after another. Each random id changes its own page, which SQLite reads, writes to the WAL in full (4 kB for one plant), and later checkpoints.",
  measure: compareStores(() => [
    ["ascending ids", copyFilledStore(STORED), "create"],
    ["random ids", copyFilledStore(STORED), "create-random"],
  ]),
};

/** One request with many plants. */
const measureBulk = ({ isQuick }: Run, candidates: readonly Candidate[]): Promise<Table> =>
  measureTable(isQuick, { name: "one request", unit: "plants a second", candidates });

const importing = (name: string, env: Environment = {}, query = ""): Candidate => ({
  name,
  role: "ours",
  durability,
  measure: async () => {
    const path = makePath();
    const server = await servePlants(`sqlite:${path}`, { env });
    try {
      // The first import is the warm-up.
      await importInto(server, makeLines(), query);
      const sample = await importInto(server, makeLines(BULK_ROWS), query);
      // Plus the create of the start-up check.
      checkStored(2 * BULK_ROWS + 1, countRows(path), 0);
      return sample;
    } finally {
      await server.stop();
    }
  },
});

const PEER_ROWS = BULK_ROWS / 10;

const serveEmptyPocketBase = () => servePocketBase(0);

const importingIntoPocketBase = async (run: Run): Promise<Candidate> => {
  let imported = 0;
  const make = await startPeer(
    run,
    POCKETBASE,
    serveEmptyPocketBase,
    ({ server, countRows: count }) => ({
      name: POCKETBASE,
      role: "peer",
      durability: server.durability,
      measure: async () => {
        const sample = await importIntoPocketBase(server, imported, PEER_ROWS);
        imported += PEER_ROWS;
        // Plus the create of the start-up check.
        checkStored(imported + 1, count(), 0);
        return sample;
      },
    }),
  );
  return make({ kind: "create" });
};

const bulkImport: Scenario = {
  name: "import",
  title: "Import plants",
  about: `POST /plants/batch with ${BULK_ROWS.toLocaleString("en")} lines, after a warm-up of as many. PocketBase gets ${PEER_ROWS.toLocaleString("en")} plants by its batch API, ${BATCH_LENGTH.toLocaleString("en")} in each request and transaction. SQLite alone runs the same INSERT as ours in a loop, with the same index, into an empty store; it neither receives nor parses lines, answers none of them, and writes no journal.`,
  isQuick: true,
  measure: async (run) => {
    const table = await measureBulk(run, [
      importing(OURS),
      ...(run.isQuick ? [] : [await importingIntoPocketBase(run)]),
      {
        name: "SQLite alone, 512 rows a commit",
        role: "limit",
        durability,
        measure: () => runSqliteAlone("insert", makeStore(), BULK_ROWS),
      },
    ]);
    return { tables: [table], targets: [] };
  },
};

const journal: Scenario = {
  name: "journal",
  title: "The cost of the journal of changes",
  about: `POST /plants at 64 connections, and POST /plants/batch with ${BULK_ROWS.toLocaleString("en")} lines, with the journal and with PLANTSTORE_CHANGES_DAYS=0. A named batch can be undone as a whole.`,
  user: "everyone: the journal is on by default",
  measure: async (run) => {
    const [kept, none] = ["with the journal", "without the journal"] as const;
    const env = { PLANTSTORE_CHANGES_DAYS: "0" };
    const creates = await compareStores(
      () => [
        [kept, makePath(), "create"],
        [none, makePath(), "create", env],
      ],
      ({ rows: [first, second] }) =>
        ratioAtLeast("create: with / without journal", first, second, 0.9, reasons.journal),
    )(run);
    const candidates = [
      importing(kept),
      importing(none, env),
      importing("with the journal, named", {}, "?batch=spring.csv%202026-04-01"),
    ];
    const imports = await measureBulk(run, candidates);
    return { tables: [...creates.tables, imports], targets: creates.targets };
  },
};

const readers: Scenario = {
  name: "readers",
  title: "Create while clients follow the changes",
  about: `POST /plants into an empty store, ${atUsual}, while clients read GET /changes as events.`,
  user: "clients that create plants while others follow them live",
  measure: compareStores(
    () => [
      ["without readers", makePath(), "create"],
      [`${READERS} readers`, makePath(), "create", {}, READERS],
    ],
    ({ rows: [none, many] }) =>
      ratioAtLeast(`create: ${READERS} readers / none`, many, none, 0.85, reasons.readers),
  ),
};

const backUpEvery = (interval: string): Environment => ({
  PLANTSTORE_BACKUP_TO: makePath("backups"),
  PLANTSTORE_BACKUP_EVERY: interval,
});

const backup: Scenario = {
  name: "backup",
  title: "Create while backups are made, and restore",
  about:
    "POST /plants into a million plants, 64 connections: without backups, with a copy and the change log that follows it, and with one copy after the other. Then plantstore restore, beside the least that it can do: its copy unpacked, and the changes behind it imported. RSS is the peak of the command.",
  user: "clients that create plants while backups are made, and operators who restore",
  measure: async (run) => {
    const creates = await compareStores(
      () => [
        ["without backups", copyFilledStore(STORED), "create"],
        ["with a change log", copyFilledStore(STORED), "create", backUpEvery("1h")],
        ["with a backup every second", copyFilledStore(STORED), "create", backUpEvery("1s")],
      ],
      ({ rows: [none, , copies] }) =>
        atMost(
          "create: p99 with / without backups",
          p99Of(copies) / p99Of(none),
          3,
          reasons.backup,
        ),
      ({ rows: [none, log] }) =>
        ratioAtLeast("create: with / without a change log", log, none, 0.9, reasons.backup),
    )(run);
    const restores = await measureRestores(run);
    const [restored, plain] = restores.rows;
    const ratio = valueOf(restored) / valueOf(plain);
    const what = "restore / unpacking the copy and importing the changes, seconds";
    const target = atMost(what, ratio, 2, reasons.restore);
    return { tables: [...creates.tables, restores], targets: [...creates.targets, target] };
  },
};

const bulkExport: Scenario = {
  name: "export",
  title: "Export plants",
  about:
    "GET /plants as NDJSON: a million plants in one stream. SQLite alone selects all rows, and neither formats nor sends them.",
  isQuick: true,
  measure: async (run) => {
    const path = copyFilledStore(STORED);
    const server = await servePlants(`sqlite:${path}`);
    run.stack.defer(server.stop);
    const table = await measureBulk(run, [
      { name: OURS, role: "ours", measure: () => exportFrom(server, STORED + 1) },
      {
        name: "SQLite alone, all rows",
        role: "limit",
        measure: () => runSqliteAlone("select", path),
      },
    ]);
    return { tables: [table], targets: [] };
  },
};

export const scenarios: readonly Scenario[] = [
  create,
  get,
  list,
  bulkImport,
  change,
  bulkExport,
  random,
  size,
  tagIndex,
  journal,
  readers,
  backup,
  slowDisk,
  ...postgresScenarios,
  workers,
  jwt,
  traces,
  compress,
  start,
];
