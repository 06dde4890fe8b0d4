/** The list: a grid that draws only the rows in sight, with keyboard navigation. */

import { type Signal, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Plant } from "../../domain/plant.ts";
import { explain } from "../api/service.ts";
import { findDraft } from "../state/storage.ts";
import { formatCount } from "../state/format.ts";
import { list, LOADED_MAX, type PlantList } from "../state/plants.ts";
import { isOpen, linkTo, openPlant } from "../state/route.ts";
import { Button, Tag } from "./controls.tsx";
import { wayOf } from "./empty-states.tsx";

const HEAD_HEIGHT = 36;
/** The next page is requested this many screens before its first row is in sight. */
const SCREENS_AHEAD = 2;
/** Rows drawn above and below those in sight. */
const ROWS_BEYOND = 10;

export function PlantGrid(): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const visible = useWindow(scroller);
  const shown = list.value;
  // Reading the version redraws the list when it changes.
  void shown.version.value;
  const { plants } = shown;
  const { top: scrolled, height: shownHeight, rowHeight } = visible.value;
  const end = Math.min(
    plants.length,
    Math.ceil((scrolled + shownHeight) / rowHeight) + ROWS_BEYOND,
  );
  const start = Math.max(0, Math.min(end, Math.floor(scrolled / rowHeight) - ROWS_BEYOND));
  const active = shown.active.value;

  useSignalEffect(() => {
    const current = list.value;
    void current.version.value;
    const { top, height, rowHeight: each } = visible.value;
    const rowsAhead = (top + height * (1 + SCREENS_AHEAD)) / each;
    if (current.phase.value === "ready" && rowsAhead > current.plants.length)
      void current.loadMore();
  });
  useSignalEffect(() => {
    const index = list.value.active.value;
    if (index >= 0 && scroller.current !== null)
      reveal(scroller.current, index, visible.peek().rowHeight);
  });

  const moveTo = (index: number): void => {
    shown.active.value = Math.max(0, Math.min(index, shown.plants.length - 1));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey || plants.length === 0) return;
    const page = Math.max(1, Math.floor((shownHeight - HEAD_HEIGHT) / rowHeight) - 1);
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
    <div class="scroller" ref={scroller}>
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
      <div class="grid-foot">{describeEnd(shown)}</div>
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

function describeEnd(shown: PlantList): ComponentChildren {
  const passed = shown.passed.value;
  const goOn = (label: string): JSX.Element => (
    <Button kind="small" onClick={() => void shown.loadMore()}>
      {label}
    </Button>
  );
  switch (shown.phase.value) {
    case "loading":
      if (passed === undefined) return "Loading…";
      return (
        <>
          <span>
            Searching… checked {wayOf(shown)} id <span class="digits">{String(passed)}</span>
          </span>
          <Button kind="small" onClick={() => shown.stop()}>
            Stop
          </Button>
        </>
      );
    case "stopped":
      return <>You stopped the search. {goOn("Continue")}</>;
    case "failed":
      return (
        <>
          {explain(shown.failure.value)} {goOn("Try again")}
        </>
      );
    case "full":
      return `${formatCount(LOADED_MAX)} plants are loaded. Search or pick a tag to reach the others.`;
    case "end":
      return "End of list";
    case "ready":
      return null;
  }
}

interface Window {
  readonly top: number;
  readonly height: number;
  readonly rowHeight: number;
}

/** Where the list is narrower, a row has two lines. The stylesheet has the same width. */
const TWO_LINES_WIDTH_MAX = 700;

/** The part of a scrolling element that is in sight. */
function useWindow(scroller: RefObject<HTMLElement | null>): Signal<Window> {
  const visible = useSignal<Window>({ top: 0, height: 800, rowHeight: 48 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const measure = (): void => {
      const { scrollTop: top, clientHeight: height, clientWidth: width } = element;
      visible.value = { top, height, rowHeight: width <= TWO_LINES_WIDTH_MAX ? 64 : 48 };
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
    };
  }, []);
  return visible;
}

/** Scrolls only as far as needed to show the row below the sticky head. */
function reveal(element: HTMLElement, index: number, rowHeight: number): void {
  const top = index * rowHeight;
  const lowest = top + rowHeight - (element.clientHeight - HEAD_HEIGHT);
  element.scrollTop = Math.max(lowest, Math.min(top, element.scrollTop));
}
