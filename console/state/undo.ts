/** The change that the user wants to undo. A dialog shows what that would do. */

import type { RevertPreview, RevertRange } from "../../client/client.ts";
import { nameOfBatch } from "../../src/domain/change.ts";
import { call, isReason } from "../api/service.ts";
import { fill, plural, t } from "../text/text.ts";
import { arrived } from "./feed.ts";
import { quote } from "./format.ts";
import { OpenQuestion, Question } from "./question.ts";
import { route } from "./route.ts";
import { token } from "./session.ts";

interface Undo {
  readonly title: string;
  readonly range: RevertRange;
  /** What the revert is called in the journal. */
  readonly batch: string;
}

/** More plants than the service previews. */
const isTooLarge = (error: unknown): boolean => isReason(error, "range_too_large");

/** What would be undone now. */
async function preview({ range }: Undo, ended: AbortSignal): Promise<RevertPreview | "large"> {
  try {
    return await call((client) => client.previewRevert(range, { signal: ended }));
  } catch (error) {
    if (isTooLarge(error)) return "large";
    throw error;
  }
}

export const undo = new OpenQuestion<Question<Undo, RevertPreview | "large">>(
  () => [route.value, token.value],
  arrived,
);

export function askRevert(about: Undo): void {
  // The range does not say which plants it concerns, so any change may.
  const question = new Question(about, { look: preview, after: () => about });
  undo.ask(question);
  void question.look();
}

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
  askRevert({ title, range: { batch }, batch: nameUndo(batch) });
}
