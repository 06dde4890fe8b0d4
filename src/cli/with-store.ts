/** A store for as long as a command needs it. */

import { existsSync } from "node:fs";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { openStore, parseStoreUrl } from "../store/open.ts";
import { CommandError } from "./failure.ts";

export async function withStore<Result>(
  config: Config,
  use: (store: Store) => Promise<Result>,
): Promise<Result> {
  const store = await openStore(config.databaseUrl, config);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

/** Opening makes a store that is not there; to read from one by a wrong name would find it empty. */
export async function requireStore(config: Config): Promise<void> {
  const url = parseStoreUrl(config.databaseUrl);
  if (url.engine === "sqlite") {
    if (!existsSync(url.path)) throw new CommandError(`There is no store ${url.path}.`);
    return;
  }
  const { findSchema } = await import("../store/postgres/schema.ts");
  const { location, version } = await findSchema(url.target, config);
  if (version === undefined) throw new CommandError(`There is no store in ${location}.`);
}
