/** The change that the user wants to undo. A dialog shows what that would do. */

import { signal } from "@preact/signals";
import type { RevertRange } from "../../client/client.ts";
import { nameOfBatch } from "../../src/domain/change.ts";

interface Undo {
  readonly title: string;
  readonly range: RevertRange;
  /** What the revert is called in the journal. */
  readonly batch: string;
}

/** Undefined if no dialog is open. */
export const undo = signal<Undo | undefined>(undefined);

/** The batch of a revert. The same for every attempt, so a repeated one continues. */
export const nameUndo = (batch: string): string => `Undo: ${batch}`.slice(0, 100).toWellFormed();

export function askUndo(batch: string): void {
  const title = `Undo “${nameOfBatch(batch)}”?`;
  undo.value = { title, range: { batch }, batch: nameUndo(batch) };
}
