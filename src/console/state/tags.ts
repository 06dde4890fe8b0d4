/** The tags in use, for suggestions. */

import { signal } from "@preact/signals";
import { readTags } from "../api/plants.ts";

const TAGS_AT_ONCE = 1000;

/** Those that come first; `isAll` where there are no others. */
const known = signal<{ readonly tags: readonly string[]; readonly isAll: boolean } | undefined>(
  undefined,
);

const SUGGESTIONS_MAX = 50;

/** A tag that has just been given is one in use. */
export function noteTag(tag: string | undefined): void {
  if (tag === undefined || known.value === undefined || known.value.tags.includes(tag)) return;
  known.value = { ...known.value, tags: [...known.value.tags, tag].toSorted() };
}

export function forgetTags(): void {
  known.value = undefined;
}

/** Where all are known, those that have the text anywhere in them; else those that the service finds. */
export async function suggestTags(text: string, signalOff: AbortSignal): Promise<string[]> {
  known.value ??= await readTags("", TAGS_AT_ONCE, signalOff);
  const part = text.toUpperCase();
  const local = known.value.tags.filter((tag) => tag.toUpperCase().includes(part));
  if (known.value.isAll || text === "") return local.slice(0, SUGGESTIONS_MAX);
  const { tags } = await readTags(text, SUGGESTIONS_MAX, signalOff);
  return [...new Set([...tags, ...local])].slice(0, SUGGESTIONS_MAX);
}
