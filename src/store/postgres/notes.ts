/** Notes of what a statement has done, in its own transaction: so that a lost answer can be looked up. */

import type { Connection } from "./connection.ts";

/** Ids, separated by commas; null where the statement never came, and never will. */
export interface Note {
  readonly ids: string | null;
}

/** In the order of time, so that notes made together lie together. */
export const makeKey = (): string => Bun.randomUUIDv7();

/**
 * What became of a statement whose answer was lost. Where it was committed, its note is found; where it is
 * still under way, this waits for it; and where it never came, it never will: its key is taken now.
 */
const RESOLVE = `INSERT INTO plantstore_notes (key, ids, made_at) VALUES ($1::uuid, NULL, now())
  ON CONFLICT (key) DO UPDATE SET made_at = excluded.made_at
  RETURNING ids`;

export async function resolveNote(
  connection: Connection,
  key: string,
  deadlineMs: number,
): Promise<Note | undefined> {
  const [note] = await connection.query<Note>(RESOLVE, [key], deadlineMs);
  return note;
}

/** A statement whose outcome is not known: done, under way, or still to come. */
export interface Sent {
  readonly key: string;
  /** By our own clock; after it, it does nothing any more. */
  readonly validUntilMs: number;
}

/**
 * Whoever gives up on a statement waits until it cannot be executed any more. Otherwise what its sender was told
 * to try again could be done, and undone by somebody, before it comes and does it once more.
 */
export async function untilInvalid(sent: Sent | undefined): Promise<void> {
  if (sent !== undefined) await Bun.sleep(Math.max(0, sent.validUntilMs - performance.now()));
}

/** None where there is no note. */
export const parseIds = (note: Note | undefined): ReadonlySet<string> =>
  new Set(note?.ids?.split(","));

/** They are needed for as long as a statement may be on its way: a quarter of an hour is a long time for that. */
export const FORGET = "DELETE FROM plantstore_notes WHERE made_at < now() - interval '15 minutes'";
