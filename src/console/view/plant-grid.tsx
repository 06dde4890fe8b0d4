/** The list: a grid that draws only the rows in sight, with keyboard navigation. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Plant } from "../../domain/plant.ts";
import { findDraft } from "../state/storage.ts";
import { list } from "../state/plants.ts";
import { isOpen, linkTo, openPlant } from "../state/route.ts";
import { Tag } from "./controls.tsx";
import { ListStatus } from "./empty-states.tsx";

const HEAD_HEIGHT = 36;
const ROW_HEIGHT = 48;
/** A row has two lines if the list is narrow. The stylesheet has the same width. */
const TWO_LINES_ROW_HEIGHT = 64;
const TWO_LINES_WIDTH_MAX = 700;
/** The next page is requested this many screens before its first row is in sight. */
const SCREENS_AHEAD = 2;
/** Rows drawn above and below those in sight. */
const ROWS_BEYOND = 10;

/** The part of the list that is in sight. */
interface Window {
  readonly top: number;
  readonly height: number;
  readonly rowHeight: number;
}

export function PlantGrid(): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const visible = useSignal<Window>({ top: 0, height: 800, rowHeight: ROW_HEIGHT });
  const shown = list.value;
  // Reading the version redraws the list when it changes.
  void shown.version.value;
  const { plants } = shown;
  const { top, height, rowHeight } = visible.value;
  const end = Math.min(plants.length, Math.ceil((top + height) / rowHeight) + ROWS_BEYOND);
  const start = Math.max(0, Math.min(end, Math.floor(top / rowHeight) - ROWS_BEYOND));
  const active = shown.active.value;

  const measure = (): void => {
    if (scroller.current === null) return;
    const { scrollTop, clientHeight, clientWidth } = scroller.current;
    const hasTwoLines = clientWidth <= TWO_LINES_WIDTH_MAX;
    const each = hasTwoLines ? TWO_LINES_ROW_HEIGHT : ROW_HEIGHT;
    visible.value = { top: scrollTop, height: clientHeight, rowHeight: each };
  };
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    if (scroller.current !== null) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const rowsAhead = (top + height * (1 + SCREENS_AHEAD)) / rowHeight;
    if (shown.phase.value === "ready" && rowsAhead > plants.length) void shown.loadMore();
  });
  useEffect(() => {
    const element = scroller.current;
    if (active < 0 || element === null) return;
    // Only as far as needed to show the row below the sticky head.
    const rowTop = active * rowHeight;
    const lowest = rowTop + rowHeight - (element.clientHeight - HEAD_HEIGHT);
    element.scrollTop = Math.max(lowest, Math.min(rowTop, element.scrollTop));
  }, [active, rowHeight]);

  const moveTo = (index: number): void => {
    shown.active.value = Math.max(0, Math.min(index, shown.plants.length - 1));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey || plants.length === 0) return;
    const page = Math.max(1, Math.floor((height - HEAD_HEIGHT) / rowHeight) - 1);
    const at = shown.active.value;
    const targets: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: plants.length - 1,
    };
    const target = targets[event.key];
    if (target !== undefined) moveTo(target);
    else if ((event.key === "Enter" || event.key === " ") && at >= 0) openPlant(plants[at]?.id);
    else return;
    event.preventDefault();
  };

  const isActiveDrawn = active >= start && active < end;
  return (
    <div class="scroller" ref={scroller} onScroll={measure}>
      <div
        class="grid"
        id="plants"
        role="grid"
        aria-label="Plants"
        aria-rowcount={shown.phase.value === "end" ? plants.length + 1 : -1}
        aria-activedescendant={isActiveDrawn ? `row-${active}` : undefined}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => {
          if (shown.active.value < 0) shown.active.value = start;
        }}
      >
        <div class="grid-head" role="rowgroup">
          <div class="row row-head" role="row" aria-rowindex={1}>
            <span role="columnheader">Id</span>
            <span role="columnheader">Name</span>
            <span role="columnheader">Tag</span>
          </div>
        </div>
        <div
          class="grid-body"
          role="rowgroup"
          style={{ height: `${plants.length * rowHeight}px`, "--row-height": `${rowHeight}px` }}
        >
          {plants.slice(start, end).map((plant, offset) => {
            const index = start + offset;
            return (
              <Row
                key={plant.id}
                plant={plant}
                index={index}
                top={index * rowHeight}
                isActive={index === active}
              />
            );
          })}
        </div>
      </div>
      <ListStatus />
    </div>
  );
}

interface RowProps {
  readonly plant: Plant;
  readonly index: number;
  readonly top: number;
  readonly isActive: boolean;
}

function Row({ plant, index, top, isActive }: RowProps): JSX.Element {
  return (
    <div
      class="row"
      role="row"
      id={`row-${index}`}
      aria-rowindex={index + 2}
      aria-selected={isOpen(plant.id) ? "true" : "false"}
      data-active={isActive ? "" : undefined}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span role="gridcell" class="row-id">
        {String(plant.id)}
      </span>
      <span role="gridcell" class="row-name">
        <a
          href={linkTo(plant.id)}
          tabIndex={-1}
          draggable={false}
          onClick={() => {
            list.value.active.value = index;
          }}
        >
          {plant.name.trim() === "" ? <i class="faint">no name</i> : plant.name}
        </a>
        {findDraft(plant.id) !== undefined && <span class="field-note"> unsaved edit</span>}
      </span>
      <span role="gridcell">
        <Tag tag={plant.tag} />
      </span>
    </div>
  );
}
