/** The form for a new plant. It warns while the user types if the id is taken. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { findFaults, findInt64, INT64_MAX, INT64_MIN } from "../../src/domain/plant.ts";
import { createPlant, findFreeId, findNamesake, findTaken, Taken } from "../api/plants.ts";
import { formatName } from "../state/format.ts";
import { list } from "../state/plants.ts";
import { linkTo, openPlant } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { type Draft, findDraft, keep, keepDraft, recall, trail } from "../state/storage.ts";
import { announce, toast } from "../state/toasts.ts";
import { Button, Field, Form } from "./controls.tsx";
import {
  FailureNotice,
  focusField,
  judgeText,
  selectField,
  TagField,
  useLookUp,
  useTask,
} from "./form.tsx";
import { Panel } from "./panel.tsx";

/** The id and tag that were added last, as defaults for the next plant. */
interface Added {
  readonly id: string;
  readonly tag?: string | undefined;
}

const ID_FAULT = `Enter a whole number from ${INT64_MIN} to ${INT64_MAX}.`;

export function AddPanel(): JSX.Element {
  const last = recall("sessionStorage", trail.added) as Added | undefined;
  const draft: Draft = findDraft("new") ?? { name: "", tag: last?.tag };
  const { name, tag } = draft;
  const put = (change: Partial<Draft>): void => keepDraft("new", { ...draft, ...change });
  const lastId = findInt64(last?.id ?? "");
  /** The default of the field until an id is typed. */
  const proposed = useLookUp(lastId ?? "none", () => findFreeId(lastId));
  const id = draft.id ?? String(proposed ?? "");
  /** No fault is shown while the id is still being typed. */
  const isJudged = useSignal(false);
  const { isBusy, trouble, run } = useTask();
  const exactId = findInt64(id.trim());
  const faults = findFaults(exactId, name, tag);
  const takenBy = useLookUp(exactId, (signal) => findTaken(exactId ?? 0n, signal));
  const namesake = useLookUp(name || undefined, (signal) => findNamesake(name, signal));
  // Selected, so typing replaces the proposal. An id that was typed already is not selected.
  useLayoutEffect(() => {
    const field = document.activeElement as HTMLInputElement | null;
    if (field?.id === "add-id" && draft.id === undefined) field.select();
  }, [proposed]);

  const submit = (): void => {
    isJudged.value = true;
    const [faulty] = Object.keys(faults);
    if (exactId === undefined || faulty !== undefined) {
      announce("Nothing was sent. See the messages beside the fields.");
      return focusField(`add-${faulty}`);
    }
    const sent = findDraft("new");
    const plant = { id: exactId, name, tag };
    void run(async () => {
      const outcome = await createPlant(plant);
      list.value.put(plant);
      keep("sessionStorage", trail.added, { id: String(plant.id), tag: plant.tag });
      const shown = formatName(plant);
      toast(
        outcome === "created" ? `Added ${shown}.` : `${shown} was already there.`,
        mayRead.value ? { label: "Open", run: () => openPlant(plant.id) } : undefined,
      );
      isJudged.value = false;
      // The user may have started the next plant or a search meanwhile.
      if (findDraft("new") !== sent) return;
      keepDraft("new", undefined);
      if (!document.activeElement?.closest(".plants-list")) focusField("add-id");
    });
  };

  const error = trouble.value;
  const label = error === undefined || error instanceof Taken ? "Add plant" : "Try again";
  return (
    <Panel title="Add a plant">
      <Form onSubmit={submit}>
        <Field
          id="add-id"
          label="Id"
          inputRef={selectField}
          fault={isJudged.value && faults.id ? ID_FAULT : undefined}
          note={
            takenBy !== undefined &&
            error === undefined && (
              <>
                Already belongs to <a href={linkTo(takenBy.id)}>{formatName(takenBy)}</a>.
              </>
            )
          }
          class="digits"
          inputMode="numeric"
          required
          value={id}
          onText={(text) => {
            put({ id: text });
            trouble.value = undefined;
          }}
          onKeyDown={(event) => {
            // A barcode scanner sends Enter after the digits.
            if (event.key !== "Enter") return;
            event.preventDefault();
            focusField("add-name");
          }}
          onBlur={() => {
            // An emptied field gets the proposal back.
            if (draft.id === "") put({ id: undefined });
            else isJudged.value ||= id !== "";
          }}
        />
        <Field
          id="add-name"
          label="Name"
          value={name}
          onText={(text) => put({ name: text })}
          {...judgeText(name)}
          {...(namesake && {
            note: (
              <>
                <a href={linkTo(namesake.id)}>Plant {String(namesake.id)}</a> has this name too.
              </>
            ),
          })}
        />
        <TagField id="add-tag" value={tag} onText={(text) => put({ tag: text })} />
        {error !== undefined && <FailureNotice of="save" error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy.value}>
            {isBusy.value ? "Sending…" : label}
          </Button>
        </div>
      </Form>
    </Panel>
  );
}
