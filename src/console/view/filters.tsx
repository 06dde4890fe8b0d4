/** Above the list: what to look for. The address follows, so that it can be shared. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { currentFilter, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { suggestTags } from "../state/tags.ts";
import { Combobox } from "./combobox.tsx";
import { ExportMenu } from "./export-menu.tsx";
import { Icon } from "./icons.tsx";

const SEARCH_DELAY_MS = 180;

export function Filters(): JSX.Element {
  const { order } = currentFilter();
  const isDescending = order === "desc";
  const label = isDescending ? "Highest id first" : "Lowest id first";
  return (
    <search class="filters">
      <SearchBox />
      <TagFilter />
      <button
        type="button"
        class="button button-icon"
        aria-label={`Order: ${label}`}
        title={label}
        onClick={() => refine({ ...currentFilter(), order: isDescending ? "asc" : "desc" })}
      >
        <span class="order" data-flipped={isDescending ? "" : undefined}>
          <Icon name="order" />
        </span>
      </button>
      <ExportMenu />
      {mayWrite.value && (
        <a class="button button-main filters-add" href={linkTo("new")} aria-keyshortcuts="n">
          <Icon name="plus" />
          Add plant
        </a>
      )}
    </search>
  );
}

function SearchBox(): JSX.Element {
  const given = currentFilter().name ?? "";
  const text = useSignal(given);
  const applied = useRef(given);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  // By a link, or by the way out of an empty list; what came from here may be older than what stands here by now.
  useEffect(() => {
    if (given === applied.current) return;
    applied.current = given;
    text.value = given;
  }, [given]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const apply = (): void => {
    clearTimeout(timer.current);
    applied.current = text.value;
    const name = text.value === "" ? undefined : text.value;
    if (name !== currentFilter().name) refine({ ...currentFilter(), name });
  };
  return (
    <div class="search">
      <Icon name="search" />
      <input
        id="search"
        type="search"
        aria-label="Search by name"
        placeholder="Search by name"
        aria-keyshortcuts="/"
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = setTimeout(apply, SEARCH_DELAY_MS);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") apply();
          else if (event.key === "ArrowDown") {
            apply();
            document.querySelector<HTMLElement>("#plants")?.focus();
          } else return;
          event.preventDefault();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

const applyTag = (tag: string | undefined): void => refine({ ...currentFilter(), tag });

function TagFilter(): JSX.Element {
  const { tag } = currentFilter();
  const text = useSignal(tag ?? "");
  useEffect(() => {
    text.value = tag ?? "";
  }, [tag]);
  return (
    <div class="tag-filter" data-set={tag === undefined ? undefined : ""}>
      <Icon name="tag" />
      <Combobox
        id="tag-filter"
        label="Filter by tag"
        placeholder={tag === "" ? "empty tag" : "Any tag"}
        value={text.value}
        suggest={suggestTags}
        onInput={(next) => {
          text.value = next;
          if (next === "" && tag !== undefined) applyTag(undefined);
        }}
        onChoose={(chosen, isPicked) => applyTag(chosen === "" && !isPicked ? undefined : chosen)}
      />
      {tag !== undefined && (
        <button
          type="button"
          class="button-clear"
          aria-label="Any tag"
          title="Any tag"
          onClick={() => applyTag(undefined)}
        >
          <Icon name="close" />
        </button>
      )}
    </div>
  );
}
