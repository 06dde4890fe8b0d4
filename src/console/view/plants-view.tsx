/** The plants: search and filters, the list, and beside it the plant that is open. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import { findTaken } from "../api/plants.ts";
import { formatName, formatTotal } from "../state/format.ts";
import { list, suggestTags, total } from "../state/plants.ts";
import { hasShortcuts } from "../state/storage.ts";
import { currentFilter, linkTo, openPlant, refine, route } from "../state/route.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { AddPanel } from "./add-panel.tsx";
import { Combobox } from "./combobox.tsx";
import { Icon, IconButton, Notice } from "./controls.tsx";
import { ListStatus } from "./empty-states.tsx";
import { ExportMenu } from "./export.tsx";
import { useLookUp } from "./form.tsx";
import { DeletedPanel } from "./history.tsx";
import { Panel } from "./panel.tsx";
import { PlantGrid } from "./plant-grid.tsx";
import { PlantPanel } from "./plant-panel.tsx";
import { SelectionBar } from "./selection-bar.tsx";
import { focusList } from "./shortcuts.tsx";

export function PlantsView(): JSX.Element | null {
  if (route.value.view !== "plants") return null;
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
      <section class="plants-list" aria-labelledby="plants-title">
        <div class="plants-title">
          <h1 id="plants-title">Plants</h1>
          <CountLine />
        </div>
        <Filters />
        <ListBody />
        <SelectionBar />
      </section>
      {open === "new" && (mayWrite.value ? <AddPanel /> : <CannotAdd />)}
      {open === "deleted" && <DeletedPanel />}
      {typeof open === "bigint" && <PlantPanel key={open} id={open} />}
    </div>
  );
}

const CannotAdd = (): JSX.Element => (
  <Panel title="Add a plant">
    <Notice
      kind="warning"
      title="Not allowed with this token"
      text="It can read plants, not add them. Sign in with another token to add plants."
    />
  </Panel>
);

function CountLine(): JSX.Element {
  const { filter, count } = list.value;
  const isWhole = filter.q === undefined && filter.tag === undefined;
  const exactId = findInt64((filter.q ?? "").trim());
  const byId = useLookUp(exactId, (signal) => findTaken(exactId ?? 0n, signal));
  return (
    <p class="count">
      {byId !== undefined ? (
        <a class="cut" href={linkTo(byId.id)}>
          Id {String(byId.id)}: {formatName(byId)}
        </a>
      ) : (
        count.value !== undefined &&
        total.value !== undefined && (
          <span>
            {!isWhole && `${formatTotal(count.value)} of `}
            {formatTotal(total.value)} {total.value.count === 1 ? "plant" : "plants"}
          </span>
        )
      )}
      <a href={linkTo("deleted")}>Recently deleted</a>
    </p>
  );
}

const SEARCH_DELAY_MS = 180;

function Filters(): JSX.Element {
  const isDescending = currentFilter().order === "desc";
  return (
    <search class="filters">
      <SearchBox />
      <TagFilter />
      <IconButton
        icon={isDescending ? "descending" : "ascending"}
        label={`Order: ${isDescending ? "Highest" : "Lowest"} id first`}
        isFramed
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
  const given = currentFilter().q ?? "";
  const text = useSignal(given);
  const applied = useRef(given);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  // A link changed the filter. What this box applied itself may be older than its text by now.
  useEffect(() => {
    if (given === applied.current) return;
    applied.current = given;
    text.value = given;
  }, [given]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const apply = (): void => {
    clearTimeout(timer.current);
    applied.current = text.value;
    const q = text.value.trim() === "" ? undefined : text.value;
    if (q !== currentFilter().q) refine({ q });
  };
  const openExact = async (): Promise<void> => {
    const id = findInt64(text.value.trim());
    if (id !== undefined && (await findTaken(id)) !== undefined) openPlant(id);
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
        onInput={(event) => {
          text.value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = setTimeout(apply, SEARCH_DELAY_MS);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" && event.key !== "ArrowDown") return;
          apply();
          if (event.key === "ArrowDown") focusList();
          else void openExact().catch(() => undefined);
          event.preventDefault();
        }}
      />
      {hasShortcuts.value && <kbd aria-hidden="true">/</kbd>}
    </div>
  );
}

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
          if (next === "" && tag !== undefined) refine({ tag: undefined });
        }}
        onChoose={(chosen, isPicked) =>
          refine({ tag: chosen === "" && !isPicked ? undefined : chosen })
        }
      />
      {tag !== undefined && (
        <IconButton icon="close" label="Any tag" onClick={() => refine({ tag: undefined })} />
      )}
    </div>
  );
}

function ListBody(): JSX.Element {
  const { plants, version } = list.value;
  void version.value;
  if (plants.length > 0) return <PlantGrid />;
  return (
    <div class="scroller">
      <ListStatus />
    </div>
  );
}
