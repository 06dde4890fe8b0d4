/** A store for as long as a command needs it. */

import { existsSync } from "node:fs";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { openStore, parseSqlitePath } from "../store/open.ts";
import { CommandError } from "./failure.ts";

export async function withStore<Result>(
  config: Config,
  use: (store: Store) => Promise<Result>,
): Promise<Result> {
  const store = openStore(config.databaseUrl, config);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

/** Opening makes a store that is not there; to read from one by a wrong name would find it empty. */
export function requireStore({ databaseUrl }: Config): void {
  const path = databaseUrl.startsWith("sqlite:") ? parseSqlitePath(databaseUrl) : undefined;
  if (path !== undefined && !existsSync(path)) throw new CommandError(`There is no store ${path}.`);
}
