/** Starts the measured servers, waits for their first correct answer, and stops them. */

import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { findFreePort } from "../test/support/postgres-files.ts";
import { startPostgres } from "../test/support/postgres-server.ts";
import { readRssMb } from "./processes.ts";
import { ANSWER_SECONDS_MAX, SERVER_CORE, TOKEN } from "./settings.ts";
import { makePath, makeSchema, plantstore } from "./stores.ts";

/** How a server is asked for plants. */
export interface Api {
  /** The path of the plants. */
  readonly plants: string;
  /** The first page of 100. */
  readonly page: string;
  readonly token: string;
  readonly isIdText?: boolean;
}

const ownApi: Api = { plants: "/plants", page: "/plants?limit=100", token: TOKEN };

export interface Server {
  readonly url: string;
  readonly api: Api;
  /** From the start of the process to its first correct answer to a create. */
  readonly startMs: number;
  /** The server and its database. */
  readonly pids: readonly number[];
  readonly rssMb: (kind?: "RssFile") => number;
  readonly durability: string;
  readonly stop: () => Promise<void>;
}

interface ServerOptions {
  readonly command: readonly string[];
  /** PORT is added. */
  readonly env?: Readonly<Record<string, string>>;
  /** The server, the database and the load share all cores. Otherwise the server has its own core. */
  readonly isShared?: boolean;
  readonly databasePid?: number;
  /** If its API is not that of the plant store. */
  readonly signIn?: (url: string) => Promise<Api>;
  /** If it does not print its durability. */
  readonly durability?: string;
}

const START_MS_MAX = 60_000;
export const plant = { name: "Monstera deliciosa", tag: "tropical" } as const;
export const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };

const running = new Set<Bun.Subprocess>();
process.on("exit", () => {
  for (const child of running) child.kill();
});

/** Resolves when the server has answered a create correctly. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { command, env = {}, isShared = false, databasePid, signIn } = options;
  const port = findFreePort();
  const outputPath = makePath("output.txt");
  const errorsPath = makePath("errors.txt");
  const startedMs = performance.now();
  const child = Bun.spawn([...(isShared ? [] : ["taskset", "-c", SERVER_CORE]), ...command], {
    env: { ...process.env, ...env, PORT: String(port) },
    stdout: Bun.file(outputPath),
    stderr: Bun.file(errorsPath),
  });
  running.add(child);
  const url = `http://127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    child.kill();
    await child.exited;
    running.delete(child);
  };
  try {
    const api = await answerCreate(url, child, signIn);
    const startMs = performance.now() - startedMs;
    return {
      url,
      api,
      startMs,
      pids: [child.pid, databasePid ?? []].flat(),
      rssMb: (kind) => readRssMb([child.pid], kind),
      durability: options.durability ?? (await readDurability(outputPath)),
      stop,
    };
  } catch (error) {
    await stop();
    const last = readFileSync(errorsPath, "utf8").trim().split("\n").slice(-5).join(" ");
    throw new Error(`${(error as Error).message}${last === "" ? "" : `: ${last}`}`, {
      cause: error,
    });
  }
}

let trials = 0;

async function answerCreate(
  url: string,
  child: Bun.Subprocess,
  signIn?: ServerOptions["signIn"],
): Promise<Api> {
  // Far above the ids of the rounds.
  const id = 5_000_000_000_000_000 + trials++;
  const startedMs = performance.now();
  let last = "nothing";
  while (performance.now() - startedMs < START_MS_MAX) {
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Error(`ended with ${child.exitCode ?? child.signalCode} before it answered`);
    try {
      const api = (await signIn?.(url)) ?? ownApi;
      const body = JSON.stringify({ id: api.isIdText === true ? String(id) : id, ...plant });
      const response = await ask(url + api.plants, { method: "POST", body }, api.token);
      const text = await response.text();
      if (response.ok) {
        checkPlant(JSON.parse(text), plant.tag);
        return api;
      }
      last = `${response.status} ${text.slice(0, 200)}`;
    } catch (error) {
      // Connections are refused until the server listens. An accepted request without an answer is an error.
      if (error instanceof WrongAnswer || (error as Error).name === "TimeoutError") throw error;
    }
    await Bun.sleep(1);
  }
  throw new Error(`answered a create with ${last}`);
}

/** The server's durability, from the first line that it prints. */
async function readDurability(path: string): Promise<string> {
  const untilMs = performance.now() + ANSWER_SECONDS_MAX * 1000;
  while (performance.now() < untilMs) {
    const [line = "", ...rest] = readFileSync(path, "utf8").split("\n");
    if (rest.length === 0) {
      // A server may answer before it prints.
      await Bun.sleep(5);
      continue;
    }
    const started = JSON.parse(line) as { durability?: string; store?: { durability: string } };
    const text = started.store?.durability ?? started.durability ?? "unknown";
    return /\((.*)\)$/.exec(text)?.[1] ?? text;
  }
  throw new Error("printed nothing");
}

export const ask = (url: string, init: RequestInit = {}, token = TOKEN): Promise<Response> =>
  fetch(url, {
    ...init,
    headers: { ...headers, authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(ANSWER_SECONDS_MAX * 1000),
  });

export class WrongAnswer extends Error {}

export function checkPlant(answer: unknown, expectedTag: string | undefined): void {
  const found = answer as { name?: unknown; tag?: unknown } | null;
  const isRight =
    found?.name === plant.name && (expectedTag === undefined || found.tag === expectedTag);
  if (!isRight) throw new WrongAnswer(`a plant came back as ${JSON.stringify(answer)}`);
}

export type Options = Omit<ServerOptions, "command">;

/** Our service. */
export const servePlants = (
  databaseUrl: string,
  options: Options = {},
  program: readonly string[] = plantstore,
): Promise<Server> =>
  startServer({
    ...options,
    command: [...program, "serve"],
    env: {
      DATABASE_URL: databaseUrl,
      PLANTSTORE_TOKEN: TOKEN,
      PLANTSTORE_LOG_LEVEL: "warn",
      ...options.env,
    },
  });

/** See plain-server.ts. */
export const servePlain = (
  kind: "bare" | "group-commit" | "store-thread" | "one-by-one",
  databaseUrl = "",
  options: Options = {},
): Promise<Server> =>
  startServer({
    ...options,
    command: [process.execPath, join(import.meta.dir, "plain-server.ts"), kind],
    env: { DATABASE_URL: databaseUrl, ...options.env },
  });

export const FASTIFY = "Fastify + better-sqlite3";

/** The same service as it is usually written. */
export const peers = [
  { name: "Express + better-sqlite3", program: "express.js" },
  { name: FASTIFY, program: "fastify.js" },
] as const;

export const servePeer = (program: string, path: string, options: Options = {}): Promise<Server> =>
  startServer({
    ...options,
    command: [
      join(import.meta.dir, `node_modules/node-linux-${process.arch}/bin/node`),
      join(import.meta.dir, "peers", program),
    ],
    env: { BENCH_STORE: path, BENCH_TOKEN: TOKEN, NODE_ENV: "production", ...options.env },
  });

const INSTALL_MS_MAX = 15 * 60_000;

/** Installs the peers, their Node.js and the chart library, unless they are newer than the lock file. */
export async function install(): Promise<void> {
  const folder = import.meta.dir;
  // npm writes this file last.
  const done = join(folder, "node_modules/.package-lock.json");
  const wanted = join(folder, "package-lock.json");
  if (existsSync(done) && statSync(done).mtimeMs >= statSync(wanted).mtimeMs) return;
  process.stderr.write("Installing the peers and the chart library, once.\n");
  const child = Bun.spawn(["npm", "ci", "--no-fund", "--no-audit"], {
    cwd: folder,
    stdout: "ignore",
    stderr: "pipe",
    timeout: INSTALL_MS_MAX,
  });
  const errors = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`npm ci failed in ${folder}:\n${errors}`);
}

interface Databases {
  /** Options of the servers on these databases. */
  readonly options: Options;
  /** Makes a database with plants from id 0 on. */
  readonly make: (
    stored: number,
  ) => Promise<{ readonly url: string; readonly countRows: () => Promise<number> }>;
}

/** A PostgreSQL server for one scenario. It shares all cores with the service and the load. */
export async function startDatabases(stack: AsyncDisposableStack): Promise<Databases> {
  const postgres = stack.use(await startPostgres());
  let count = 0;
  return {
    options: { isShared: true, databasePid: postgres.pid },
    make: async (stored) => {
      const name = `bench_${count++}`;
      await postgres.run(`CREATE DATABASE ${name}`);
      const url = postgres.urlOf(name);
      makeSchema(url);
      await postgres.run(
        `INSERT INTO plants (id, name, tag)
         SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50)
         FROM generate_series(0, ${stored - 1}) AS id`,
        name,
      );
      // Otherwise the server would do both during the rounds.
      await postgres.run("VACUUM (ANALYZE) plants", name);
      await postgres.run("CHECKPOINT");
      const text = "SELECT count(*) AS count FROM plants";
      return {
        url,
        countRows: async () =>
          Number((await postgres.run<{ count: bigint }>(text, name))[0]?.count),
      };
    },
  };
}
