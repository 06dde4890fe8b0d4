/** Below the list: how many plants are selected, and what can be done to them. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { formatCount, formatName, formatTotal } from "../state/format.ts";
import { list, suggestTags } from "../state/plants.ts";
import {
  deleteSelected,
  failures,
  hasSelection,
  selectAll,
  selection,
  tagSelected,
  work,
} from "../state/selection.ts";
import { mayWrite } from "../state/session.ts";
import { Combobox } from "./combobox.tsx";
import { Button, Icon, IconButton, Notice } from "./controls.tsx";
import { ExportMenu } from "./export.tsx";

export function SelectionBar(): JSX.Element | null {
  if (work.value !== undefined) return <Progress />;
  if (!hasSelection.value && failures.value.length === 0) return null;
  return (
    <section class="selection" aria-label="Selection">
      <Failures />
      {hasSelection.value && (
        <div class="selection-bar">
          <IconButton icon="close" label="Select none" onClick={() => selectAll(false)} />
          <strong class="tabular">{describeSelection()}</strong>
          {mayWrite.value && (
            <Button kind="danger" onClick={() => void deleteSelected()}>
              <Icon name="trash" />
              Delete
            </Button>
          )}
          <ExportMenu isOfSelection />
          {mayWrite.value && <TagForm />}
        </div>
      )}
    </section>
  );
}

function describeSelection(): string {
  const { isAll, plants } = selection.value;
  if (!isAll) return `${formatCount(plants.size)} selected`;
  const { count } = list.value;
  const all = count.value === undefined ? "All" : `All ${formatTotal(count.value)}`;
  return `${all}${plants.size > 0 ? ` but ${formatCount(plants.size)}` : ""} selected`;
}

function TagForm(): JSX.Element {
  const tag = useSignal("");
  return (
    <form
      class="with-button"
      onSubmit={(event) => {
        event.preventDefault();
        void tagSelected(tag.value === "" ? undefined : tag.value);
      }}
    >
      <Combobox
        id="selection-tag"
        label="Tag for the selected plants"
        placeholder="No tag"
        value={tag.value}
        suggest={suggestTags}
        onInput={(text) => {
          tag.value = text;
        }}
      />
      <Button type="submit">{tag.value === "" ? "Remove tag" : "Set tag"}</Button>
    </form>
  );
}

function Progress(): JSX.Element | null {
  if (work.value === undefined) return null;
  const { text, done, total, stop } = work.value;
  return (
    <section class="selection selection-bar" aria-label="Selection">
      <strong class="tabular">
        {text}… {total > 0 && `${formatCount(done)} of ${formatCount(total)}`}
      </strong>
      <progress value={total > 0 ? done : undefined} max={total} aria-label={text} />
      <Button onClick={stop}>Stop</Button>
    </section>
  );
}

const FAILURES_SHOWN_MAX = 5;

function Failures(): JSX.Element | null {
  const failed = failures.value;
  if (failed.length === 0) return null;
  const more = failed.length - FAILURES_SHOWN_MAX;
  return (
    <Notice kind="warning" title={`Not done: ${formatCount(failed.length, "plant")}`}>
      <ul>
        {failed.slice(0, FAILURES_SHOWN_MAX).map(({ plant, why }) => (
          <li key={plant.id}>
            {formatName(plant)} ({String(plant.id)}): {why}
          </li>
        ))}
        {more > 0 && <li>and {formatCount(more)} more, for the same reasons</li>}
      </ul>
      <Button kind="small" onClick={() => (failures.value = [])}>
        OK
      </Button>
    </Notice>
  );
}
