/** The status below the rows of the list, or in place of them: why it is empty, and what to do. */

import type { ComponentChildren, JSX } from "preact";
import type { Filter } from "../../src/domain/filter.ts";
import type { Change } from "../../client/client.ts";
import { explain, isStatus } from "../api/service.ts";
import { describeFilter, formatName, formatTime } from "../state/format.ts";
import { list, restore } from "../state/plants.ts";
import { everything, isWhole, linkTo, refine } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { fill, join, t } from "../text/text.ts";
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
      return { text: shown.filter.q === undefined ? t.shared.loading : t.plants.searching };
    case "failed": {
      const isLost = isStatus(shown.failure.value, 0);
      return {
        icon: "warning",
        title: isLost ? t.plants.noConnection : t.plants.listFailed,
        text: isLost ? t.plants.loadsLater : explain(shown.failure.value),
        action: <Button onClick={() => void shown.loadMore()}>{t.shared.tryAgain}</Button>,
      };
    }
    case "end":
      return shown.plants.length > 0 ? { text: t.plants.endOfList } : explainEmptiness();
    case "ready":
      return { text: "" };
  }
}

function explainNoMatch(filter: Filter): string {
  const parts = describeFilter(filter);
  // "No plant has no tag" has to be decoded.
  if (filter.tagged === false && parts.length === 1) return t.plants.allHaveTag;
  return fill(t.plants.noneHas, { what: join(parts) });
}

/** In place of the plants of an empty store. */
export const NoPlants = (): JSX.Element => (
  <Blank
    icon="plants"
    title={t.plants.noPlantsYet}
    text={mayWrite.value ? t.plants.addFirst : t.plants.mayNotAdd}
  >
    {mayWrite.value && (
      <>
        <a class="button button-main" href={linkTo("new", everything)}>
          {t.plants.addOne}
        </a>
        <a class="button" href="#/import">
          {t.plants.importFile}
        </a>
      </>
    )}
  </Blank>
);

function explainEmptiness(): Status {
  const { filter, holder, removal, searchedId } = list.value;
  const isUnknown = holder.value === null;
  const removed = removal.value;
  return {
    icon: "search",
    title: isUnknown ? fill(t.plants.noneHasId, { id: String(searchedId) }) : t.shared.noMatch,
    text: removed === undefined ? explainNoMatch(filter) : describeRemoval(removed),
    action: (
      <>
        {removed !== undefined && <RestoreSearched change={removed} class="button button-main" />}
        {isUnknown && (
          <AddSearched class={removed === undefined ? "button button-main" : "button"} />
        )}
        <Button onClick={() => refine({ ...everything, order: filter.order, sort: filter.sort })}>
          {t.plants.showAll}
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
      {fill(t.plants.addWithId, { id: String(list.value.searchedId) })}
    </a>
  );
}

function describeRemoval(change: Change): string {
  const plant = formatName(toPlant(change, change.before));
  const time = formatTime(change.time);
  return change.by === undefined
    ? fill(t.plants.wasDeleted, { plant, time })
    : fill(t.plants.wasDeletedBy, { plant, time, who: change.by });
}

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
      {fill(t.plants.restorePlant, { plant: formatName(plant) })}
    </button>
  );
}

/** An id that no plant has: who deleted it, and what can be done. For a list that has other plants. */
export function Unknown(): JSX.Element | null {
  const { holder, removal, searchedId } = list.value;
  if (holder.value !== null) return null;
  return (
    <span>
      {fill(t.plants.noneHasId, { id: String(searchedId) })}.{" "}
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
  const { phase, plants, filter } = list.value;
  const isEmpty = plants.length === 0;
  if (isEmpty && phase.value === "end" && isWhole(filter)) return <NoPlants />;
  const { icon, title = "", text, action } = readStatus();
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
