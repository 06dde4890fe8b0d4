/** What others use for the same job, each as it is usually written or as it comes. */

import { Database } from "bun:sqlite";
import { writeFileSync } from "node:fs";
import { findFreePort } from "../../test/support/postgres-files.ts";
import { STORED, TOKEN } from "../settings.ts";
import { copyStore, makeFilledStore, makePath, makeStore } from "../stores.ts";
import { createDirectusTemplate, directusApi, directusCommand, directusEnv } from "./directus.ts";
import { installPeer, nodeBinary, peerPath } from "./install.ts";
import { plantsApi, type Server, startServer } from "./server.ts";

export interface RunningPeer {
  readonly server: Server;
  /** Where its rows can be counted; undefined where they are in no database. */
  readonly path?: string;
}

export interface Peer {
  readonly name: string;
  readonly note?: string;
  /** How many plants it is given where there are many to be read. */
  readonly stored: number;
  /** How many times as long its rounds are, so that one that is slow gets beyond its first answers. */
  readonly patience: number;
  /** True where it slows down with every plant, so that a round begins with a new one. */
  readonly isFreshEachRound: boolean;
  /** Installs it where it is not, and starts it on so many plants. */
  readonly start: (stored: number) => Promise<RunningPeer>;
}

/** SQLite's numbers for PRAGMA synchronous. */
const synchronousNames = ["OFF", "NORMAL", "FULL", "EXTRA"];

/** As its own connection says when it starts. */
function readPragmas(line: string): string {
  const { journal, synchronous } = JSON.parse(line) as { journal: string; synchronous: number };
  return `${journal.toUpperCase()}, synchronous=${synchronousNames[synchronous] ?? synchronous}`;
}

const onSqlite = (name: string, folder: string): Peer => ({
  name,
  stored: STORED,
  patience: 1,
  isFreshEachRound: false,
  start: async (stored) => {
    await installPeer(folder, 26);
    const path = stored === 0 ? makeStore() : await makeFilledStore(stored, "fill-plain");
    const server = await startServer({
      command: [nodeBinary(26), peerPath(folder, "server.js")],
      env: { BENCH_STORE: path, BENCH_TOKEN: TOKEN, NODE_ENV: "production" },
      durability: readPragmas,
    });
    return { server, path };
  },
});

const JSON_STORED = 1000;

const jsonServer: Peer = {
  name: "json-server",
  note: `it looks through all its plants at every request and writes them all at every create, so it begins each round anew, and has ${JSON_STORED} plants where others have ${STORED.toLocaleString("en")}; it asks for no token`,
  stored: JSON_STORED,
  patience: 1,
  isFreshEachRound: true,
  start: async (stored) => {
    await installPeer("json-server", 26);
    const path = makePath("plants.json");
    const plants = Array.from({ length: stored }, (_, id) => ({
      id,
      name: `Monstera deliciosa ${id}`,
      tag: `tag ${id % 50}`,
    }));
    writeFileSync(path, JSON.stringify({ plants }));
    const port = findFreePort();
    const server = await startServer({
      command: [
        nodeBinary(26),
        peerPath("json-server", "node_modules/json-server/lib/cli/bin.js"),
        "--quiet",
        "--host=127.0.0.1",
        `--port=${port}`,
        path,
      ],
      port,
      env: { NODE_ENV: "production" },
      api: { ...plantsApi, createStatus: 201, listPath: "/plants?_limit=100" },
      durability: "none: answers before the file is written, and never syncs it",
    });
    return { server };
  },
};

const directus: Peer = {
  name: "Directus",
  note: "as it comes: it also keeps a log of activity and revisions of every plant. Its rounds are three times as long",
  stored: STORED,
  patience: 3,
  isFreshEachRound: false,
  start: async (stored) => {
    await installPeer("directus", 22);
    const path = copyStore(await createDirectusTemplate());
    const journal = prepareDirectus(path, stored);
    const server = await startServer({
      command: [...directusCommand, "start"],
      cwd: peerPath("directus"),
      env: directusEnv(path),
      api: directusApi,
      durability: `journal_mode=${journal}, synchronous not set: SQLite's default, FULL`,
    });
    return { server, path };
  },
};

/** Fills its table as the others' are, and tells the journal mode, which the file itself remembers. */
function prepareDirectus(path: string, stored: number): string {
  const db = new Database(path);
  db.run(
    `WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?)
     INSERT INTO plants (id, name, tag)
     SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50) FROM ids WHERE id < ?`,
    [stored, stored],
  );
  const { journal_mode: journal } = db.query("PRAGMA journal_mode").get() as {
    journal_mode: string;
  };
  db.close();
  return journal;
}

export const peers: readonly Peer[] = [
  onSqlite("Express + better-sqlite3", "express-sqlite"),
  onSqlite("Fastify + better-sqlite3", "fastify-sqlite"),
  jsonServer,
  directus,
];
