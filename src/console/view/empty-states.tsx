/** What the list shows where it has no rows: why, and the way out. */

import type { ComponentChildren, JSX } from "preact";
import { explain, isStatus, tryAgain } from "../api/service.ts";
import type { PlantList } from "../state/plants.ts";
import { everything, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { Button } from "./controls.tsx";

type Drawing = readonly (readonly [kind: string, path: string])[];

const pot: Drawing = [
  ["fill", "M52 78h56l-6 34H58l-6-34Z"],
  ["fill", "M48 68h64v10H48z"],
  ["ground", "M24 112h112"],
];

const drawings = {
  /** A pot with a label, and no plant. */
  emptyPot: [["label", "M88 22h16v34l-8 14-8-14z"], ["thin", "M92 30h8M92 36h8M92 42h5"], ...pot],
  /** A lens over a pot whose plant is missing. */
  noMatch: [
    ["dashed", "M68 68c0-14-8-22-22-24 0 14 8 22 22 24ZM68 68c0-18 8-28 24-32 2 18-8 30-24 32Z"],
    ...pot,
    ["lens", "M123 50a19 19 0 1 1-38 0 19 19 0 0 1 38 0Z"],
    ["handle", "m118 64 16 16"],
  ],
  cutStem: [
    ["leaf", "M80 30c0-14-9-21-26-22 0 15 9 22 26 22ZM80 36c0-15 9-23 27-24 1 16-10 24-27 24Z"],
    ["stem", "M80 30v14M80 56v12"],
    ["thin", "m66 46 8 3M94 46l-8 3M66 56l7-2M94 56l-7-2"],
    ...pot,
  ],
  /** A sheet of rows above a pot. */
  sheet: [
    ["label", "M56 8h48v50H56z"],
    ["thin", "M56 20h48M56 32h48M56 44h48M72 8v50"],
    ["stem", "M80 62v14M74 71l6 6 6-6"],
    ["fill", "M52 84h56l-5 28H57l-5-28Z"],
    ["ground", "M24 112h112"],
  ],
} as const satisfies Record<string, Drawing>;

export const Drawing = ({ name }: { readonly name: keyof typeof drawings }): JSX.Element => (
  <svg class="drawing" viewBox="0 0 160 120" aria-hidden="true">
    {drawings[name].map(([kind, path]) => (
      <path key={path} class={`drawing-${kind}`} d={path} />
    ))}
  </svg>
);

interface BlankProps {
  readonly drawing: keyof typeof drawings;
  readonly title: string;
  readonly text: ComponentChildren;
  readonly children?: ComponentChildren;
}

const Blank = ({ drawing, title, text, children }: BlankProps): JSX.Element => (
  <div class="blank">
    <Drawing name={drawing} />
    <h2>{title}</h2>
    <p>{text}</p>
    <div class="form-actions">{children}</div>
  </div>
);

/** The direction in which a search moves through the ids. */
export const wayOf = ({ filter }: PlantList): string =>
  filter.order === "asc" ? "up to" : "down to";

export function NothingListed({ list }: { readonly list: PlantList }): JSX.Element | null {
  const { name, tag } = list.filter;
  switch (list.phase.value) {
    case "failed":
      return <Unreadable list={list} />;
    case "end":
      return name === undefined && tag === undefined ? <EmptyStore /> : <NoneFound list={list} />;
    case "stopped":
      return (
        <Blank drawing="noMatch" title="Nothing found so far" text="You stopped the search.">
          <Button onClick={() => void list.loadMore()}>Continue searching</Button>
        </Blank>
      );
    case "loading": {
      const passed = list.passed.value;
      if (passed === undefined) return null;
      const text = (
        <>
          Nothing {wayOf(list)} id <span class="digits">{String(passed)}</span> yet.
        </>
      );
      return (
        <Blank drawing="noMatch" title="Searching…" text={text}>
          <Button onClick={() => list.stop()}>Stop</Button>
        </Blank>
      );
    }
    case "ready":
    case "full":
      return null;
  }
}

const EmptyStore = (): JSX.Element =>
  mayWrite.value ? (
    <Blank
      drawing="emptyPot"
      title="No plants yet"
      text="Add the first one by hand, or import a spreadsheet."
    >
      <a class="button button-main" href={linkTo("new")}>
        Add a plant
      </a>
      <a class="button" href="#/import">
        Import a file
      </a>
    </Blank>
  ) : (
    <Blank
      drawing="emptyPot"
      title="No plants yet"
      text="Your token can read plants, not add them."
    />
  );

function NoneFound({ list }: { readonly list: PlantList }): JSX.Element {
  const { name, tag, order } = list.filter;
  const parts = [
    ...(name === undefined ? [] : [`“${name}” in its name`]),
    ...(tag === undefined ? [] : [tag === "" ? "the empty tag" : `the tag “${tag}”`]),
  ];
  return (
    <Blank drawing="noMatch" title="No match" text={`No plant has ${parts.join(" and ")}.`}>
      {name !== undefined && tag !== undefined && (
        <Button onClick={() => refine({ tag: undefined })}>Search all tags</Button>
      )}
      <Button onClick={() => refine({ ...everything, order })}>Show all plants</Button>
    </Blank>
  );
}

const Unreadable = ({ list }: { readonly list: PlantList }): JSX.Element =>
  isStatus(list.failure.value, 0) ? (
    <Blank
      drawing="cutStem"
      title="No connection"
      text="The store does not answer. The list loads as soon as it does."
    >
      <Button onClick={() => void tryAgain()}>Try now</Button>
    </Blank>
  ) : (
    <Blank drawing="cutStem" title="Couldn't load the list" text={explain(list.failure.value)}>
      <Button onClick={() => void list.loadMore()}>Try now</Button>
    </Blank>
  );
