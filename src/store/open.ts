/** From a URL to a store. */

import type { StoreLimits, Store } from "../domain/store.ts";
import { SqliteStore } from "./sqlite/sqlite-store.ts";

const SQLITE_SCHEME = "sqlite:";

export function openStore(databaseUrl: string, limits: StoreLimits): Store {
  return new SqliteStore(parseSqlitePath(databaseUrl), limits);
}

/** `sqlite:./relative.db`, `sqlite:/absolute.db` or `sqlite:///absolute.db`. Throws where it is neither. */
export function parseSqlitePath(databaseUrl: string): string {
  if (!databaseUrl.startsWith(SQLITE_SCHEME)) throw new TypeError("not a sqlite: URL");
  const path = databaseUrl.slice(SQLITE_SCHEME.length).replace(/^\/\/(?=\/)/, "");
  // Nothing is taken in and then ignored: neither a host, nor options, nor a store in memory.
  if (path === "" || path.startsWith("//") || /^(:|file:)/.test(path) || /[?#\0]/.test(path))
    throw new TypeError("not a file");
  return path;
}
