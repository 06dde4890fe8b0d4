/** The form for a new plant. It says while the id is typed whether another plant has it. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import { createPlant, findFreeId, findNamesake, findTaken, Taken } from "../api/plants.ts";
import { formatName } from "../state/format.ts";
import { list } from "../state/plants.ts";
import { linkTo, openPlant } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { type Draft, findDraft, keep, keepDraft, recall, trail } from "../state/storage.ts";
import { announce, toast } from "../state/toasts.ts";
import { Button } from "./controls.tsx";
import {
  FailureNotice,
  Field,
  fieldProps,
  findIdFault,
  findTextFault,
  focusField,
  Form,
  NameField,
  TagField,
  useLookUp,
  useTask,
} from "./form.tsx";
import { Panel } from "./panel.tsx";
import { isTyping } from "./shortcuts.tsx";

/** The id that was added last, and its tag: the next plant of a series is like it. */
interface Added {
  readonly id: string;
  readonly tag?: string | undefined;
}

export function AddPanel(): JSX.Element {
  const last = recall("sessionStorage", trail.added) as Added | undefined;
  const draft: Draft = findDraft("new") ?? { name: "", tag: last?.tag };
  const { name, tag } = draft;
  /** An answer may come after more was typed. */
  const put = (change: Partial<Draft>): void =>
    keepDraft("new", { ...(findDraft("new") ?? draft), ...change });
  /** Stands in the field until an id is typed. */
  const proposed = useSignal("");
  const id = draft.id ?? proposed.value;
  /** An id that is still being typed is not wrong yet. */
  const isJudged = useSignal(false);
  const { isBusy, trouble, run } = useTask();
  const exactId = findInt64(id.trim());
  const takenBy = useLookUp(exactId, (signal) => findTaken(exactId ?? 0n, signal));
  const namesake = useLookUp(name || undefined, (signal) => findNamesake(name, signal));

  const asked = useRef(0);
  /** The answer to the last question counts. */
  const propose = async (after: bigint | undefined): Promise<void> => {
    const question = ++asked.current;
    const free = mayRead.value ? await findFreeId(after) : undefined;
    if (question === asked.current) proposed.value = String(free ?? "");
  };
  // Before the next key: a scanner types at once.
  useLayoutEffect(() => {
    focusField("add-id");
    void propose(findInt64(last?.id ?? "")).catch(() => undefined);
  }, []);
  // Typing replaces the proposal. What is typed already stays, also if it begins like it.
  useLayoutEffect(() => {
    const field = document.activeElement as HTMLInputElement | null;
    if (field?.id === "add-id" && draft.id === undefined) field.select();
  }, [proposed.value]);

  const submit = (): void => {
    isJudged.value = true;
    const isFaulty = [name, tag].some((text) => findTextFault(text));
    if (exactId === undefined || isFaulty) {
      announce("Nothing was sent. See the messages beside the fields.");
      return focusField(exactId === undefined ? "add-id" : "add-name");
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
      // The next plant may have been started meanwhile, or a search.
      if (findDraft("new") === sent) {
        keepDraft("new", undefined);
        if (!document.activeElement?.closest(".plants-list")) focusField("add-id");
      }
      proposed.value = "";
      // Not awaited: the next plant can be sent before.
      void propose(plant.id).catch(() => undefined);
    });
  };

  const suggestId = async (): Promise<void> => {
    try {
      await propose(exactId === undefined ? findInt64(last?.id ?? "") : exactId - 1n);
      // Another id may have been typed meanwhile.
      if (findDraft("new")?.id !== draft.id) return;
      put({ id: undefined });
      trouble.value = undefined;
      announce(`Id ${proposed.value} is free.`);
      if (!isTyping(document.activeElement)) focusField("add-name");
    } catch (error) {
      trouble.value = error;
    }
  };

  const idFault = isJudged.value ? findIdFault(id) : undefined;
  const error = trouble.value;
  const label = error === undefined || error instanceof Taken ? "Add plant" : "Try again";
  return (
    <Panel title="Add a plant">
      <Form onSubmit={submit}>
        <Field
          id="add-id"
          label="Id"
          fault={idFault}
          note={
            takenBy !== undefined &&
            error === undefined && (
              <>
                Already belongs to <a href={linkTo(takenBy.id)}>{formatName(takenBy)}</a>.
              </>
            )
          }
        >
          <div class="with-button">
            <input
              {...fieldProps("add-id", idFault)}
              class="digits"
              type="text"
              inputMode="numeric"
              autocomplete="off"
              required
              value={id}
              onInput={(event) => {
                put({ id: event.currentTarget.value });
                trouble.value = undefined;
              }}
              onKeyDown={(event) => {
                // A barcode scanner sends Enter after the digits.
                if (event.key !== "Enter") return;
                event.preventDefault();
                focusField("add-name");
              }}
              onBlur={() => {
                isJudged.value ||= id !== "";
              }}
            />
            {mayRead.value && <Button onClick={() => void suggestId()}>Next free</Button>}
          </div>
        </Field>
        <NameField
          id="add-name"
          value={name}
          onInput={(text) => put({ name: text })}
          note={
            namesake !== undefined && (
              <>
                <a href={linkTo(namesake.id)}>Plant {String(namesake.id)}</a> has this name too.
              </>
            )
          }
        />
        <TagField id="add-tag" value={tag} onInput={(text) => put({ tag: text })} />
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
