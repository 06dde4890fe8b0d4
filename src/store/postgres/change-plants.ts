/** Replaces and removes plants, each exactly once, whatever becomes of the connection meanwhile. */

import { type Condition, holds, type Plant } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import { int64Array, textArray } from "./array.ts";
import type { Connection } from "./connection.ts";
import { isUndone, UnsettledError } from "./failure.ts";
import type { Lanes } from "./lanes.ts";
import { makeKey, type Note, parseIds, resolveNote, type Sent, untilInvalid } from "./notes.ts";
import { type PlantRow, toPlant } from "../rows.ts";

export interface Change {
  readonly id: bigint;
  /** Undefined where the plant is to be removed. */
  readonly plant: Plant | undefined;
  readonly condition: Condition;
}

export interface Changed {
  readonly outcome: "done" | Refusal;
  /** What is stored under the id, where it is known to be kept. */
  readonly stored: Plant | undefined;
}

const FIND = "SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])";

/**
 * A change is made only where the plant is still as it was when its condition was judged. All that were
 * made are noted in the same transaction, under a key of our own; see notes.ts. The rows are locked in the
 * order of their ids, so that instances wait for each other and never in a circle. Replacements and
 * removals are two statements, because not every engine changes a table twice in one.
 */
const applyBy = (change: string): string => `WITH wanted AS (
    SELECT * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
      AS w (id, seen_name, seen_tag, name, tag)
  ), locked AS (
    SELECT p.id FROM plants p JOIN wanted w ON p.id = w.id
    WHERE p.name = w.seen_name AND p.tag IS NOT DISTINCT FROM w.seen_tag
    ORDER BY p.id FOR UPDATE OF p
  ), changed AS (
    ${change} wanted w, locked l
    WHERE p.id = w.id AND p.id = l.id
      AND p.name = w.seen_name AND p.tag IS NOT DISTINCT FROM w.seen_tag
      AND clock_timestamp() < to_timestamp($7::bigint / 1000.0)
    RETURNING p.id
  )
  INSERT INTO plantstore_notes (key, ids, made_at)
  SELECT $1::uuid, coalesce(string_agg(id::text, ','), ''), now() FROM changed
  RETURNING ids`;

const REPLACE = applyBy("UPDATE plants p SET name = w.name, tag = w.tag FROM");
const REMOVE = applyBy("DELETE FROM plants p USING");

interface Planned {
  readonly change: Change;
  readonly seen: Plant;
}

/** After so many vain attempts on one connection another is tried: its clock may have been set. */
const ROUNDS_MAX = 3;

/** No id comes twice; either all are removals, or none is. */
export async function changePlants(
  lanes: Lanes,
  changes: readonly Change[],
  deadlineMs: number,
): Promise<ReadonlyMap<bigint, Changed>> {
  const changing = new Changing(changes, deadlineMs);
  try {
    await lanes.run(deadlineMs, (connection) => changing.attempt(connection));
  } catch (error) {
    await untilInvalid(changing.sent);
    throw error;
  }
  return changing.settled;
}

class Changing {
  readonly settled = new Map<bigint, Changed>();
  private readonly changes: readonly Change[];
  private readonly deadlineMs: number;
  /** What was sent last, as long as its outcome is not known. */
  sent: (Sent & { readonly planned: readonly Planned[] }) | undefined;

  constructor(changes: readonly Change[], deadlineMs: number) {
    this.changes = changes.toSorted((one, other) => (one.id < other.id ? -1 : 1));
    this.deadlineMs = deadlineMs;
  }

  async attempt(connection: Connection): Promise<void> {
    await this.resolve(connection);
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const planned = await this.plan(connection);
      if (planned.length === 0) return;
      await this.apply(connection, planned);
      if (this.settled.size === this.changes.length) return;
    }
    throw new UnsettledError("changed by others again and again");
  }

  private async resolve(connection: Connection): Promise<void> {
    if (this.sent === undefined) return;
    const { key, planned } = this.sent;
    const note = await resolveNote(connection, key, this.deadlineMs);
    this.sent = undefined;
    this.settle(planned, note);
  }

  /** Judges every change that is still open, and settles those that cannot be made. */
  private async plan(connection: Connection): Promise<Planned[]> {
    const open = this.changes.filter(({ id }) => !this.settled.has(id));
    const ids = int64Array(open.map(({ id }) => id));
    const rows = await connection.query<PlantRow>(FIND, [ids], this.deadlineMs);
    const found = new Map(rows.map((row) => [row.id, toPlant(row)]));
    return open.flatMap((change) => {
      const seen = found.get(change.id);
      if (seen !== undefined && holds(change.condition, seen)) return [{ change, seen }];
      const reason = seen === undefined ? "plant_not_found" : "precondition_failed";
      this.settled.set(change.id, { outcome: new Refusal(reason), stored: undefined });
      return [];
    });
  }

  private async apply(connection: Connection, planned: readonly Planned[]): Promise<void> {
    const key = makeKey();
    const allowanceMs = connection.allowanceMs(this.deadlineMs);
    this.sent = { key, planned, validUntilMs: performance.now() + allowanceMs };
    const isRemoval = planned.every(({ change }) => change.plant === undefined);
    const sending = connection.query<Note>(
      isRemoval ? REMOVE : REPLACE,
      [
        key,
        int64Array(planned.map(({ change }) => change.id)),
        textArray(planned.map(({ seen }) => seen.name)),
        textArray(planned.map(({ seen }) => seen.tag)),
        textArray(planned.map(({ change }) => change.plant?.name)),
        textArray(planned.map(({ change }) => change.plant?.tag)),
        connection.serverTimeIn(allowanceMs),
      ],
      this.deadlineMs,
    );
    const [note] = await sending.catch((error: unknown) => {
      if (isUndone(error)) this.sent = undefined;
      throw error;
    });
    this.sent = undefined;
    this.settle(planned, note);
  }

  private settle(planned: readonly Planned[], note: Note | undefined): void {
    const applied = parseIds(note);
    for (const { change } of planned)
      if (applied.has(String(change.id)))
        this.settled.set(change.id, { outcome: "done", stored: change.plant });
  }
}
