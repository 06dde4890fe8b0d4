/** Creates many plants by one statement, and tells of each what became of it. */

import { Refusal } from "../../domain/error.ts";
import type { Plant } from "../../domain/plant.ts";
import { int64Array, textArray } from "./array.ts";
import type { Connection } from "./connection.ts";
import { UnsettledError } from "./failure.ts";
import type { Lanes } from "./lanes.ts";
import { type PlantRow, toPlant } from "./rows.ts";

export interface Created {
  readonly outcome: "created" | "replayed" | Refusal;
  /** What is stored under the id, and kept. */
  readonly stored: Plant;
}

/**
 * Nothing is stored after we have given up on the statement, be it that it reached the server late or that
 * it waited there, at another row, for somebody else: a plant that was removed meanwhile would come back.
 */
const INSERT = `INSERT INTO plants (id, name, tag)
  SELECT new.id, new.name, new.tag
  FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
  WHERE clock_timestamp() < to_timestamp($4::bigint / 1000.0)
  ON CONFLICT (id) DO NOTHING
  RETURNING id`;

/**
 * The lock makes this a transaction that writes, and so one that waits for the synchronous standby: a plant
 * that can be read may not be there yet, and would be acknowledged all the same.
 */
const FIND_KEPT = `SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])
  ORDER BY id FOR KEY SHARE`;

/** No id comes twice. The ids are sorted, so that instances wait for each other and never in a circle. */
export async function createPlants(
  lanes: Lanes,
  plants: readonly Plant[],
  deadlineMs: number,
): Promise<ReadonlyMap<bigint, Created>> {
  const sorted = plants.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  const settled = new Map<bigint, Created>();
  await lanes.run(deadlineMs, (connection) => attempt(connection, sorted, settled, deadlineMs));
  return settled;
}

/** Each attempt is about what those before it have left open. */
async function attempt(
  connection: Connection,
  plants: readonly Plant[],
  settled: Map<bigint, Created>,
  deadlineMs: number,
): Promise<void> {
  const open = plants.filter(({ id }) => !settled.has(id));
  await insert(connection, open, settled, deadlineMs);
  const known = open.filter(({ id }) => !settled.has(id));
  if (known.length > 0) await compare(connection, known, settled, deadlineMs);
  if (settled.size < plants.length) throw new UnsettledError("removed while it was looked for");
}

async function insert(
  connection: Connection,
  plants: readonly Plant[],
  settled: Map<bigint, Created>,
  deadlineMs: number,
): Promise<void> {
  const rows = await connection.query<Pick<PlantRow, "id">>(
    INSERT,
    [
      int64Array(plants.map(({ id }) => id)),
      textArray(plants.map(({ name }) => name)),
      textArray(plants.map(({ tag }) => tag)),
      connection.serverTimeIn(connection.allowanceMs(deadlineMs)),
    ],
    deadlineMs,
  );
  const ids = new Set(rows.map(({ id }) => id));
  for (const plant of plants)
    if (ids.has(plant.id)) settled.set(plant.id, { outcome: "created", stored: plant });
}

async function compare(
  connection: Connection,
  plants: readonly Plant[],
  settled: Map<bigint, Created>,
  deadlineMs: number,
): Promise<void> {
  const ids = int64Array(plants.map(({ id }) => id));
  const rows = await connection.query<PlantRow>(FIND_KEPT, [ids], deadlineMs);
  const kept = new Map(rows.map((row) => [row.id, toPlant(row)]));
  for (const plant of plants) {
    const stored = kept.get(plant.id);
    if (stored !== undefined)
      settled.set(plant.id, { outcome: judgeCreate(plant, stored), stored });
  }
}

/** What becomes of a create where the id has a plant already. */
export function judgeCreate(plant: Plant, stored: Plant): "replayed" | Refusal {
  if (stored.name === plant.name && stored.tag === plant.tag) return "replayed";
  return new Refusal("id_taken", `A different plant has the id ${plant.id}; nothing was changed.`);
}
