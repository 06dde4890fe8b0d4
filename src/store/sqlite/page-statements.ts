/** Statements that walk plants in key order, one for each combination of order and filter. */

import type { Database, Statement } from "bun:sqlite";
import { firstIdOf, type PlantQuery } from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import { type PlantRow, toPlant } from "../rows.ts";

type Walk = Statement<PlantRow, [firstId: bigint, rows: number]>;
type TaggedWalk = Statement<PlantRow, [tag: string, firstId: bigint, rows: number]>;

export interface PageStatements {
  readonly asc: Walk;
  readonly desc: Walk;
  readonly taggedAsc: TaggedWalk;
  readonly taggedDesc: TaggedWalk;
}

export function preparePageStatements(db: Database): PageStatements {
  const select = "SELECT id, name, tag FROM plants WHERE";
  return {
    asc: db.prepare(`${select} id >= ? ORDER BY id LIMIT ?`),
    desc: db.prepare(`${select} id <= ? ORDER BY id DESC LIMIT ?`),
    // The index on the tag holds the ids of each tag in order, so that this is a walk too.
    taggedAsc: db.prepare(`${select} tag = ? AND id >= ? ORDER BY id LIMIT ?`),
    taggedDesc: db.prepare(`${select} tag = ? AND id <= ? ORDER BY id DESC LIMIT ?`),
  };
}

/** At most that many plants from where the query begins, in its order, with its tag; one at a time. */
export function* walkPlants(
  statements: PageStatements,
  query: PlantQuery,
  rowsMax: number,
): Generator<Plant> {
  const firstId = firstIdOf(query);
  if (firstId === undefined) return;
  const rows =
    query.tag === undefined
      ? statements[query.order].iterate(firstId, rowsMax)
      : statements[query.order === "asc" ? "taggedAsc" : "taggedDesc"].iterate(
          query.tag,
          firstId,
          rowsMax,
        );
  for (const row of rows) yield toPlant(row);
}
