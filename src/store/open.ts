/** From a URL to a store. */

import type { OnMigrate, ServerLimits, Store, StoreLimits } from "../domain/store.ts";
import { parseStoreUrl } from "../domain/store-url.ts";
import type { openPostgresStore } from "./postgres/store.ts";
import { openAlone, openLinked } from "./sqlite/store.ts";
import type { StoreLink } from "./sqlite/thread.ts";

type Limits = StoreLimits & ServerLimits;

/** For a command. Rejects with a StoreOpenError. */
export async function openStore(
  databaseUrl: string,
  limits: Limits,
  onMigrate?: OnMigrate,
): Promise<Store> {
  const url = parseStoreUrl(databaseUrl);
  return url.engine === "sqlite"
    ? openAlone(url.path, limits, onMigrate)
    : openPostgres(url.target, limits, onMigrate);
}

/** A store behind one or more HTTP threads. */
export interface ServedStores {
  /** For this thread. Closing it closes the store: the other threads have closed theirs by then. */
  readonly store: Store;
  /** What each further thread opens its store with. PostgreSQL needs none: each thread has connections of its own. */
  readonly links: readonly (StoreLink | undefined)[];
  /** Calls back if the store cannot work any more: the process has to end. */
  readonly onEnd: (fail: (error: unknown) => void) => void;
}

/** For a service. Rejects with a StoreOpenError. */
export async function openServed(
  databaseUrl: string,
  limits: Limits,
  httpThreads: number,
  onMigrate?: OnMigrate,
): Promise<ServedStores> {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "postgres") {
    const store = await openPostgres(url.target, limits, onMigrate);
    return {
      store,
      links: Array(httpThreads - 1).fill(undefined),
      onEnd: () => undefined,
    };
  }
  const { startStoreThreads } = await import("./sqlite/thread.ts");
  const threads = await startStoreThreads(url.path, limits, httpThreads, onMigrate);
  const [link, ...links] = threads.links as [StoreLink, ...StoreLink[]];
  return { store: openLinked(url.path, limits, link, threads.close), links, onEnd: threads.onEnd };
}

/** For a further thread of a service whose first thread has opened the store. */
export async function openFurther(
  databaseUrl: string,
  limits: Limits,
  link: StoreLink | undefined,
): Promise<Store> {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "postgres") return openPostgres(url.target, limits);
  return openLinked(url.path, limits, link as StoreLink);
}

/** Loaded on demand: SQLite users do not pay for the PostgreSQL client. */
const openPostgres = async (...given: Parameters<typeof openPostgresStore>): Promise<Store> =>
  (await import("./postgres/store.ts")).openPostgresStore(...given);
