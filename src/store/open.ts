/** From a URL to a store. */

import type { OnMigrate, Store, StoreLimits } from "../domain/store.ts";
import { isPostgresUrl, parsePostgresUrl } from "./postgres/url.ts";
import { SqliteStore } from "./sqlite/store.ts";

/** Bounds for engines that are servers: connections, and the time that one statement may take. */
export interface ServerLimits {
  readonly writeConnections: number;
  readonly readConnections: number;
  readonly statementSecondsMax: number;
}

/** Rejects with a StoreOpenError. */
export async function openStore(
  databaseUrl: string,
  limits: StoreLimits & ServerLimits,
  onMigrate?: OnMigrate,
): Promise<Store> {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "sqlite") return new SqliteStore(url.path, limits, onMigrate);
  // Loaded on demand: SQLite users do not pay for the PostgreSQL client.
  const { openPostgresStore } = await import("./postgres/store.ts");
  return openPostgresStore(url.target, limits, onMigrate);
}

/** Throws a TypeError that says what is wrong, without the password. */
export function parseStoreUrl(url: string) {
  return isPostgresUrl(url)
    ? ({ engine: "postgres", target: parsePostgresUrl(url) } as const)
    : ({ engine: "sqlite", path: parseSqlitePath(url) } as const);
}

const SQLITE_SCHEME = "sqlite:";

/** `sqlite:./relative.db`, `sqlite:/absolute.db` or `sqlite:///absolute.db`. */
function parseSqlitePath(url: string): string {
  if (!url.startsWith(SQLITE_SCHEME)) throw new TypeError("unknown scheme");
  const path = url.slice(SQLITE_SCHEME.length).replace(/^\/\/(?=\/)/, "");
  // A host, options or a store in memory would be accepted and ignored.
  if (path === "" || path.startsWith("//") || /^(:|file:)/.test(path) || /[?#\0]/.test(path))
    throw new TypeError("not the path of a file");
  return path;
}

/** For people. Shows nothing of a malformed URL that could be a password. */
export function maskStoreUrl(url: string): string {
  if (url.startsWith(SQLITE_SCHEME)) return url;
  try {
    parseStoreUrl(url);
    return url.replace(/^([a-z]+:\/\/[^:@]*):[^@]*@/, "$1:********@");
  } catch {
    const scheme = /^[a-z]+:\/\//.exec(url)?.[0] ?? "";
    return /[:@=]/.test(url.slice(scheme.length)) ? `${scheme}********` : url;
  }
}
