/** The list: a virtualized grid with keyboard navigation. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { isSame } from "../../src/domain/plant.ts";
import { formatName, formatWhen } from "../state/format.ts";
import type { ListFilter, TimedPlant } from "../api/plants.ts";
import { findDraft } from "../state/storage.ts";
import { list } from "../state/plants.ts";
import { findPlace, keepPlace, linkTo, openPlant, refine, route } from "../state/route.ts";
import {
  askAboutSelected,
  hasSelection,
  isSelected,
  select,
  selectAll,
  selection,
} from "../state/selection.ts";
import { mayWrite } from "../state/session.ts";
import { fill, t } from "../text/text.ts";
import { Icon } from "./controls.tsx";
import { ListStatus } from "./empty-states.tsx";
import { Tag } from "./tag.tsx";

/** In pixels: users can enlarge the text. */
const REM = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
/** Touch needs larger rows; the stylesheet has the same query. In a narrow list a row has two lines. */
const IS_TOUCH = matchMedia("(pointer: coarse)").matches;
const [HEAD_HEIGHT, ROW_HEIGHT, TWO_LINES_ROW_HEIGHT] = IS_TOUCH
  ? [2.75 * REM + 1, 3 * REM, 4 * REM]
  : [2.1875 * REM + 1, 2.25 * REM, 3.5 * REM];
/** The stylesheet has the same width. */
const TWO_LINES_WIDTH_MAX = 43.75 * REM;
/** The next page is loaded this many screens ahead. */
const SCREENS_AHEAD = 2;
/** Rows rendered above and below the visible ones. */
const ROWS_BEYOND = 10;

/** Which rows are drawn, and where: keeps the visible ones in place, loads more ahead, and shows the active one. */
function useScroll(shown: typeof list.value) {
  const scroller = useRef<HTMLDivElement>(null);
  /** The visible part of the list. */
  const visible = useSignal({ top: 0, height: 800, rowHeight: ROW_HEIGHT });
  // Reading the version subscribes to changes of the list.
  const version = shown.version.value;
  const { plants } = shown;
  const { top, height, rowHeight } = visible.value;
  const end = Math.min(plants.length, Math.ceil((top + height) / rowHeight) + ROWS_BEYOND);
  const start = Math.max(0, Math.min(end, Math.floor(top / rowHeight) - ROWS_BEYOND));
  const activeId = shown.active.value;
  const active = activeId === undefined ? -1 : shown.placeOf(activeId);
  /** The first visible row, or the stored one until the list is loaded that far. */
  const anchor = useRef(findPlace(shown.filter));
  const isPlaced = useRef(anchor.current === undefined);
  const placedHeight = useRef(rowHeight);

  const measure = (): void => {
    if (scroller.current === null) return;
    const { scrollTop, clientHeight, clientWidth } = scroller.current;
    const hasTwoLines = clientWidth <= TWO_LINES_WIDTH_MAX;
    const each = hasTwoLines ? TWO_LINES_ROW_HEIGHT : ROW_HEIGHT;
    visible.value = { top: scrollTop, height: clientHeight, rowHeight: each };
    // After a change of the row height, scrollTop is stale until the rows are placed again.
    if (!isPlaced.current || each !== placedHeight.current) return;
    anchor.current = scrollTop === 0 ? undefined : plants[Math.floor(scrollTop / each)]?.id;
    keepPlace(shown.filter, anchor.current);
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    if (scroller.current !== null) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  // Visible rows stay in place when plants appear or disappear above them.
  useLayoutEffect(() => {
    const element = scroller.current;
    placedHeight.current = rowHeight;
    if (element === null || anchor.current === undefined) return;
    isPlaced.current ||= shown.isLoaded(anchor.current) || shown.phase.value !== "loading";
    if (isPlaced.current)
      element.scrollTop =
        shown.placeOf(anchor.current) * rowHeight + (element.scrollTop % rowHeight);
  }, [version, shown.phase.value, rowHeight]);
  useEffect(() => shown.see(end), [end]);
  useEffect(() => {
    const rowsAhead = (top + height * (1 + SCREENS_AHEAD)) / rowHeight;
    if (shown.phase.value === "ready" && rowsAhead > plants.length) void shown.loadMore();
  });
  useEffect(() => {
    const element = scroller.current;
    if (active < 0 || element === null || !isPlaced.current) return;
    // Scroll only as far as needed to show the row below the sticky head.
    const rowTop = active * rowHeight;
    const lowest = rowTop + rowHeight - (element.clientHeight - HEAD_HEIGHT);
    element.scrollTop = Math.max(lowest, Math.min(rowTop, element.scrollTop));
    // Before the scroll event: rows that load first would put the old anchor back in place.
    measure();
  }, [activeId, rowHeight]);

  return { scroller, measure, top, height, rowHeight, start, end, active };
}

export function PlantGrid(): JSX.Element {
  const shown = list.value;
  const { plants } = shown;
  const { scroller, measure, top, height, rowHeight, start, end, active } = useScroll(shown);

  const moveTo = (index: number): void => {
    const target = plants[Math.max(0, Math.min(index, plants.length - 1))];
    shown.active.value = target?.id;
    // The panel follows the active row.
    if (typeof route.value.open === "bigint" && target !== undefined) openPlant(target.id, false);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || plants.length === 0) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "a") return;
      selectAll(true);
      return event.preventDefault();
    }
    if (event.key === "Delete" && hasSelection.value && mayWrite.value) {
      // An open plant has this key too.
      event.stopPropagation();
      return askAboutSelected({ kind: "delete" });
    }
    // The heading of a column sorts by it.
    const isPress = event.key === "Enter" || event.key === " ";
    if (isPress && event.target instanceof HTMLButtonElement) return;
    const page = Math.max(1, Math.floor((height - HEAD_HEIGHT) / rowHeight) - 1);
    const targets: Readonly<Record<string, number>> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: plants.length - 1,
    };
    const target = targets[event.key];
    if (target !== undefined) moveTo(target);
    else if (event.key === "Enter" && active >= 0) openPlant(plants[active]?.id);
    // A focused checkbox handles the space key itself.
    else if (event.key === " " && active >= 0 && !(event.target instanceof HTMLInputElement))
      select(active, event.shiftKey);
    else return;
    event.preventDefault();
  };

  const isActiveDrawn = active >= start && active < end;
  return (
    <div class="scroller" ref={scroller} onScroll={measure}>
      <div
        class="grid"
        id="plants"
        style={{ "--id-length": shown.idLength }}
        role="grid"
        aria-label={t.shell.views.plants}
        aria-rowcount={shown.phase.value === "end" ? plants.length + 1 : -1}
        aria-multiselectable="true"
        aria-activedescendant={isActiveDrawn ? `row-${active}` : undefined}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => {
          shown.active.value ??= plants[Math.ceil(top / rowHeight)]?.id;
        }}
      >
        <Heads />
        <div
          class="grid-body"
          role="rowgroup"
          style={{ height: `${plants.length * rowHeight}px`, "--row-height": `${rowHeight}px` }}
        >
          {plants.slice(start, end).map((plant, at) => (
            <Row
              key={plant.id}
              plant={plant}
              index={start + at}
              isActive={start + at === active}
              // A finger cannot tell it from the name above it. The panel has it too.
              canPickTag={!(IS_TOUCH && rowHeight === TWO_LINES_ROW_HEIGHT)}
            />
          ))}
        </div>
      </div>
      <ListStatus />
    </div>
  );
}

const Heads = (): JSX.Element => (
  <div class="grid-head" role="rowgroup">
    <div class="row row-head" role="row" aria-rowindex={1}>
      <span role="columnheader" class="row-check" onClick={() => selectAll(!selection.value.isAll)}>
        {/* The keys of the grid do the same: Tab leads from the list to the actions on what is selected. */}
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={t.plants.selectAll}
          checked={selection.value.isAll}
          indeterminate={hasSelection.value && selection.value.ids.size > 0}
        />
      </span>
      <Head by={undefined}>{t.shared.id}</Head>
      <Head by="name">{t.shared.name}</Head>
      <Head by="tag">{t.shared.tag}</Head>
      <Head by="changed">{t.plants.lastChanged}</Head>
    </div>
  </div>
);

interface HeadProps {
  readonly by: ListFilter["sort"];
  readonly children: string;
}

const headClasses: Readonly<Record<string, string>> = { id: "row-id", changed: "row-changed" };

/** Sorts by the column; again, in the other direction. The first click shows the newest change. */
function Head({ by, children }: HeadProps): JSX.Element {
  const { sort, order } = route.value.filter;
  const isSorted = sort === by;
  const direction = order === "asc" ? "ascending" : "descending";
  const first = by === "changed" ? "desc" : "asc";
  const other = order === "asc" ? "desc" : "asc";
  const next = isSorted ? other : first;
  return (
    <span
      role="columnheader"
      class={headClasses[by ?? "id"]}
      aria-sort={isSorted ? direction : "none"}
    >
      <button type="button" tabIndex={-1} onClick={() => refine({ sort: by, order: next })}>
        {children}
        {isSorted && <Icon name={direction} />}
      </button>
    </span>
  );
}

interface RowProps {
  readonly plant: TimedPlant;
  readonly index: number;
  readonly isActive: boolean;
  readonly canPickTag: boolean;
}

function Row({ plant, index, isActive, canPickTag }: RowProps): JSX.Element {
  const { id, name, tag, changed } = plant;
  const draft = findDraft(id);
  const isEdited = draft !== undefined && !isSame({ ...draft, id }, plant);
  return (
    <div
      class="row"
      role="row"
      id={`row-${index}`}
      aria-rowindex={index + 2}
      aria-selected={isSelected(id) ? "true" : "false"}
      aria-current={route.value.open === id ? "true" : undefined}
      data-active={isActive ? "" : undefined}
      style={{ "--index": index }}
    >
      {/* The whole cell is the click target. */}
      <span role="gridcell" class="row-check" onClick={(event) => select(index, event.shiftKey)}>
        <input
          type="checkbox"
          aria-label={fill(t.plants.select, { plant: formatName(plant) })}
          tabIndex={-1}
          checked={isSelected(id)}
        />
      </span>
      <span role="gridcell" class="row-id">
        {String(id)}
      </span>
      <span role="gridcell" class="row-name">
        <a
          href={linkTo(id)}
          tabIndex={-1}
          draggable={false}
          onClick={() => {
            list.value.active.value = id;
          }}
        >
          {name.trim() === "" ? <i class="faint">{t.shared.noName}</i> : name}
        </a>
        {isEdited && <span class="field-note"> {t.plants.unsavedEdit}</span>}
      </span>
      <span role="gridcell" class="row-tag">
        {canPickTag ? (
          <Tag tag={tag} tabIndex={-1} onPick={() => refine({ tag, tagged: undefined })} />
        ) : (
          <Tag tag={tag} />
        )}
      </span>
      <span role="gridcell" class="row-changed">
        {changed !== undefined && formatWhen(changed)}
      </span>
    </div>
  );
}
