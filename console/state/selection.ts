/** The selected plants, and the question before a bulk action on them. */

import { computed } from "@preact/signals";
import { filterNames, narrows } from "../../src/domain/filter.ts";
import { call, explain } from "../api/service.ts";
import { fill, join, t } from "../text/text.ts";
import { isExcludedByUrl, patchOf, startAction, type Task, type Work } from "./action.ts";
import { Modal, ofPage, Question } from "./dialog.ts";
import { hasHistory } from "./feed.ts";
import { quote } from "./format.ts";
import type { Selection } from "./plant-list.ts";
import { personal } from "./person.ts";
import { list } from "./plants.ts";
import { capture, keepUnchanged, readSubject, type Subject, toBulkFilter } from "./subject.ts";
import { toast } from "./toasts.ts";

/** Each list has its own selection. */
export const selection = computed(() => list.value.selection.value);
/** The selected plants as the list shows them now. Plants that are gone are left out. */
export const picked = computed(() => {
  void list.value.version.value;
  const { ids } = selection.value;
  return ids.size === 0 ? [] : list.value.plants.filter(({ id }) => ids.has(id));
});

export const hasSelection = computed(() => selection.value.isAll || picked.value.length > 0);

export const isSelected = (id: bigint): boolean =>
  selection.value.ids.has(id) !== selection.value.isAll;

export function selectAll(isAll: boolean): void {
  list.value.selection.value = { isAll, ids: new Set() };
}

/** The next one that is selected is the end of a range: a finger has no Shift. */
export const isRangeNext = personal(false);

/** With `isShift`, also every plant between this one and the one selected before. */
export function select(index: number, isShift: boolean): void {
  const isRange = isShift || isRangeNext.value;
  isRangeNext.value = false;
  const { isAll, ids, last } = selection.value;
  const chosen = list.value.plants[index];
  if (chosen === undefined) return;
  const isAdded = !ids.has(chosen.id);
  const changed = new Set(ids);
  const start = isRange && last !== undefined ? list.value.indexOf(last) : -1;
  const from = start === -1 ? index : start;
  for (const { id } of list.value.plants.slice(Math.min(from, index), Math.max(from, index) + 1))
    if (isAdded) changed.add(id);
    else changed.delete(id);
  list.value.selection.value = { isAll, ids: changed, last: chosen.id };
}

const everyPlant: Selection = { isAll: true, ids: new Set() };

export const captureSelected = (): Subject => capture(selection.value, list.value);
/** All that match, if none is selected. */
export const captureListed = (): Subject =>
  capture(hasSelection.value ? selection.value : everyPlant, list.value);

/**
 * The rule for questions: what cannot be undone asks, and so does the deletion of several plants, and a tag for more
 * than the first page of a list.
 */
const isAsked = (task: Task, count: number): boolean =>
  !hasHistory.value || count > (task.kind === "delete" ? 1 : TAGGED_MAX);
const TAGGED_MAX = 100;

/** A bulk action that waits for its count, and then for an answer. */
class BulkQuestion extends Question<Subject, number> {
  readonly task: Task;

  constructor(task: Task) {
    super(captureSelected(), {
      look: (about, ended) => countPlants(task, about, ended),
      after: keepUnchanged,
      onFound: (count, isFirst) => {
        if (count === 0) asked.close(this);
        else if (isFirst && !isAsked(task, count)) startAsked(this);
      },
      onFailure: (error) => {
        asked.close(this);
        toast(fill(t.plants.nothingDone, { why: explain(error) }));
      },
    });
    this.task = task;
  }

  /** The store keeps no changes. */
  get isFinal(): boolean {
    return !hasHistory.value;
  }
}

/** Until it is counted, another selection can be made. */
export const asked = new Modal<BulkQuestion>(() => [...ofPage(), list.value, selection.value]);

export const counting = computed((): Work | undefined =>
  asked.value === undefined || asked.value.found.value !== undefined
    ? undefined
    : { text: t.shared.counting, stop: () => asked.close() },
);

export function askAboutSelected(task: Task): void {
  const question = new BulkQuestion(task);
  asked.open(question);
  void question.look();
}

function countPlants(task: Task, about: Subject, ended: AbortSignal): Promise<number> | number {
  const { plants, matching } = about;
  if (matching === undefined) return plants.length;
  return call(async (client) => {
    const options = { signal: ended };
    let count = 0;
    if (!isExcludedByUrl(matching)) {
      for await (const block of readSubject(client, about, options)) count += block.length;
      return count;
    }
    const patch = patchOf(task);
    const filter = toBulkFilter(matching);
    const preview = await (patch === undefined
      ? client.previewRemoval(filter, options)
      : client.previewPatch(filter, patch, options));
    return preview.plants + plants.length;
  });
}

/** The work is on what was asked about. The selection is not read again. */
export function startAsked(question: BulkQuestion): void {
  if (asked.value !== question) return;
  const { task, about, found } = question;
  asked.close(question);
  startAction(task, about, found.value ?? 0);
}

/** In words, for a question. */
export function describeSubject({ matching }: Subject): string {
  if (matching === undefined) return t.plants.theseSelected;
  const { filter, excepted } = matching;
  const parts = filterNames.flatMap((name) => {
    const value = filter[name];
    if (value === undefined || !narrows({ [name]: value })) return [];
    if (typeof value === "boolean") return t.plants.thatTagged[`${value}`];
    const text = name === "tag" ? t.plants.thatHaveTag : t.plants.thatMatch;
    return fill(text, { value: quote(value) });
  });
  if (parts.length === 0)
    return excepted === 0 ? t.plants.theseAll : fill(t.plants.theseAllBut, { excepted });
  const what = join(parts);
  return excepted === 0
    ? fill(t.plants.theseThat, { what })
    : fill(t.plants.theseThatBut, { what, excepted });
}
