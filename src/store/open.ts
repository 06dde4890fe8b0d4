/** Opens a store by its URL. */

import type { OnMigrate, ServerLimits, Store, StoreLimits } from "../domain/store.ts";
import { parseStoreUrl } from "../store-url.ts";
import { openAlone, openSqliteStore } from "./sqlite/engine.ts";
import { callThreads, startStoreThreads, type StoreLink } from "./sqlite/thread.ts";

type Limits = StoreLimits & ServerLimits;

/** For a command or, with a link, for another thread of the service. Rejects with a StoreOpenError. */
export async function openStore(
  databaseUrl: string,
  limits: Limits,
  onMigrate?: OnMigrate,
  link?: StoreLink,
): Promise<Store> {
  const url = parseStoreUrl(databaseUrl);
  // On demand: users of SQLite do not pay for the PostgreSQL client.
  if (url.engine === "postgres")
    return (await import("./postgres/engine.ts")).openPostgresStore(url.target, limits, onMigrate);
  return link === undefined
    ? openAlone(url.path, limits, onMigrate)
    : openSqliteStore(url.path, limits, callThreads(link));
}

export interface ServedStores {
  /** For this thread. Closing it closes the store, so the other threads close theirs first. */
  readonly store: Store;
  /** For the other threads to open their stores with. Undefined on PostgreSQL: each has its own connections. */
  readonly links: readonly (StoreLink | undefined)[];
  /** Calls back if a thread of the store dies: the process has to exit. */
  readonly onEnd: (fail: (error: unknown) => void) => void;
}

export async function openServed(
  databaseUrl: string,
  limits: Limits,
  httpThreads: number,
  onMigrate?: OnMigrate,
): Promise<ServedStores> {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "postgres") {
    const store = await openStore(databaseUrl, limits, onMigrate);
    return { store, links: Array(httpThreads - 1).fill(undefined), onEnd: () => undefined };
  }
  const threads = await startStoreThreads(url.path, limits, httpThreads, onMigrate);
  const [link, ...links] = threads.links as [StoreLink, ...StoreLink[]];
  try {
    const store = openSqliteStore(url.path, limits, callThreads(link, threads.close));
    return { store, links, onEnd: threads.onEnd };
  } catch (error) {
    await threads.close();
    throw error;
  }
}
