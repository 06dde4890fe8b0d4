/** Edits that are not saved yet. This tab keeps them over reloads and sign-ins, until they are saved or discarded. */

import { signal } from "@preact/signals";

export interface Draft {
  readonly name: string;
  readonly tag?: string | undefined;
  /** Of a new plant, as typed. */
  readonly id?: string;
  /** The version that was edited. */
  readonly etag?: string;
}

const KEY = "plantstore.drafts";

/** By the id of the plant, or "new". */
const drafts = signal<Readonly<Record<string, Draft>>>(readDrafts());

export const findDraft = (of: bigint | "new"): Draft | undefined => drafts.value[String(of)];

/** Undefined removes the draft. */
export function keepDraft(of: bigint | "new", draft: Draft | undefined): void {
  const { [String(of)]: _replaced, ...others } = drafts.value;
  replaceDrafts(draft === undefined ? others : { ...others, [String(of)]: draft });
}

export const forgetDrafts = (): void => replaceDrafts({});

function replaceDrafts(kept: Readonly<Record<string, Draft>>): void {
  drafts.value = kept;
  try {
    if (Object.keys(kept).length === 0) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // The browser may forbid storage. A reload then loses the drafts.
  }
}

function readDrafts(): Record<string, Draft> {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "{}") as Record<string, Draft>;
  } catch {
    return {};
  }
}
