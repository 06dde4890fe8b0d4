/** The list: a grid that draws only the rows in sight, and is walked by keys. */

import { useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { Plant } from "../../domain/plant.ts";
import { list } from "../state/plants.ts";
import { linkTo, openPlant, route } from "../state/route.ts";
import { ListFoot } from "./list-foot.tsx";
import { rangeOf, reveal, useRowHeight, useWindow } from "./virtual-rows.ts";

const HEAD_HEIGHT = 36;
/** The next page is asked for this many screens before its first row is seen. */
const SCREENS_AHEAD = 2;

export function PlantGrid(): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const visible = useWindow(scroller);
  const rowHeight = useRowHeight();
  const shown = list.value;
  // Read for the sake of being drawn anew.
  void shown.version.value;
  const { plants } = shown;
  const { start, end } = rangeOf(visible.value, rowHeight.value, plants.length);
  const active = shown.active.value;

  useSignalEffect(() => {
    const current = list.value;
    void current.version.value;
    const { top, height } = visible.value;
    const rowsAhead = (top + height * (1 + SCREENS_AHEAD)) / rowHeight.value;
    if (current.phase.value === "ready" && rowsAhead > current.plants.length)
      void current.loadMore();
  });
  useSignalEffect(() => {
    const index = list.value.active.value;
    if (index >= 0 && scroller.current !== null)
      reveal(scroller.current, index, rowHeight.value, HEAD_HEIGHT);
  });

  const moveTo = (index: number): void => {
    shown.active.value = Math.max(0, Math.min(index, shown.plants.length - 1));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey || plants.length === 0) return;
    const page = Math.max(
      1,
      Math.floor((visible.value.height - HEAD_HEIGHT) / rowHeight.value) - 1,
    );
    const at = shown.active.value;
    if (event.key === "ArrowDown") moveTo(at + 1);
    else if (event.key === "ArrowUp") moveTo(at - 1);
    else if (event.key === "PageDown") moveTo(at + page);
    else if (event.key === "PageUp") moveTo(at - page);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(plants.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && at >= 0) openPlant(plants[at]?.id);
    else return;
    event.preventDefault();
  };

  const isActiveDrawn = active >= start && active < end;
  const isWhole = shown.phase.value === "end";
  return (
    <div class="scroller" ref={scroller}>
      <div
        class="grid"
        id="plants"
        role="grid"
        aria-label="Plants"
        aria-rowcount={isWhole ? plants.length + 1 : -1}
        aria-activedescendant={isActiveDrawn ? `row-${active}` : undefined}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => {
          if (shown.active.value < 0 && shown.plants.length > 0) shown.active.value = start;
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
          style={{ height: `${plants.length * rowHeight.value}px` }}
        >
          {plants.slice(start, end).map((plant, offset) => {
            const index = start + offset;
            return (
              <Row
                key={plant.id}
                plant={plant}
                index={index}
                top={index * rowHeight.value}
                isActive={index === active}
              />
            );
          })}
        </div>
      </div>
      <ListFoot list={shown} />
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
  const isOpen = route.value.view === "plants" && route.value.open === plant.id;
  return (
    <div
      class="row"
      role="row"
      id={`row-${index}`}
      aria-rowindex={index + 2}
      aria-selected={isOpen ? "true" : "false"}
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
      </span>
      <span role="gridcell" class="row-tag">
        {plant.tag === undefined ? null : (
          <span class="tag">{plant.tag === "" ? <i>empty</i> : plant.tag}</span>
        )}
      </span>
    </div>
  );
}
