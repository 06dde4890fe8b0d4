/** The change that the user wants to undo. A dialog shows what that would do. */

import { signal } from "@preact/signals";
import type { RevertRange } from "../../client/client.ts";
import { nameOfBatch } from "../../src/domain/change.ts";
import { fill, plural, t } from "../text/text.ts";
import { quote } from "./format.ts";

interface Undo {
  readonly title: string;
  readonly range: RevertRange;
  /** What the revert is called in the journal. */
  readonly batch: string;
}

/** Undefined if no dialog is open. */
export const undo = signal<Undo | undefined>(undefined);

const UNDO = "Undo: ";

/** The batch of a revert. The same for every attempt, so a repeated one continues. */
export const nameUndo = (batch: string): string => (UNDO + batch).slice(0, 100).toWellFormed();

const bulkActions = [
  [/^Delete ([\d.,\s]+) plants?$/, t.plants.deleteMany],
  [/^Remove the tag of ([\d.,\s]+) plants?$/, t.plants.untagMany],
  [/^Tag ([\d.,\s]+) plants? as (.*)$/s, t.plants.tagMany],
] as const;

/** The journal has names in English, the same for everyone. Those that the console gave are shown in the language. */
export const describeBatch = (batch: string): string => describeName(nameOfBatch(batch));

function describeName(name: string): string {
  if (name.startsWith(UNDO))
    return fill(t.changes.undoOf, { what: describeName(name.slice(UNDO.length)) });
  for (const [pattern, forms] of bulkActions) {
    const [, digits, tag = ""] = pattern.exec(name) ?? [];
    if (digits !== undefined) return plural(forms, Number(digits.replaceAll(/\D/g, "")), { tag });
  }
  return name;
}

export function askUndo(batch: string): void {
  const title = fill(t.changes.askUndo, { what: quote(describeBatch(batch)) });
  undo.value = { title, range: { batch }, batch: nameUndo(batch) };
}
