/** The same plants in a store of each engine. */

import { resolveConfig } from "../../src/config.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import { makeTemporaryFolder } from "./folder.ts";
import { createTestDatabase, sharedPostgres } from "./postgres-server.ts";

const BLOCK_LENGTH = 1_000;

export interface EnginePair extends AsyncDisposable {
  readonly sqlite: Store;
  readonly postgres: Store;
}

export async function openEnginePair(
  plants: readonly Plant[],
  settings: Readonly<Record<string, string>> = {},
): Promise<EnginePair> {
  const { config } = resolveConfig({}, settings);
  const folder = makeTemporaryFolder();
  const database = await createTestDatabase(await sharedPostgres());
  const sqlite = await openStore(`sqlite:${folder.path}/plants.db`, config);
  const postgres = await openStore(database.url, config);
  for (const store of [sqlite, postgres])
    for (let first = 0; first < plants.length; first += BLOCK_LENGTH)
      await Promise.all(
        plants.slice(first, first + BLOCK_LENGTH).map((plant) => store.createPlant(plant)),
      );
  return {
    sqlite,
    postgres,
    async [Symbol.asyncDispose]() {
      await Promise.all([sqlite.close(), postgres.close()]);
      await database[Symbol.asyncDispose]();
      folder[Symbol.dispose]();
    },
  };
}
