/** Saves whose connection was lost: each is sent once more when it is back. */

import { computed, effect, untracked } from "@preact/signals";
import type { Plant } from "../../src/domain/plant.ts";
import { etagOf } from "../api/etag.ts";
import { explain, recoveries } from "../api/service.ts";
import { fill, t } from "../text/text.ts";
import { formatName } from "./format.ts";
import { personal } from "./person.ts";
import { openPlant } from "./route.ts";
import { token } from "./session.ts";
import { findDraft, keepDraft, listDrafts } from "./storage.ts";
import { toast } from "./toasts.ts";

interface LateSave {
  readonly plant: Plant;
  /** Conditional, because the first attempt may have succeeded, and others may have changed the plant since. */
  readonly send: () => Promise<unknown>;
}

/** By the id of the plant, or "new". Its draft is kept meanwhile. */
export const waiting = personal<ReadonlyMap<bigint | "new", LateSave>>(new Map());

/** A form in which nothing was typed is no edit. */
export const edits = computed(() =>
  listDrafts().filter(([of, { name, tag, etag }]) =>
    of === "new" ? name.trim() !== "" : etagOf({ id: of, name, tag }) !== etag,
  ),
);

/** How many edits signing out would lose. */
export const unsaved = computed(
  () => new Set([...edits.value.map(([of]) => of), ...waiting.value.keys()]).size,
);

/** Undefined gives it up. */
export function saveLater(of: bigint | "new", save: LateSave | undefined): void {
  const next = new Map(waiting.peek());
  if (save === undefined) next.delete(of);
  else next.set(of, save);
  waiting.value = next;
}

export function discardEdit(of: bigint | "new"): void {
  keepDraft(of, undefined);
  saveLater(of, undefined);
}

async function send(of: bigint | "new", { plant, send: sendAgain }: LateSave): Promise<void> {
  try {
    await sendAgain();
  } catch (error) {
    if (token.value === undefined) return;
    // A version that was to be restored has no draft.
    const draft = findDraft(of) && of;
    const open = { label: t.shared.open, isNeeded: true, draft, run: () => openPlant(of) };
    toast(fill(t.plants.lateFailed, { plant: formatName(plant), why: explain(error) }), open);
  }
}

export const startSaving = (): void =>
  void effect(() => {
    if (recoveries.value === 0) return;
    untracked(() => {
      const late = waiting.value;
      waiting.value = new Map();
      for (const [of, save] of late) void send(of, save);
    });
  });
