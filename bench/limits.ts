/** What our figures are held against: the same service storing nothing, and the bare runtime. */

import { SQL } from "bun";
import { Authenticator } from "../src/auth/authenticate.ts";
import { resolveConfig } from "../src/config.ts";
import { Refusal } from "../src/domain/error.ts";
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

function startOn(store: Store): string {
  const { config } = resolveConfig({ port: "0" }, process.env);
  const authenticator = new Authenticator(store, config.token);
  const log = createLog("warn", () => undefined);
  return startServer({ config, store, authenticator, log }).url;
}

const startStoringNothing = (): string => startOn(storingNothing);

/** As it is usually written: each request for itself, through a pool of ten connections. */
function startInsertingOneByOne(): string {
  const sql = new SQL(process.env["DATABASE_URL"] ?? "", { max: 10, bigint: true });
  return startOn({
    ...storingNothing,
    createPlant: async ({ id, name, tag }) => {
      const rows =
        await sql`INSERT INTO plants (id, name, tag) VALUES (${id}, ${name}, ${tag ?? null})
        ON CONFLICT (id) DO NOTHING RETURNING id`;
      return rows.length === 1 ? "created" : "replayed";
    },
  });
}

/** Parses and answers, and checks nothing at all. */
function startBareRuntime(): string {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    routes: {
      "/plants": async (request: Request) => {
        const { name, tag } = (await request.json()) as { name: string; tag?: string };
        return Response.json({ name, tag });
      },
    },
  });
  return `http://127.0.0.1:${server.port}`;
}

const start = {
  "storing-nothing": startStoringNothing,
  "one-by-one": startInsertingOneByOne,
  bare: startBareRuntime,
}[process.argv[2] ?? ""];
if (start === undefined) throw new Error("usage: limits.ts storing-nothing|one-by-one|bare");
process.stdout.write(`${JSON.stringify({ url: start() })}\n`);
