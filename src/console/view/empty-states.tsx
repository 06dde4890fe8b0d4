/** What the list says below its rows, or where it has none: why, and the way out. */

import type { ComponentChildren, JSX } from "preact";
import type { Plant } from "../../domain/plant.ts";
import { explain, isStatus, tryAgain } from "../api/service.ts";
import { formatName } from "../state/format.ts";
import { list } from "../state/plants.ts";
import { currentFilter, everything, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { Button } from "./controls.tsx";

const pot = ["M52 78h56l-6 34H58l-6-34Z", "M48 68h64v10H48z", "M24 112h112"];

const drawings = {
  /** A pot with a label, and no plant. */
  emptyPot: ["M88 22h16v34l-8 14-8-14zM92 30h8M92 36h8M92 42h5", ...pot],
  /** A lens over a pot. */
  noMatch: [...pot, "M123 50a19 19 0 1 1-38 0 19 19 0 0 1 38 0ZM118 64l16 16"],
  cutStem: [
    "M80 30c0-14-9-21-26-22 0 15 9 22 26 22ZM80 36c0-15 9-23 27-24 1 16-10 24-27 24Z",
    "M80 30v14M80 56v12M66 46l8 3M94 46l-8 3M66 56l7-2M94 56l-7-2",
    ...pot,
  ],
  /** A sheet of rows above a pot. */
  sheet: [
    "M56 8h48v50H56zM56 20h48M56 32h48M56 44h48M72 8v50M80 62v14M74 71l6 6 6-6",
    "M52 84h56l-5 28H57l-5-28ZM24 112h112",
  ],
} as const;

export const Drawing = ({ name }: { readonly name: keyof typeof drawings }): JSX.Element => (
  <svg class="drawing" viewBox="0 0 160 120" aria-hidden="true">
    {drawings[name].map((path) => (
      <path key={path} d={path} />
    ))}
  </svg>
);

interface Status {
  readonly drawing?: keyof typeof drawings;
  /** Of an empty list. */
  readonly title?: string;
  readonly text: ComponentChildren;
  readonly action?: JSX.Element | false;
}

/** How far the list has come, and why it does not go on. */
function readStatus(byId: Plant | undefined): Status {
  const shown = list.value;
  const button = (label: string, run: () => unknown): JSX.Element => (
    <Button kind={shown.plants.length > 0 ? "small" : undefined} onClick={() => void run()}>
      {label}
    </Button>
  );
  switch (shown.phase.value) {
    case "loading":
      return { text: currentFilter().q === undefined ? "Loading…" : "Searching…" };
    case "failed":
      if (isStatus(shown.failure.value, 0))
        return {
          drawing: "cutStem",
          title: "No connection",
          text: "The store does not answer. The list loads as soon as it does.",
          action: button("Try now", tryAgain),
        };
      return {
        drawing: "cutStem",
        title: "Couldn't load the list",
        text: explain(shown.failure.value),
        action: button("Try again", () => shown.loadMore()),
      };
    case "end":
      return shown.plants.length > 0 ? { text: "End of list" } : explainEmptiness(byId);
    case "ready":
      return { text: "" };
  }
}

function explainEmptiness(byId: Plant | undefined): Status {
  const { q, tag, order } = currentFilter();
  if (q === undefined && tag === undefined)
    return {
      drawing: "emptyPot",
      title: "No plants yet",
      text: mayWrite.value
        ? "Add the first one by hand, or import a spreadsheet."
        : "Your token can read plants, not add them.",
      action: mayWrite.value && (
        <>
          <a class="button button-main" href={linkTo("new")}>
            Add a plant
          </a>
          <a class="button" href="#/import">
            Import a file
          </a>
        </>
      ),
    };
  const parts = [
    ...(q === undefined ? [] : [`“${q}” in its name or tag`]),
    ...(tag === undefined ? [] : [tag === "" ? "the empty tag" : `the tag “${tag}”`]),
  ];
  return {
    drawing: "noMatch",
    title: byId === undefined ? "No match" : `Id ${byId.id} belongs to ${formatName(byId)}`,
    text: `No plant has ${parts.join(" and ")}.`,
    action: (
      <>
        {byId !== undefined && (
          <a class="button button-main" href={linkTo(byId.id)}>
            Open the plant
          </a>
        )}
        {parts.length > 1 && (
          <Button onClick={() => refine({ tag: undefined })}>Search all tags</Button>
        )}
        <Button onClick={() => refine({ ...everything, order })}>Show all plants</Button>
      </>
    ),
  };
}

interface ListStatusProps {
  /** The plant whose id is searched for. */
  readonly byId?: Plant | undefined;
}

export function ListStatus({ byId }: ListStatusProps): JSX.Element {
  const { drawing, title, text, action } = readStatus(byId);
  const isEmpty = list.value.plants.length === 0;
  if (!isEmpty || drawing === undefined)
    return (
      <div class={isEmpty ? "grid-foot late" : "grid-foot"}>
        {text} {action}
      </div>
    );
  return (
    <div class="blank">
      <Drawing name={drawing} />
      <h2>{title}</h2>
      <p>{text}</p>
      <div class="form-actions">{action}</div>
    </div>
  );
}
