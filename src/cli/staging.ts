/** The plants of a file in a temporary table, compared with the store in key order. Memory holds one page of each. */

import { Database } from "bun:sqlite";
import type { Removal, Upsert } from "../../client/client.ts";
import { entityTagOf } from "../domain/entity-tag.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import {
  formatStoredPlant,
  isSame,
  lengthOf,
  type ListedPlant,
  type Plant,
} from "../domain/plant.ts";
import { toTemporaryFileError } from "./command.ts";

/** What an import would do to a plant. */
export type Effect = "created" | "changed" | "removed" | "same";

interface Difference {
  readonly effect: Effect;
  readonly id: bigint;
  /** The line of the file; undefined if the file lacks the plant. */
  readonly line: number | undefined;
  readonly now: ListedPlant | undefined;
  readonly after: Plant | undefined;
}

type ListPage = (query: { readonly after: bigint | undefined; readonly limit: number }) => Promise<{
  readonly plants: readonly ListedPlant[];
  readonly next: bigint | undefined;
}>;

interface Row {
  readonly id: bigint;
  readonly line: bigint;
  readonly name: string;
  readonly tag: string | null;
}

const PAGE_LENGTH = 1_000;
const BLOCK_LENGTH_MAX = 2_000;
const BLOCK_CHARACTERS_MAX = 1_000_000;
const CACHE_KIB = 16_384;

const toPlant = ({ id, name, tag }: Row): Plant => ({ id, name, tag: tag ?? undefined });

export type Staging = ReturnType<typeof openStaging>;

export function openStaging() {
  const db = attempt(openTemporary);
  const insert = db.prepare(
    "INSERT OR IGNORE INTO staged (id, line, name, tag) VALUES (?, ?, ?, ?)",
  );
  const upsert = db.prepare(
    "INSERT OR REPLACE INTO staged (id, line, name, tag) VALUES (?, ?, ?, ?)",
  );
  const find = db.prepare<Row, [bigint]>("SELECT id, line, name, tag FROM staged WHERE id = ?");
  const findNext = db.prepare<{ id: bigint | null }, [bigint]>(
    "SELECT min(id) AS id FROM staged WHERE id >= ?",
  );
  const list = db.prepare<Row, [bigint, bigint]>(
    "SELECT id, line, name, tag FROM staged WHERE id BETWEEN ? AND ? ORDER BY id",
  );
  const dropRow = db.prepare("DELETE FROM staged WHERE id = ?");
  const markMissing = db.prepare("INSERT INTO missing (id, etag) VALUES (?, ?)");
  const inTransaction = (work: () => void): void => attempt(() => db.transaction(work)());

  /** Keeps what differs: rows that are the same are dropped, and plants that the file lacks are noted. */
  async function comparePage(
    plants: readonly ListedPlant[],
    [from, to]: readonly [bigint, bigint],
    isWhole: boolean,
    note: (difference: Difference) => void,
  ): Promise<void> {
    const stored = new Map(plants.map((plant) => [BigInt(plant.id), plant]));
    const same: bigint[] = [];
    let seen = 0;
    for (const row of list.iterate(from, to)) {
      const { id } = row;
      const [now, after] = [stored.get(id), toPlant(row)];
      stored.delete(id);
      const effect =
        now === undefined ? "created" : isSame({ ...now, id }, after) ? "same" : "changed";
      if (effect === "same") same.push(id);
      note({ effect, id, line: Number(row.line), now, after });
      // The file may have any number of plants between two of the store.
      if (++seen % PAGE_LENGTH === 0) await new Promise(setImmediate);
    }
    if (!isWhole) stored.clear();
    for (const [id, now] of stored)
      note({ effect: "removed", id, line: undefined, now, after: undefined });
    inTransaction(() => {
      for (const id of same) dropRow.run(id);
      for (const [id, now] of stored) markMissing.run(id, entityTagOf(formatStoredPlant(now)));
    });
  }

  return {
    /** The last record of an id wins. */
    put: (records: readonly { readonly line: number; readonly plant: Plant }[]): void =>
      inTransaction(() => {
        for (const { line, plant } of records)
          upsert.run(plant.id, line, plant.name, plant.tag ?? null);
      }),

    /** The first record of an id wins. Returns the records that differ from it. */
    add<Item extends { readonly line: number; readonly plant: Plant }>(
      records: readonly Item[],
    ): Item[] {
      const different: Item[] = [];
      inTransaction(() => {
        for (const record of records) {
          const { line, plant } = record;
          if (insert.run(plant.id, line, plant.name, plant.tag ?? null).changes > 0) continue;
          if (!isSame(toPlant(find.get(plant.id) as Row), plant)) different.push(record);
        }
      });
      return different;
    },

    /** `isWhole` also looks for plants that the file lacks. Without it, pages without a plant of the file are skipped. */
    async compare(
      listPage: ListPage,
      isWhole: boolean,
      note: (difference: Difference) => void,
    ): Promise<void> {
      for (let from = INT64_MIN; ;) {
        if (!isWhole) {
          const first = findNext.get(from)?.id ?? undefined;
          if (first === undefined) return;
          from = first;
        }
        const after = from === INT64_MIN ? undefined : from - 1n;
        const { plants, next } = await listPage({ after, limit: PAGE_LENGTH });
        await comparePage(plants, [from, next ?? INT64_MAX], isWhole, note);
        if (next === undefined || next === INT64_MAX) return;
        from = next + 1n;
      }
    },

    /** After a comparison: the plants to store. */
    *upserts(): Generator<(Upsert & Plant & { readonly line: number })[]> {
      const rows = db.prepare<Row, []>("SELECT id, line, name, tag FROM staged ORDER BY id");
      for (const block of toBlocks(rows.iterate()))
        yield block.map((row) => Object.assign(toPlant(row), { line: Number(row.line) }));
    },

    /** After a comparison: the plants that the file lacks, as they were compared. */
    *removals(): Generator<Removal[]> {
      const rows = db.prepare<{ id: bigint; etag: string }, []>(
        "SELECT id, etag FROM missing ORDER BY id",
      );
      for (const block of toBlocks(rows.iterate()))
        yield block.map(({ id, etag }) => ({ id, removed: true, ifMatch: etag }));
    },

    [Symbol.dispose]: () => db.close(),
  };
}

function* toBlocks<Item extends object>(rows: Iterable<Item>): Generator<Item[]> {
  let block: Item[] = [];
  let characters = 0;
  for (const row of rows) {
    block.push(row);
    characters += "name" in row ? lengthOf(row as unknown as Plant) : 0;
    if (block.length < BLOCK_LENGTH_MAX && characters < BLOCK_CHARACTERS_MAX) continue;
    yield block;
    [block, characters] = [[], 0];
  }
  if (block.length > 0) yield block;
}

/** SQLite writes temporary tables to a file without a name once they exceed the cache: nothing is left of it. */
function openTemporary(): Database {
  const db = new Database(":memory:", { safeIntegers: true });
  db.run("PRAGMA temp_store = FILE");
  db.run("CREATE TEMP TABLE staged (id INTEGER PRIMARY KEY, line INTEGER, name TEXT, tag TEXT)");
  db.run("CREATE TEMP TABLE missing (id INTEGER PRIMARY KEY, etag TEXT)");
  db.run(`PRAGMA temp.cache_size = -${CACHE_KIB}`);
  return db;
}

function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    const { SQLITE_TMPDIR, TMPDIR = "/var/tmp" } = process.env;
    throw toTemporaryFileError(error, SQLITE_TMPDIR ?? TMPDIR);
  }
}
