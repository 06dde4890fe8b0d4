/**
 * Reference servers: plain-server.ts bare|group-commit|store-thread|one-by-one
 *
 * bare compares the token, parses the JSON, answers JSON and stores nothing. Given a file, it looks plants up.
 * group-commit is the bare runtime with SQLite on the same thread, and our tables: the index on tags, and a journal block
 * for each commit. At the end of each tick it commits the creates that have arrived, and waits for no others.
 * store-thread does the same, but commits on a thread of its own, one group at a time.
 * one-by-one is a typical service on PostgreSQL: one statement per request, a pool of ten connections.
 */

import { Database } from "bun:sqlite";
import { SQL } from "bun";
import { TOKEN } from "./settings.ts";

interface Plant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

const authorization = `Bearer ${TOKEN}`;
const refuse = (): Response => Response.json({ error: 401, message: "no token" }, { status: 401 });

const isAllowed = (request: Request): boolean =>
  request.headers.get("authorization") === authorization;

function serveBare(): string {
  const path = process.env["DATABASE_URL"];
  const find = path && new Database(path).query("SELECT name, tag FROM plants WHERE id = ?");
  const plant = { name: "Monstera deliciosa", tag: "tropical" };
  const findPlant = (id: string): unknown => (find ? find.get(Number(id)) : plant);
  Bun.serve({
    port: Number(process.env["PORT"]),
    hostname: "127.0.0.1",
    development: false,
    routes: {
      "/plants": async (request) => {
        if (!isAllowed(request)) return refuse();
        const { name, tag } = (await request.json()) as Plant;
        return Response.json({ name, tag });
      },
      "/plants/:id": (request) =>
        isAllowed(request) ? Response.json(findPlant(request.params.id)) : refuse(),
    },
  });
  return "stores nothing";
}

const openStore = (): Database => new Database(process.env["DATABASE_URL"]);

/** Returns a function that stores plants in one transaction. */
function openCommit(): (plants: readonly Plant[]) => void {
  const db = openStore();
  db.run("PRAGMA journal_mode = WAL");
  db.run("PRAGMA synchronous = FULL");
  const insert = db.query("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
  const journal = db.query(
    "INSERT INTO changes (last, first, at_ms, entries) SELECT max(last) + ?1, max(last) + 1, ?2, ?3 FROM changes",
  );
  return db.transaction((plants: readonly Plant[]) => {
    for (const { id, name, tag } of plants) insert.run(id, name, tag ?? null);
    journal.run(plants.length, Date.now(), JSON.stringify(plants));
  }).immediate;
}

/** `begin` commits a group, and calls back when it is stored. Creates that arrive meanwhile form the next group. */
function serveStoring(begin: (plants: readonly Plant[], stored: () => void) => void): string {
  const find = openStore().query("SELECT name, tag FROM plants WHERE id = ?");
  let queued: { readonly plant: Plant; readonly settle: () => void }[] = [];
  let isBusy = false;
  const flush = (): void => {
    if (isBusy || queued.length === 0) return;
    const group = queued;
    queued = [];
    isBusy = true;
    begin(
      group.map(({ plant }) => plant),
      () => {
        isBusy = false;
        for (const { settle } of group) settle();
        flush();
      },
    );
  };
  const store = (plant: Plant): Promise<void> =>
    new Promise((settle) => {
      if (queued.push({ plant, settle }) === 1) setImmediate(flush);
    });
  Bun.serve({
    port: Number(process.env["PORT"]),
    hostname: "127.0.0.1",
    development: false,
    routes: {
      "/plants": async (request) => {
        if (!isAllowed(request)) return refuse();
        const plant = (await request.json()) as Plant;
        await store(plant);
        return Response.json({ name: plant.name, tag: plant.tag });
      },
      "/plants/:id": (request) => {
        if (!isAllowed(request)) return refuse();
        const plant = find.get(Number(request.params.id));
        return plant === null ? Response.json({}, { status: 404 }) : Response.json(plant);
      },
    },
  });
  return "WAL, synchronous=FULL";
}

function serveGroupCommit(): string {
  const commit = openCommit();
  return serveStoring((plants, stored) => {
    commit(plants);
    stored();
  });
}

function serveStoreThread(): string {
  const worker = new Worker(import.meta.path);
  return serveStoring((plants, stored) => {
    worker.addEventListener("message", stored, { once: true });
    worker.postMessage(plants);
  });
}

/** On the store thread. */
function commitMessages(): void {
  const commit = openCommit();
  addEventListener("message", ({ data }) => {
    commit(data as readonly Plant[]);
    postMessage("stored");
  });
}

async function serveOneByOne(): Promise<string> {
  const sql = new SQL(process.env["DATABASE_URL"] ?? "", { max: 10 });
  Bun.serve({
    port: Number(process.env["PORT"]),
    hostname: "127.0.0.1",
    development: false,
    routes: {
      "/plants": async (request) => {
        if (!isAllowed(request)) return refuse();
        if (request.method === "GET")
          return Response.json(await sql`SELECT id, name, tag FROM plants ORDER BY id LIMIT 100`);
        const { id, name, tag } = (await request.json()) as Plant;
        await sql`INSERT INTO plants (id, name, tag) VALUES (${id}, ${name}, ${tag ?? null})
          ON CONFLICT (id) DO NOTHING`;
        return Response.json({ name, tag });
      },
      "/plants/:id": async (request) => {
        if (!isAllowed(request)) return refuse();
        const { id } = request.params;
        const [plant] = (await sql`SELECT name, tag FROM plants WHERE id = ${id}`) as Plant[];
        return plant === undefined ? Response.json({}, { status: 404 }) : Response.json(plant);
      },
    },
  });
  const [row] = (await sql`SHOW synchronous_commit`) as { synchronous_commit: string }[];
  return `synchronous_commit=${row?.synchronous_commit ?? "unknown"}`;
}

const servers = {
  bare: serveBare,
  "group-commit": serveGroupCommit,
  "store-thread": serveStoreThread,
  "one-by-one": serveOneByOne,
};

async function serve(): Promise<void> {
  const start = servers[process.argv[2] as keyof typeof servers];
  if (start === undefined)
    throw new Error(`usage: plain-server.ts ${Object.keys(servers).join("|")}`);
  process.stdout.write(`${JSON.stringify({ durability: await start() })}\n`);
}

if (Bun.isMainThread) void serve();
else commitMessages();
