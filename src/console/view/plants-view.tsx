/** The plants: the list, and beside it the one that is open. */

import type { JSX } from "preact";
import { formatCount } from "../state/numbers.ts";
import { list, refresh } from "../state/plants.ts";
import { route } from "../state/route.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { AddPanel } from "./add-panel.tsx";
import { NothingListed } from "./empty-states.tsx";
import { Filters } from "./filters.tsx";
import { Icon } from "./icons.tsx";
import { PlantGrid } from "./plant-list.tsx";
import { PlantPanel } from "./plant-panel.tsx";

export function PlantsView(): JSX.Element | null {
  if (route.value.view !== "plants") return null;
  const { open } = route.value;
  // A token that may only write has no list, and a form instead of it.
  if (!mayRead.value)
    return (
      <div class="single">
        <h1 class="visually-hidden">Plants</h1>
        <AddPanel />
      </div>
    );
  return (
    <div class="plants" data-open={open === undefined ? undefined : ""}>
      <section class="plants-list" aria-labelledby="plants-title">
        <div class="plants-title">
          <h1 id="plants-title">Plants</h1>
          <CountLine />
        </div>
        <Filters />
        <ListBody />
      </section>
      {open === "new" && mayWrite.value && <AddPanel />}
      {typeof open === "bigint" && <PlantPanel key={open} id={open} />}
    </div>
  );
}

function ListBody(): JSX.Element {
  const shown = list.value;
  void shown.version.value;
  if (shown.plants.length > 0) return <PlantGrid />;
  const isWaiting = shown.phase.value === "loading" && shown.passed.value === undefined;
  return (
    <div class="scroller scroller-blank">
      {isWaiting ? <Placeholder /> : <NothingListed list={shown} />}
    </div>
  );
}

/** Faint rows, so that the list does not jump into an empty page. */
function Placeholder(): JSX.Element {
  return (
    <div class="placeholder">
      <span class="visually-hidden">Loading…</span>
      {Array.from({ length: 9 }, (_, index) => (
        <div key={index} class="placeholder-row" />
      ))}
    </div>
  );
}

function CountLine(): JSX.Element {
  const shown = list.value;
  void shown.version.value;
  const count = formatCount(shown.plants.length);
  const isWhole = shown.phase.value === "end";
  return (
    <p class="count">
      {shown.plants.length > 0 && (isWhole ? count : `${count} loaded, and more`)}
      <button
        type="button"
        class="button-plain"
        aria-label="Refresh the list"
        title="Refresh"
        onClick={refresh}
      >
        <Icon name="refresh" />
      </button>
    </p>
  );
}
