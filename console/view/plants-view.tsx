/** The plants view: search and filters, the list, the selection bar, and the panel with the open plant. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../src/domain/plant.ts";
import { findTaken } from "../api/plants.ts";
import { useNews } from "../state/feed.ts";
import { formatCount, formatName, formatTotal } from "../state/format.ts";
import { list, total } from "../state/plants.ts";
import { isWhole, linkTo, openPlant, refine, route } from "../state/route.ts";
import {
  hasSelection,
  picked,
  runOnSelected,
  selectAll,
  selection,
  work,
} from "../state/selection.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { AddPanel } from "./add-panel.tsx";
import { BulkQuestion, Progress, TagForm } from "./bulk.tsx";
import { Button, Icon } from "./controls.tsx";
import { ListStatus } from "./empty-states.tsx";
import { ExportMenu } from "./export.tsx";
import { TagInput, useLater, useLookUp } from "./form.tsx";
import { PlantGrid } from "./plant-grid.tsx";
import { PlantPanel } from "./plant-panel.tsx";
import { focusList } from "./shortcuts.tsx";

export function PlantsView(): JSX.Element {
  const { open } = route.value;
  // A token that may only write gets a form instead of the list.
  if (!mayRead.value)
    return (
      <div class="single">
        <h1 class="visually-hidden">Plants</h1>
        <AddPanel />
      </div>
    );
  return (
    <div class="plants">
      <PlantsList />
      {open === "new" && mayWrite.value && <AddPanel />}
      {typeof open === "bigint" && <PlantPanel key={open} id={open} />}
    </div>
  );
}

function PlantsList(): JSX.Element {
  const { plants, version } = list.value;
  void version.value;
  return (
    <section class="plants-list" aria-labelledby="plants-title">
      <div class="section-head">
        <h1 id="plants-title">Plants</h1>
        <CountLine />
      </div>
      <Filters />
      {plants.length > 0 ? (
        <PlantGrid />
      ) : (
        <div class="scroller">
          <ListStatus />
        </div>
      )}
      <SelectionBar />
    </section>
  );
}

function CountLine(): JSX.Element {
  const { filter, count } = list.value;
  const id = findInt64((filter.q ?? "").trim());
  const news = useNews((change) => change.id === id);
  const key = id === undefined ? undefined : `${id} ${news?.seq}`;
  const searched = useLookUp(key, (signal) => findTaken(id ?? 0n, signal));
  return (
    <p class="count">
      {searched !== undefined ? (
        <a class="cut" href={linkTo(searched.id)}>
          Id {String(searched.id)}: {formatName(searched)}
        </a>
      ) : (
        count.value !== undefined &&
        total.value !== undefined && (
          <span>
            {!isWhole(filter) && `${formatTotal(count.value)} of `}
            {formatTotal(total.value)} {total.value.count === 1 ? "plant" : "plants"}
          </span>
        )
      )}
    </p>
  );
}

const SEARCH_DELAY_MS = 180;

function Filters(): JSX.Element {
  const isDescending = route.value.filter.order === "desc";
  return (
    <search class="filters">
      <SearchBox />
      <TagFilter />
      <Button
        icon={isDescending ? "descending" : "ascending"}
        label={`Order: ${isDescending ? "Highest" : "Lowest"} id first`}
        onClick={() => refine({ order: isDescending ? "asc" : "desc" })}
      />
      <ExportMenu />
      {mayWrite.value && (
        <a
          class="button button-main"
          href={linkTo("new")}
          aria-label="Add plant"
          aria-keyshortcuts="n"
        >
          <Icon name="plus" />
          Add <span class="wide">plant</span>
        </a>
      )}
    </search>
  );
}

function SearchBox(): JSX.Element {
  const given = route.value.filter.q ?? "";
  const text = useSignal(given);
  const applied = useRef(given);
  // Take over a filter from a link. A value that this box applied itself may be older than its text.
  useLayoutEffect(() => {
    if (given === applied.current) return;
    applied.current = given;
    text.value = given;
  }, [given]);
  const apply = (): void => {
    applied.current = text.value;
    const q = text.value.trim() === "" ? undefined : text.value;
    if (q !== route.value.filter.q) refine({ q });
  };
  useLater(SEARCH_DELAY_MS, apply, [text.value]);
  const openExact = async (): Promise<void> => {
    const asked = text.value;
    const id = findInt64(asked.trim());
    if (id === undefined || (await findTaken(id)) === undefined) return;
    // The user may have typed on or moved the focus.
    if (text.value === asked && document.activeElement?.id === "search") openPlant(id);
  };
  return (
    <div class="search">
      <Icon name="search" />
      <input
        id="search"
        type="search"
        aria-label="Search"
        placeholder="Name, tag or id"
        aria-keyshortcuts="/"
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.isComposing || !["Enter", "ArrowDown", "Escape"].includes(event.key)) return;
          apply();
          if (event.key === "Enter") void openExact().catch(() => undefined);
          else focusList();
          event.preventDefault();
          event.stopPropagation();
        }}
      />
    </div>
  );
}

function TagFilter(): JSX.Element {
  const { tag } = route.value.filter;
  const text = useSignal(tag ?? "");
  useLayoutEffect(() => {
    text.value = tag ?? "";
  }, [tag]);
  return (
    <div class="tag-filter with-button">
      <TagInput
        id="tag-filter"
        aria-label="Filter by tag"
        placeholder={tag === "" ? "empty tag" : "Any tag"}
        value={text.value}
        onInput={({ currentTarget: { value } }) => {
          text.value = value;
          if (value === "") refine({ tag: undefined });
        }}
        onChange={() => text.value !== "" && refine({ tag: text.value })}
      />
      {tag !== undefined && (
        <Button
          kind="plain"
          icon="close"
          label="Any tag"
          onClick={() => refine({ tag: undefined })}
        />
      )}
    </div>
  );
}

/** Below the list: the number of selected plants, and the actions on them. */
function SelectionBar(): JSX.Element | null {
  if (work.value !== undefined) return <Progress />;
  if (!hasSelection.value) return null;
  return (
    <section class="selection" aria-label="Selection">
      <Button
        kind="plain"
        icon="close"
        label="Select none"
        aria-keyshortcuts="Escape"
        onClick={() => selectAll(false)}
      />
      <strong>{describeSelection()}</strong>
      {mayWrite.value && (
        <Button kind="danger" icon="trash" onClick={() => void runOnSelected({ kind: "delete" })}>
          Delete
        </Button>
      )}
      {mayWrite.value && <TagForm />}
      <BulkQuestion />
    </section>
  );
}

function describeSelection(): string {
  const { isAll } = selection.value;
  const some = picked.value.length;
  if (!isAll) return `${formatCount(some)} selected`;
  const { count } = list.value;
  const all = count.value === undefined ? "All" : `All ${formatTotal(count.value)}`;
  return `${all}${some > 0 ? ` but ${formatCount(some)}` : ""} selected`;
}
