/** The status below the rows of the list, or in place of them: why it is empty, and what to do. */

import type { ComponentChildren, JSX } from "preact";
import { type FilterName, filterNames } from "../../src/domain/filter.ts";
import type { Change } from "../../client/client.ts";
import { explain, isStatus } from "../api/service.ts";
import { formatName, formatTime } from "../state/format.ts";
import { list, restore } from "../state/plants.ts";
import { everything, isWhole, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { Blank, Button, type IconName } from "./controls.tsx";
import { toPlant } from "./history.tsx";

interface Status {
  readonly icon?: IconName;
  /** Only for an empty list. */
  readonly title?: string;
  readonly text: ComponentChildren;
  readonly action?: JSX.Element | false;
}

/** How much of the list is loaded, and why it stopped. */
function readStatus(): Status {
  const shown = list.value;
  switch (shown.phase.value) {
    case "loading":
      return { text: shown.filter.q === undefined ? "Loading…" : "Searching…" };
    case "failed": {
      const isLost = isStatus(shown.failure.value, 0);
      return {
        icon: "warning",
        title: isLost ? "No connection" : "Couldn't load the list",
        text: isLost ? "The list loads when the store answers." : explain(shown.failure.value),
        action: <Button onClick={() => void shown.loadMore()}>Try again</Button>,
      };
    }
    case "end":
      return shown.plants.length > 0 ? { text: "End of list" } : explainEmptiness();
    case "ready":
      return { text: "" };
  }
}

const missing: Readonly<Record<FilterName, (given: string) => string>> = {
  tag: (tag) => (tag === "" ? "the empty tag" : `the tag “${tag}”`),
  name: (part) => `“${part}” in its name`,
  q: (words) => `“${words}” in its name or tag`,
};

function explainEmptiness(): Status {
  const { filter, holder, removal, searchedId } = list.value;
  if (isWhole(filter))
    return {
      icon: "plants",
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
  const parts = filterNames.flatMap((name) => {
    const given = filter[name];
    return given === undefined ? [] : missing[name](given);
  });
  const isUnknown = holder.value === null;
  const removed = removal.value;
  return {
    icon: "search",
    title: isUnknown ? `No plant has the id ${searchedId}` : "No match",
    text: removed === undefined ? `No plant has ${parts.join(" and ")}.` : describeRemoval(removed),
    action: (
      <>
        {removed !== undefined && <RestoreSearched change={removed} class="button button-main" />}
        {isUnknown && (
          <AddSearched class={removed === undefined ? "button button-main" : "button"} />
        )}
        <Button onClick={() => refine({ ...everything, order: filter.order, sort: filter.sort })}>
          Show all plants
        </Button>
      </>
    ),
  };
}

function forgetTypedId(): void {
  const draft = findDraft("new");
  if (draft !== undefined) keepDraft("new", { ...draft, id: undefined });
}

/** The form proposes the searched id, unless another one was typed there. */
function AddSearched(props: { readonly class?: string }): JSX.Element | null {
  if (!mayWrite.value) return null;
  return (
    <a class={props.class} href={linkTo("new")} onClick={forgetTypedId}>
      Add a plant with id {String(list.value.searchedId)}
    </a>
  );
}

const describeRemoval = (change: Change): string =>
  `${formatName(toPlant(change, change.before))} had it. ${change.by === undefined ? "It was deleted" : `${change.by} deleted it`} on ${formatTime(change.time)}.`;

interface RestoreProps {
  readonly change: Change;
  readonly class?: string;
}

/** The plant as it was when it was deleted. */
function RestoreSearched({ change, ...props }: RestoreProps): JSX.Element | null {
  if (!mayWrite.value) return null;
  const plant = toPlant(change, change.before);
  return (
    <button type="button" {...props} onClick={() => void restore(plant)}>
      Restore {formatName(plant)}
    </button>
  );
}

/** An id that no plant has: who deleted it, and what can be done. For a list that has other plants. */
export function Unknown(): JSX.Element | null {
  const { holder, removal, searchedId } = list.value;
  if (holder.value !== null) return null;
  return (
    <span>
      No plant has the id {String(searchedId)}.{" "}
      {removal.value !== undefined && (
        <>
          {describeRemoval(removal.value)}{" "}
          <RestoreSearched change={removal.value} class="button button-small" />{" "}
        </>
      )}
      <AddSearched />
    </span>
  );
}

export function ListStatus(): JSX.Element {
  const { icon, title = "", text, action } = readStatus();
  const isEmpty = list.value.plants.length === 0;
  if (!isEmpty || icon === undefined)
    return (
      <div class={isEmpty ? "grid-foot late" : "grid-foot"}>
        {text} {action}
      </div>
    );
  return (
    <Blank icon={icon} title={title} text={text}>
      {action}
    </Blank>
  );
}
