/** Where there is nothing to list: why, and the way out. */

import type { ComponentChildren, JSX } from "preact";
import { explain, Lost } from "../api/service.ts";
import { tryAgain } from "../state/connection.ts";
import type { PlantList } from "../state/plant-list.ts";
import { everything, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { wayOf } from "./list-foot.tsx";
import { CutStem, EmptyPot, NoMatch } from "./illustrations.tsx";

interface BlankProps {
  readonly drawing: ComponentChildren;
  readonly title: string;
  readonly children: ComponentChildren;
}

function Blank({ drawing, title, children }: BlankProps): JSX.Element {
  return (
    <div class="blank">
      {drawing}
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function NothingListed({ list }: { readonly list: PlantList }): JSX.Element | null {
  const { filter } = list;
  switch (list.phase.value) {
    case "failed":
      return <Unreadable list={list} />;
    case "end":
      return filter.name === undefined && filter.tag === undefined ? (
        <EmptyStore />
      ) : (
        <NoneFound list={list} />
      );
    case "stopped":
      return (
        <Blank drawing={<NoMatch />} title="Nothing found so far">
          <p>The search was stopped before its end.</p>
          <div class="blank-actions">
            <button type="button" class="button" onClick={() => void list.loadMore()}>
              Go on searching
            </button>
          </div>
        </Blank>
      );
    case "loading":
      return list.passed.value === undefined ? null : (
        <Blank drawing={<NoMatch />} title="Searching…">
          <p>
            Nothing {wayOf(list)} id <span class="digits">{String(list.passed.value)}</span> yet.
          </p>
          <div class="blank-actions">
            <button type="button" class="button" onClick={() => list.stop()}>
              Stop
            </button>
          </div>
        </Blank>
      );
    case "ready":
    case "full":
      return null;
  }
}

function EmptyStore(): JSX.Element {
  return (
    <Blank drawing={<EmptyPot />} title="No plants yet">
      {mayWrite.value ? (
        <>
          <p>Add the first one by hand, or bring a whole spreadsheet.</p>
          <div class="blank-actions">
            <a class="button button-main" href={linkTo("new")}>
              Add a plant
            </a>
            <a class="button" href="#/import">
              Import a file
            </a>
          </div>
        </>
      ) : (
        <p>Your token may look, but not add. Somebody who may write has to fill the store.</p>
      )}
    </Blank>
  );
}

function NoneFound({ list }: { readonly list: PlantList }): JSX.Element {
  const { name, tag, order } = list.filter;
  const parts = [
    ...(name === undefined ? [] : [`“${name}” in its name`]),
    ...(tag === undefined ? [] : [tag === "" ? "the empty tag" : `the tag “${tag}”`]),
  ];
  return (
    <Blank drawing={<NoMatch />} title="No match">
      <p>There is no plant with {parts.join(" and ")}.</p>
      <div class="blank-actions">
        {name !== undefined && tag !== undefined && (
          <button
            type="button"
            class="button"
            onClick={() => refine({ name, tag: undefined, order })}
          >
            Search every tag
          </button>
        )}
        <button type="button" class="button" onClick={() => refine({ ...everything, order })}>
          Show all plants
        </button>
      </div>
    </Blank>
  );
}

function Unreadable({ list }: { readonly list: PlantList }): JSX.Element {
  const isLost = list.failure.value instanceof Lost;
  return (
    <Blank drawing={<CutStem />} title={isLost ? "No connection" : "The list cannot be read"}>
      <p>
        {isLost
          ? "The store does not answer. As soon as it does, the list comes by itself."
          : explain(list.failure.value)}
      </p>
      <div class="blank-actions">
        <button
          type="button"
          class="button"
          onClick={() => void (isLost ? tryAgain() : list.loadMore())}
        >
          Try now
        </button>
      </div>
    </Blank>
  );
}
