/** The tag filter: a combobox of the tags in use. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { TagCount } from "../../client/client.ts";
import { call } from "../api/service.ts";
import { formatTotal } from "../state/format.ts";
import { refine, route } from "../state/route.ts";
import { t } from "../text/text.ts";
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
  const options = isOpen.value ? findOptions(tags.value, isTyped ? text.value : "") : [];
  const open = (): void => {
    if (isOpen.value) return;
    isOpen.value = true;
    active.value = -1;
    loading.current = read("").catch(() => undefined);
  };
  const pick = (picked: Option | undefined): void => {
    isOpen.value = false;
    text.value = picked?.tag ?? "";
    const isUntagged = picked !== undefined && picked.tag === undefined;
    refine({ tag: picked?.tag, tagged: isUntagged ? false : undefined });
  };
  /** Picks the active option, or a tag that is not listed, which has to be typed in full. */
  const pickTyped = async (typed: string): Promise<void> => {
    // Enter may come before the tags.
    if (tags.value.length === 0) await loading.current;
    if (isOpen.value && text.value === typed)
      pick(findOptions(tags.value, typed)[active.value] ?? { tag: typed });
  };
  const move = (by: number): void => {
    open();
    active.value = Math.max(0, Math.min(active.value + by, options.length - 1));
    document.querySelector(`#tag-option-${active.value}`)?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") move(isOpen.value ? 1 : 0);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter" && isTyped && text.value !== "") void pickTyped(text.value);
    else if (event.key === "Enter" && options[active.value] !== undefined)
      pick(options[active.value]);
    else if (event.key === "Enter" && text.value === "") pick(undefined);
    else if (event.key === "Escape" && isOpen.value) {
      isOpen.value = false;
      text.value = tag ?? "";
    } else if (event.key === "Escape") focusList();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="tag-filter with-button">
      <input
        id="tag-filter"
        type="text"
        role="combobox"
        aria-label={t.plants.filterByTag}
        aria-autocomplete="list"
        aria-expanded={options.length > 0 ? "true" : "false"}
        aria-controls="tag-options"
        aria-activedescendant={
          options[active.value] === undefined ? undefined : `tag-option-${active.value}`
        }
        placeholder={tagged === undefined ? anyOrEmpty : t.plants.tagged[`${tagged}`]}
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onClick={open}
        onInput={({ currentTarget: { value } }) => {
          open();
          active.value = value === "" ? -1 : 0;
          text.value = value;
          if (value === "") refine({ tag: undefined });
        }}
        onKeyDown={onKeyDown}
        onBlur={() => {
          const isTag = tags.value.some((each) => each.tag === text.value);
          if (isTyped && text.value !== "" && isTag) pick({ tag: text.value });
          isOpen.value = false;
          if (!isTag) text.value = tag ?? "";
        }}
      />
      <ul class="options" id="tag-options" role="listbox" aria-label={t.plants.tagsInUse}>
        {options.map((option, index) => (
          <li
            key={option.tag ?? "\0"}
            id={`tag-option-${index}`}
            role="option"
            aria-selected={index === active.value ? "true" : "false"}
            // The field keeps the focus.
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => pick(option)}
          >
            <span class="cut">
              {option.tag || (
                <i>{option.tag === "" ? t.plants.theEmptyTag : t.plants.tagged.false}</i>
              )}
            </span>
            {"count" in option && <small>{formatTotal(option)}</small>}
          </li>
        ))}
      </ul>
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
