/** The plants view: search and filters, the list, the selection bar, and the panel with the open plant. */

import { effect, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../src/domain/json.ts";
import { sortNames } from "../../src/domain/page.ts";
import { work } from "../state/action.ts";
import { formatTotal } from "../state/format.ts";
import { list, total } from "../state/plants.ts";
import { isWhole, linkTo, openPlant, refine, route } from "../state/route.ts";
import {
  askAboutSelected,
  captureSelected,
  counting,
  hasSelection,
  isRangeNext,
  picked,
  selectAll,
  selection,
} from "../state/selection.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { fill, plural, t } from "../text/text.ts";
import { AddPanel } from "./add-panel.tsx";
import { Progress, TagForm } from "./bulk.tsx";
import { CameraButton } from "./camera.tsx";
import { Button, Icon } from "./controls.tsx";
import { ListStatus, Unknown } from "./empty-states.tsx";
import { ExportMenu } from "./export.tsx";
import { labelled } from "./labels.tsx";
import { PlantGrid } from "./plant-grid.tsx";
import { PlantPanel } from "./plant-panel.tsx";
import { forgetCode, openCode } from "./scanner.ts";
import { useLater } from "./read.ts";
import { focusList } from "./shortcuts.tsx";
import { TagFilter } from "./tag-filter.tsx";

export function PlantsView(): JSX.Element {
  const { open } = route.value;
  // A token that may only write gets a form instead of the list.
  if (!mayRead.value)
    return (
      <div class="single">
        <h1 class="visually-hidden">{t.shell.views.plants}</h1>
        <AddPanel />
      </div>
    );
  const isOpen = open === "new" ? mayWrite.value : open !== undefined;
  return (
    <div class="plants">
      <PlantsList />
      {isOpen && (
        <div class="side">
          {open === "new" && <AddPanel />}
          {typeof open === "bigint" && <PlantPanel key={open} id={open} />}
        </div>
      )}
    </div>
  );
}

function PlantsList(): JSX.Element {
  const { filter, plants, version } = list.value;
  void version.value;
  return (
    <section class="plants-list" aria-labelledby="plants-title">
      <div class="section-head">
        <h1 id="plants-title">{t.shell.views.plants}</h1>
        <CountLine />
      </div>
      <Filters />
      {plants.length > 0 ? (
        // Another list has its own place, and does not inherit this one's.
        <PlantGrid key={linkTo(undefined, filter)} />
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
  const { plants } = list.value;
  return (
    <p class="count">
      <span>{describeCount()}</span>
      {/* An empty list offers it in its place. */}
      {plants.length > 0 && <Unknown />}
    </p>
  );
}

function describeCount(): string {
  const { filter, matches } = list.value;
  const isAll = isWhole(filter);
  const all = (isAll ? matches.value : undefined) ?? total.value;
  if (all === undefined) return "";
  const plants = all.exact
    ? plural(t.shared.plants, all.count)
    : fill(t.plants.some, { count: formatTotal(all) });
  if (isAll) return plants;
  return matches.value === undefined
    ? fill(t.plants.searchingIn, { plants })
    : fill(t.plants.found, { count: formatTotal(matches.value), plants });
}

const SEARCH_DELAY_MS = 180;

function Filters(): JSX.Element {
  return (
    <search class="filters">
      <SearchBox />
      <TagFilter />
      <OrderChoice />
      {!hasSelection.value && <ExportMenu />}
      {mayWrite.value && (
        <a
          class="button button-main"
          href={linkTo("new")}
          aria-label={t.plants.add}
          aria-keyshortcuts="n"
        >
          <Icon name="plus" />
          <span class="wide">{t.plants.add}</span>
          <span class="narrow-only">{t.plants.addShort}</span>
        </a>
      )}
    </search>
  );
}

function OrderChoice(): JSX.Element {
  const { sort = "id", order } = route.value.filter;
  return (
    <select
      class="order"
      aria-label={t.plants.order}
      value={`${sort} ${order}`}
      onChange={({ currentTarget: { value } }) => {
        const [by, direction] = value.split(" ");
        const sorted = sortNames.find((name) => name === by);
        refine({ sort: sorted, order: direction === "desc" ? "desc" : "asc" });
      }}
    >
      {Object.entries(t.plants.orders).map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

function SearchBox(): JSX.Element {
  const query = route.value.filter.q ?? "";
  const text = useSignal(query);
  const applied = useRef(query);
  /** The text was searched for: the next one replaces it. */
  const isDone = useRef(true);
  // Take over a filter from a link. A value that this box applied itself may be older than its text.
  useLayoutEffect(() => {
    if (query === applied.current) return;
    applied.current = query;
    text.value = query;
    isDone.current = true;
  }, [query]);
  const apply = (): void => {
    applied.current = text.value;
    const q = text.value.trim() === "" ? undefined : text.value;
    if (q !== route.value.filter.q) refine({ q });
  };
  useLater(SEARCH_DELAY_MS, apply, [text.value]);
  const finish = (): void => {
    isDone.current = true;
    const words = text.value.trim();
    if (findInt64(words) !== undefined) void openCode(words);
    else if (words !== "") closeIfEmpty(list.value);
  };
  return (
    <div class="search">
      <Icon name="search" />
      <input
        id="search"
        type="search"
        aria-label={t.plants.search}
        placeholder={t.plants.searchHint}
        aria-keyshortcuts="/"
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          isDone.current = false;
          forgetCode();
        }}
        // At once: a later change of the URL would be taken for the user's, and end the lookup of a scan.
        onChange={apply}
        onBlur={() => (isDone.current = true)}
        // The first click selects the text, the next one sets the cursor in it.
        onClick={({ currentTarget: field }) => {
          if (isDone.current && field.selectionStart === field.selectionEnd) field.select();
          isDone.current = false;
        }}
        onKeyDown={(event) => {
          if (event.isComposing || !["Enter", "ArrowDown", "Escape"].includes(event.key)) return;
          apply();
          if (event.key === "Enter") {
            // The next text replaces this one.
            event.currentTarget.select();
            finish();
          } else focusList();
          event.preventDefault();
          event.stopPropagation();
        }}
      />
      <CameraButton />
    </div>
  );
}

/** Beside an empty list, a plant that is still open would be taken for the one that was searched for. */
function closeIfEmpty(searched: typeof list.value): void {
  const stop = effect(() => {
    void searched.version.value;
    const isOther = list.value !== searched || searched.plants.length > 0;
    if (!isOther && searched.phase.value !== "end") return;
    queueMicrotask(() => stop());
    if (!isOther && typeof route.peek().open === "bigint") openPlant(undefined);
  });
}

/** Below the list: the number of selected plants, and the actions on them. */
function SelectionBar(): JSX.Element | null {
  if (work.value !== undefined || counting.value !== undefined) return <Progress />;
  if (!hasSelection.value) return null;
  return (
    <section class="selection" aria-label={t.plants.selection}>
      <Button
        kind="plain"
        icon="close"
        label={t.plants.selectNone}
        aria-keyshortcuts="Escape"
        onClick={() => selectAll(false)}
      />
      <strong>{describeSelection()}</strong>
      {selection.value.last !== undefined && (
        <Button
          class="button button-icon touch-only"
          icon="range"
          label={t.plants.selectTo}
          aria-pressed={isRangeNext.value ? "true" : "false"}
          onClick={() => (isRangeNext.value = !isRangeNext.value)}
        />
      )}
      <Button icon="print" onClick={() => labelled.open(captureSelected())}>
        {t.plants.labels}
      </Button>
      <ExportMenu />
      {mayWrite.value && (
        <Button kind="danger" icon="trash" onClick={() => askAboutSelected({ kind: "delete" })}>
          {t.shared.delete}
        </Button>
      )}
      {mayWrite.value && <TagForm />}
    </section>
  );
}

function describeSelection(): string {
  const { isAll } = selection.value;
  const some = picked.value.length;
  if (!isAll) return plural(t.plants.selected, some);
  const { value: matching } = list.value.matches;
  if (matching === undefined)
    return some > 0 ? fill(t.plants.allButSelected, { excepted: some }) : t.plants.allSelected;
  const count = formatTotal(matching);
  return some > 0
    ? fill(t.plants.allCountButSelected, { count, excepted: some })
    : fill(t.plants.allCountSelected, { count });
}
