/** Creates many plants by one statement, and tells of each what became of it. */

import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import { int64Array, textArray } from "./array.ts";
import type { Connection } from "./connection.ts";
import { isUndone, sqlStateOf, UnsettledError } from "./failure.ts";
import type { Lanes } from "./lanes.ts";
import { makeKey, type Note, parseIds, resolveNote, type Sent, untilInvalid } from "./notes.ts";
import { type PlantRow, toPlant } from "../rows.ts";

export interface Created {
  readonly outcome: "created" | "replayed" | Refusal;
  /** What is stored under the id, and kept. */
  readonly stored: Plant;
}

/**
 * Nothing is stored after we have given up on the statement, be it that it reached the server late or that
 * it waited there, at another row, for somebody else: a plant that was removed meanwhile would come back.
 * What was there already is noted, as a rule nothing; see notes.ts.
 */
const insertUnless = (condition: string, onConflict: string): string => `WITH made AS (
    INSERT INTO plants (id, name, tag)
    SELECT new.id, new.name, new.tag
    FROM unnest($2::bigint[], $3::text[], $4::text[]) AS new (id, name, tag)
    WHERE clock_timestamp() < to_timestamp($5::bigint / 1000.0) ${condition}
    ${onConflict}
    RETURNING id
  )
  INSERT INTO plantstore_notes (key, ids, made_at)
  SELECT $1::uuid,
    CASE WHEN (SELECT count(*) FROM made) = cardinality($2::bigint[]) THEN ''
      ELSE (SELECT string_agg(id::text, ',') FROM unnest($2::bigint[]) AS wanted (id)
        WHERE id NOT IN (SELECT id FROM made)) END,
    now()
  RETURNING ids`;

/** To look first takes the server a quarter less time than ON CONFLICT, and fails where two come at one time. */
const INSERT = insertUnless(
  "AND new.id NOT IN (SELECT id FROM plants WHERE id = ANY ($2::bigint[]))",
  "",
);
const INSERT_CROWDED = insertUnless("", "ON CONFLICT (id) DO NOTHING");
const UNIQUE_VIOLATION = "23505";

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
  const creating = new Creating(sortById(plants), deadlineMs);
  try {
    await lanes.run(deadlineMs, (connection) => creating.attempt(connection));
  } catch (error) {
    await untilInvalid(creating.sent);
    throw error;
  }
  return creating.settled;
}

/** They often come in order. */
function sortById(plants: readonly Plant[]): readonly Plant[] {
  const isSorted = plants.every(
    ({ id }, index) => index === 0 || (plants[index - 1] as Plant).id < id,
  );
  return isSorted ? plants : plants.toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

class Creating {
  readonly settled = new Map<bigint, Created>();
  private readonly plants: readonly Plant[];
  private readonly deadlineMs: number;
  /** Of what was sent last, as long as its outcome is not known. */
  sent: Sent | undefined;
  private statement = INSERT;

  constructor(plants: readonly Plant[], deadlineMs: number) {
    this.plants = plants;
    this.deadlineMs = deadlineMs;
  }

  /** Each attempt is about what those before it have left open. */
  async attempt(connection: Connection): Promise<void> {
    if (this.sent !== undefined)
      this.settle(this.findOpen(), await resolveNote(connection, this.sent.key, this.deadlineMs));
    await this.insert(connection, this.findOpen()).catch((error: unknown) => {
      const isCrowded = sqlStateOf(error) === UNIQUE_VIOLATION && this.statement === INSERT;
      if (!isCrowded) throw error;
      this.statement = INSERT_CROWDED;
      return this.insert(connection, this.findOpen());
    });
    if (this.settled.size === this.plants.length) return;
    await this.compare(connection, this.findOpen());
    if (this.settled.size < this.plants.length)
      throw new UnsettledError("removed while it was looked for");
  }

  private findOpen(): readonly Plant[] {
    if (this.settled.size === 0) return this.plants;
    return this.plants.filter(({ id }) => !this.settled.has(id));
  }

  private async insert(connection: Connection, open: readonly Plant[]): Promise<void> {
    if (open.length === 0) return;
    const key = makeKey();
    const allowanceMs = connection.allowanceMs(this.deadlineMs);
    this.sent = { key, validUntilMs: performance.now() + allowanceMs };
    const sending = connection.query<Note>(
      this.statement,
      [
        key,
        int64Array(open.map(({ id }) => id)),
        textArray(open.map(({ name }) => name)),
        textArray(open.map(({ tag }) => tag)),
        connection.serverTimeIn(allowanceMs),
      ],
      this.deadlineMs,
    );
    const [note] = await sending.catch((error: unknown) => {
      if (isUndone(error)) this.sent = undefined;
      throw error;
    });
    this.settle(open, note);
  }

  /** Whatever was not there already has been created, unless the statement never came. */
  private settle(open: readonly Plant[], note: Note | undefined): void {
    this.sent = undefined;
    if (note === undefined || note.ids === null) return;
    const wereThere = note.ids === "" ? undefined : parseIds(note);
    for (const plant of open)
      if (wereThere?.has(String(plant.id)) !== true)
        this.settled.set(plant.id, { outcome: "created", stored: plant });
  }

  private async compare(connection: Connection, open: readonly Plant[]): Promise<void> {
    const ids = int64Array(open.map(({ id }) => id));
    const rows = await connection.query<PlantRow>(FIND_KEPT, [ids], this.deadlineMs);
    const kept = new Map(rows.map((row) => [row.id, toPlant(row)]));
    for (const plant of open) {
      const stored = kept.get(plant.id);
      if (stored !== undefined)
        this.settled.set(plant.id, { outcome: judgeCreate(plant, stored), stored });
    }
  }
}

/** What becomes of a create where the id has a plant already. */
export function judgeCreate(plant: Plant, stored: Plant): "replayed" | Refusal {
  if (stored.name === plant.name && stored.tag === plant.tag) return "replayed";
  return new Refusal("id_taken", `A different plant has the id ${plant.id}; nothing was changed.`);
}
