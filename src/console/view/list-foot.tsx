/** Below the last row: what goes on, or that this is all. */

import type { JSX } from "preact";
import { explain } from "../api/service.ts";
import { formatCount } from "../state/numbers.ts";
import { LOADED_MAX, type PlantList } from "../state/plant-list.ts";

export function ListFoot({ list }: { readonly list: PlantList }): JSX.Element {
  return (
    <div class="grid-foot">
      <FootText list={list} />
    </div>
  );
}

/** Towards the end of the list. */
export const wayOf = ({ filter }: PlantList): string =>
  filter.order === "asc" ? "up to" : "down to";

function FootText({ list }: { readonly list: PlantList }): JSX.Element | null {
  const passed = list.passed.value;
  switch (list.phase.value) {
    case "loading":
      return passed === undefined ? (
        <span>Loading…</span>
      ) : (
        <>
          <span>
            Searching… looked at everything {wayOf(list)} id{" "}
            <span class="digits">{String(passed)}</span>
          </span>
          <button type="button" class="button button-small" onClick={() => list.stop()}>
            Stop
          </button>
        </>
      );
    case "stopped":
      return (
        <>
          <span>The search was stopped before its end.</span>
          <GoOn list={list} label="Go on" />
        </>
      );
    case "failed":
      return (
        <>
          <span>{explain(list.failure.value)}</span>
          <GoOn list={list} label="Try again" />
        </>
      );
    case "full":
      return (
        <span>
          {formatCount(LOADED_MAX)} plants are loaded. Search, or pick a tag, to get to the others.
        </span>
      );
    case "end":
      return list.plants.length === 0 ? null : <span>That is all.</span>;
    case "ready":
      return null;
  }
}

function GoOn({ list, label }: { readonly list: PlantList; readonly label: string }): JSX.Element {
  return (
    <button type="button" class="button button-small" onClick={() => void list.loadMore()}>
      {label}
    </button>
  );
}
