/** The tag filter: a combobox of the tags in use. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { TagCount } from "../../client/client.ts";
import { call } from "../api/service.ts";
import { formatTotal } from "../state/format.ts";
import { refine, route } from "../state/route.ts";
import { t } from "../text/text.ts";
import { Combobox } from "./combobox.tsx";
import { Button } from "./controls.tsx";
import { focusField } from "./form.tsx";
import { useLater } from "./read.ts";
import { focusList } from "./shortcuts.tsx";

const TAGS_MAX = 1000;
/** More would not be read. The user types on. */
const OPTIONS_MAX = 50;
const PREFIX_DELAY_MS = 150;

/** Without case and accents. */
const fold = (text: string): string =>
  text.normalize("NFD").replaceAll(/\p{M}/gu, "").toLowerCase();

/** A tag, with its count if it is in use; undefined stands for plants without a tag. */
type Option = TagCount | { readonly tag: string | undefined };

/** Exact tags first, then those that start with the text, then those that contain it. */
function findOptions(tags: readonly TagCount[], text: string): readonly Option[] {
  const part = fold(text);
  const untagged: Option[] = fold(t.plants.tagged.false).startsWith(part)
    ? [{ tag: undefined }]
    : [];
  const rank = ({ tag }: TagCount): number =>
    tag === text ? 0 : fold(tag) === part ? 1 : fold(tag).startsWith(part) ? 2 : 3;
  const found = tags
    .filter(({ tag }) => fold(tag).includes(part))
    .toSorted((one, other) => rank(one) - rank(other))
    .slice(0, OPTIONS_MAX);
  return text === "" ? [...untagged, ...found] : [...found, ...untagged];
}

export function TagFilter(): JSX.Element {
  const { tag, tagged } = route.value.filter;
  const text = useSignal(tag ?? "");
  const isOpen = useSignal(false);
  /** The option that Enter picks; -1 is none. */
  const active = useSignal(-1);
  const tags = useSignal<readonly TagCount[]>([]);
  /** The first page does not have all tags. */
  const hasMore = useSignal(false);
  const loading = useRef(Promise.resolve());
  useLayoutEffect(() => {
    text.value = tag ?? "";
  }, [tag]);
  // Suggestions are optional, so a failure is ignored.
  const read = async (prefix: string, signal?: AbortSignal): Promise<void> => {
    const query = { prefix, limit: TAGS_MAX };
    const page = await call((client) => client.countTagPage(query, { signal }));
    const found = new Set(page.tags.map((each) => each.tag));
    tags.value = [...page.tags, ...tags.value.filter((each) => !found.has(each.tag))];
    if (prefix === "") hasMore.value = page.next !== undefined;
  };
  useLater(
    PREFIX_DELAY_MS,
    (signal) => {
      if (isOpen.value && hasMore.value && text.value !== "")
        void read(text.value, signal).catch(() => undefined);
    },
    [text.value, hasMore.value],
  );

  // Until something is typed, all tags are offered.
  const isTyped = text.value !== (tag ?? "");
  const anyOrEmpty = tag === "" ? t.plants.theEmptyTag : t.plants.anyTag;
  const listOptions = (): readonly Option[] => findOptions(tags.value, isTyped ? text.value : "");
  const open = (): void => {
    if (isOpen.value) return;
    isOpen.value = true;
    active.value = -1;
    loading.current = read("").catch(() => undefined);
  };
  const close = (): void => {
    isOpen.value = false;
    text.value = tag ?? "";
  };
  const pick = (picked: Option | undefined): void => {
    isOpen.value = false;
    text.value = picked?.tag ?? "";
    const isUntagged = picked !== undefined && picked.tag === undefined;
    refine({ tag: picked?.tag, tagged: isUntagged ? false : undefined });
  };
  /** Picks the active option, or a tag that is not listed, which has to be typed in full. */
  const enter = async (): Promise<void> => {
    const typed = text.value;
    // Enter may come before the tags.
    if (isTyped && tags.value.length === 0) await loading.current;
    if (!isOpen.value || text.value !== typed) return;
    pick(listOptions()[active.value] ?? (typed === "" ? undefined : { tag: typed }));
  };
  return (
    <div class="tag-filter with-button">
      <Combobox
        id="tag-filter"
        aria-label={t.plants.filterByTag}
        listLabel={t.plants.tagsInUse}
        placeholder={tagged === undefined ? anyOrEmpty : t.plants.tagged[`${tagged}`]}
        value={text.value}
        options={isOpen.value ? listOptions() : []}
        active={active}
        show={showOption}
        onClick={open}
        onInput={({ currentTarget: { value } }) => {
          open();
          active.value = value === "" ? -1 : 0;
          text.value = value;
          if (value === "") refine({ tag: undefined });
        }}
        onOpen={open}
        onPick={pick}
        onEnter={() => void enter()}
        onEscape={() => (isOpen.value ? close() : focusList())}
        onBlur={() => {
          const isTag = tags.value.some((each) => each.tag === text.value);
          if (isTyped && text.value !== "" && isTag) pick({ tag: text.value });
          else close();
        }}
      />
      {(tag ?? tagged) !== undefined && (
        <Button
          kind="plain"
          icon="close"
          label={t.plants.anyTag}
          onClick={() => {
            pick(undefined);
            focusField("tag-filter");
          }}
        />
      )}
    </div>
  );
}

const showOption = (option: Option): JSX.Element => (
  <>
    <span class="cut">
      {option.tag || <i>{option.tag === "" ? t.plants.theEmptyTag : t.plants.tagged.false}</i>}
    </span>
    {"count" in option && <small>{formatTotal(option)}</small>}
  </>
);
