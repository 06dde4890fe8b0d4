/** Our own service on a store, and the limits that leave out a part of its work. */

import { join } from "node:path";
import { TOKEN } from "../settings.ts";
import { type Server, type ServerOptions, startServer } from "./server.ts";
import { makePath } from "../stores.ts";

type Options = Pick<ServerOptions, "isShared" | "supportingPids" | "env">;

export const servePlants = (path: string, options?: Options): Promise<Server> =>
  serveDatabase(`sqlite:${path}`, options);

export function serveDatabase(databaseUrl: string, options: Options = {}): Promise<Server> {
  return startServer({
    ...options,
    command: [process.execPath, join(import.meta.dir, "../../src/main.ts"), "serve"],
    env: { ...environment(databaseUrl), ...options.env },
    durability: readDurability,
  });
}

/** Of what it announces, the setting that a peer can be compared by. */
function readDurability(line: string): string {
  const { durability } = (JSON.parse(line) as { store: { durability: string } }).store;
  return /\((.*)\)$/.exec(durability)?.[1] ?? durability;
}

type Limit = "storing-nothing" | "one-by-one" | "bare";

/** See limits.ts. */
export function serveLimit(
  limit: Limit,
  {
    databaseUrl = `sqlite:${makePath("unused.db")}`,
    ...options
  }: Options & {
    readonly databaseUrl?: string;
  } = {},
): Promise<Server> {
  return startServer({
    ...options,
    command: [process.execPath, join(import.meta.dir, "../limits.ts"), limit],
    env: environment(databaseUrl),
    durability: (line) => (JSON.parse(line) as { durability: string }).durability,
  });
}

const environment = (databaseUrl: string): Record<string, string> => ({
  DATABASE_URL: databaseUrl,
  PLANTSTORE_TOKEN: TOKEN,
  PLANTSTORE_LOG_LEVEL: "warn",
});
