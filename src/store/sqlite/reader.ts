/** A store in a file to read from, on a thread beside the one that writes. Readers do not block the writer. */

import { Database } from "bun:sqlite";
import { Refusal } from "../../domain/errors.ts";
import type { Reads, StoreLimits } from "../../domain/store.ts";
import { closeReads, prepareReads, SqliteReads } from "./reads.ts";

/** Only whoever opens or closes the file last takes it for itself, and not for long. */
const LOCK_WAIT_MS = 100;

export interface Reader {
  readonly reads: Pick<Reads, "findPlant" | "listPlants" | "listTags" | "countPlants">;
  readonly close: () => Promise<void>;
}

/** The file is there already: the thread that writes has opened it. */
export function openSqliteReader(path: string, limits: StoreLimits): Reader {
  const db = new Database(path, { readonly: true, safeIntegers: true });
  db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
  const connection = prepareReads(db);
  let isClosed = false;
  const reads = new SqliteReads(path, limits, () => {
    if (isClosed) throw new Refusal("shutting_down");
    return connection;
  });
  return {
    reads: {
      findPlant: (id) => reads.findPlant(id),
      listPlants: (query) => reads.listPlants(query),
      listTags: (query) => reads.listTags(query),
      countPlants: () => reads.countPlants(),
    },
    close: async () => {
      isClosed = true;
      await reads.close();
      closeReads(connection);
    },
  };
}
