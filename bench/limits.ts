/** What our figures are held against: the same service storing nothing, and the bare runtime. */

import { SQL } from "bun";
import { Authenticator } from "../src/auth/authenticate.ts";
import { resolveConfig } from "../src/config.ts";
import { Refusal } from "../src/domain/errors.ts";
import type { Store } from "../src/domain/store.ts";
import { startServer } from "../src/http/server.ts";
import { createLog } from "../src/observe/log.ts";

const storingNothing: Store = {
  description: { engine: "none", location: "nowhere", durability: "none" },
  createPlant: () => Promise.resolve("created"),
  findPlant: () => Promise.resolve({ id: 1n, name: "Monstera deliciosa", tag: "tropical" }),
  listPlants: () => Promise.resolve({ plants: [], next: undefined }),
  listTags: () => Promise.resolve({ tags: [], next: undefined }),
  countPlants: () => Promise.resolve(0n),
  replacePlant: () => Promise.resolve(),
  removePlant: () => Promise.resolve(),
  writesWaiting: 0,
  measureBytes: () => Promise.resolve(undefined),
  probe: () => Promise.resolve(),
  close: () => Promise.resolve(),
  findToken: () => Promise.resolve(undefined),
  listTokens: () => Promise.resolve([]),
  createToken: () => Promise.resolve(false),
  createFirstToken: () => Promise.resolve(false),
  revokeToken: () => Promise.reject(new Refusal("internal")),
  touchTokens: () => Promise.resolve(),
  adoptTokens: () => Promise.resolve([]),
};

function startOn(store: Store): void {
  const { config } = resolveConfig({}, process.env);
  const authenticator = new Authenticator(store, config.token);
  const log = createLog("warn", () => undefined);
  startServer({ config, store, authenticator, log });
}

function startStoringNothing(): string {
  startOn(storingNothing);
  return "stores nothing";
}

/** As it is usually written: each request for itself, through a pool of ten connections. */
async function startOneByOne(): Promise<string> {
  const sql = new SQL(process.env["DATABASE_URL"] ?? "", { max: 10, bigint: true });
  startOn({
    ...storingNothing,
    createPlant: async ({ id, name, tag }) => {
      const rows =
        await sql`INSERT INTO plants (id, name, tag) VALUES (${id}, ${name}, ${tag ?? null})
        ON CONFLICT (id) DO NOTHING RETURNING id`;
      return rows.length === 1 ? "created" : "replayed";
    },
    findPlant: async (id) => {
      const [row] = (await sql`SELECT name, tag FROM plants WHERE id = ${id}`) as PlantRow[];
      return row === undefined ? undefined : { id, name: row.name, tag: row.tag ?? undefined };
    },
  });
  const [row] = (await sql`SHOW synchronous_commit`) as { synchronous_commit: string }[];
  return `PostgreSQL, synchronous_commit=${row?.synchronous_commit ?? "unknown"}`;
}

interface PlantRow {
  readonly name: string;
  readonly tag: string | null;
}

/** Parses and answers, and checks nothing at all. */
function startBareRuntime(): string {
  Bun.serve({
    port: Number(process.env["PORT"]),
    hostname: "127.0.0.1",
    routes: {
      "/plants": async (request: Request) => {
        const { name, tag } = (await request.json()) as { name: string; tag?: string };
        return Response.json({ name, tag });
      },
    },
  });
  return "stores nothing";
}

const start = {
  "storing-nothing": startStoringNothing,
  "one-by-one": startOneByOne,
  bare: startBareRuntime,
}[process.argv[2] ?? ""];
if (start === undefined) throw new Error("usage: limits.ts storing-nothing|one-by-one|bare");
process.stdout.write(`${JSON.stringify({ durability: await start() })}\n`);
