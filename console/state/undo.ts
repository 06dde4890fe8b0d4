/** The change that the user wants to undo. A dialog shows what that would do. */

import { effect, untracked } from "@preact/signals";
import type { RevertPreview, RevertRange } from "../../client/client.ts";
import { nameOfBatch } from "../../src/domain/change.ts";
import { call, isReason } from "../api/service.ts";
import { fill, plural, t } from "../text/text.ts";
import { Modal, Question } from "./dialog.ts";
import { arrived, hasHistory } from "./feed.ts";
import { formatTime, quote } from "./format.ts";
import { personal } from "./person.ts";
import { type ChangeFilter, follow, linkToChanges } from "./route.ts";
import { identity } from "./session.ts";
import { type Action, toast } from "./toasts.ts";

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

export const undo = new Modal<Question<Undo, RevertPreview | "large">>();

export function askRevert(about: Undo): void {
  // The range does not say which plants it concerns, so any change may.
  const question = new Question(about, { look: preview, after: () => about });
  undo.open(question);
  void question.look();
}

const UNDO = "Undo: ";

/** The batch of a revert. The same for every attempt, so a repeated one continues. */
export const nameUndo = (batch: string): string => (UNDO + batch).slice(0, 100).toWellFormed();

/** The batches of undos that this page has heard of, which the filter of a list may hide. */
export const undos = personal<ReadonlySet<string>>(new Set());

/** An undo that was undone itself does not count. */
export const isUndone = (batch: string, listed?: ReadonlySet<string | undefined>): boolean => {
  const name = nameUndo(batch);
  return (undos.value.has(name) || listed?.has(name) === true) && !isUndone(name, listed);
};

export function noteUndos(batches: readonly (string | undefined)[]): void {
  const fresh = batches.filter((batch) => batch?.startsWith(UNDO) === true) as string[];
  if (fresh.some((batch) => !undos.peek().has(batch)))
    undos.value = new Set([...undos.peek(), ...fresh]);
}

/** What somebody else undoes, the page says: what it shows is no longer what this person has seen. */
export const followUndos = (): void =>
  void effect(() => {
    const known = undos.peek();
    const others = new Map(
      arrived.value.flatMap(({ by, batch }) =>
        batch?.startsWith(UNDO) === true && !known.has(batch) && by !== identity.peek()?.name
          ? [[batch, by ?? t.shared.commandLine] as const]
          : [],
      ),
    );
    noteUndos(arrived.value.map(({ batch }) => batch));
    untracked(() => {
      for (const [batch, who] of others) {
        const what = quote(describeBatch(batch.slice(UNDO.length)));
        const see = { label: t.imports.see, run: () => follow(linkToChanges({ batch })) };
        toast(fill(t.changes.otherUndid, { who, what }), see);
      }
    });
  });

/** Earlier versions wrote the number as the language of the writer does: 1,234 or 1.234 or 1’234. */
const bulkActions = [
  [/^Delete ([\d.,’'\s]+) plants?$/, t.plants.deleteMany],
  [/^Remove the tag of ([\d.,’'\s]+) plants?$/, t.plants.untagMany],
  [/^Tag ([\d.,’'\s]+) plants? as (.*)$/s, t.plants.tagMany],
  [/^Added ([\d.,’'\s]+) plants?$/, t.changes.addedMany],
] as const;

const kinds = { added: "created", changed: "replaced", deleted: "removed" } as const;

/** A single change, with the name in the quotation marks of any language. */
const CHANGE = /^(Added|Changed|Deleted) [“„«"]\s?(.*?)\s?[”“»"]$/s;
/** What a filter shows. */
const SHOWN =
  /^(changes|added|changed|deleted)(?: by (.+?))?(?: in (.+?))?(?: from (\S+Z))?(?: to (\S+Z))?$/s;

type Kind = keyof typeof kinds;

/** What a filter shows is called this in the journal. */
export function nameShown({ by, batch, type, from, to }: ChangeFilter): string {
  const [kind = "changes"] = Object.entries(kinds).find(([, each]) => each === type) ?? [];
  return [
    kind,
    ...(by === undefined ? [] : [`by ${by}`]),
    ...(batch === undefined ? [] : [`in ${nameOfBatch(batch)}`]),
    ...(from === undefined ? [] : [`from ${from}`]),
    ...(to === undefined ? [] : [`to ${to}`]),
  ].join(" ");
}

/** A bulk action, of the console or of the API. Any other batch is an import. */
export const isImport = (batch: string): boolean => {
  const name = nameOfBatch(batch);
  return (
    !name.startsWith(UNDO) &&
    !/^(change|remove|revert) \d{4}-/.test(batch) &&
    !bulkActions.some(([pattern]) => pattern.test(name))
  );
};

/** The journal has names in English, the same for everyone. Those that the console gave are shown in the language. */
export const describeBatch = (batch: string): string => describeName(nameOfBatch(batch));

function describeName(name: string): string {
  if (name.startsWith(UNDO))
    return fill(t.changes.undoOf, { what: describeName(name.slice(UNDO.length)) });
  for (const [pattern, forms] of bulkActions) {
    const [, digits, tag = ""] = pattern.exec(name) ?? [];
    if (digits !== undefined) return plural(forms, Number(digits.replaceAll(/\D/g, "")), { tag });
  }
  const [, verb = "", plant] = CHANGE.exec(name) ?? [];
  if (plant !== undefined)
    return fill(t.changes.what[kinds[verb.toLowerCase() as Kind]], { plant: quote(plant) });
  const [, kind, by, batch, from, to] = SHOWN.exec(name) ?? [];
  if (kind === undefined) return name;
  return [
    kind === "changes" ? t.shell.views.changes : t.changes.verbs[kinds[kind as Kind]],
    by,
    batch && describeName(batch),
    from && `${t.changes.ends.from} ${formatTime(from)}`,
    to && `${t.changes.ends.to} ${formatTime(to)}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** What the end of an action offers. It stays until it is dismissed. */
export const offerUndo = (batch: string, changed: number): Action | undefined =>
  changed > 0 && hasHistory.value
    ? { label: t.shared.undo, isNeeded: true, run: () => askUndo(batch) }
    : undefined;

export function askUndo(batch: string): void {
  const title = fill(t.changes.askUndo, { what: quote(describeBatch(batch)) });
  askRevert({ title, range: { batch }, batch: nameUndo(batch) });
}
