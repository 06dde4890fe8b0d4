/** From a URL to a store. */

import type { ServerLimits, Store, StoreLimits } from "../domain/store.ts";
import { openSqliteReader, type Reader } from "./sqlite/reader.ts";
import { SqliteStore } from "./sqlite/sqlite-store.ts";
import { parseStoreUrl } from "./url.ts";

/** Rejects where the store cannot be opened, in words for whoever started the program. */
export async function openStore(
  databaseUrl: string,
  limits: StoreLimits & ServerLimits,
): Promise<Store> {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "sqlite") return new SqliteStore(url.path, limits);
  // Whoever uses the one does not pay for loading the other.
  const { openPostgresStore } = await import("./postgres/open.ts");
  return openPostgresStore(url.target, limits);
}

/**
 * What a thread beside the one that has opened the store can read by itself. Undefined where it should not: a
 * server may fail over, and whoever writes to it knows best where it is now.
 */
export function openReader(databaseUrl: string, limits: StoreLimits): Reader | undefined {
  const url = parseStoreUrl(databaseUrl);
  return url.engine === "sqlite" ? openSqliteReader(url.path, limits) : undefined;
}
