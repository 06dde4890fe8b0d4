/** From a URL to a store. */

import type { ServerLimits, Store, StoreLimits } from "../domain/store.ts";
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
