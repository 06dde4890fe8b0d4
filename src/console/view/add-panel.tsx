/** The form for a new plant. It says while the id is typed whether another plant has it. */

import { useSignal, useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import { createPlant, findFreeId, findTaken, Taken } from "../api/plants.ts";
import { formatName } from "../state/format.ts";
import { list, noteTag } from "../state/plants.ts";
import { linkTo } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
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
  ID_RULE,
  NameField,
  TagField,
  useTask,
} from "./form.tsx";
import { Panel } from "./panel.tsx";

export function AddPanel(): JSX.Element {
  const draft = findDraft("new");
  const id = useSignal(draft?.id ?? "");
  const name = useSignal(draft?.name ?? "");
  const tag = useSignal(draft?.tag);
  /** An id that is still being typed is not wrong yet. */
  const isJudged = useSignal(false);
  const { isBusy, trouble, run } = useTask();
  const takenBy = useTakenBy(id.value);

  useEffect(() => focusField("add-id"), []);
  useSignalEffect(() => {
    const isEmpty = id.value === "" && name.value === "" && tag.value === undefined;
    keepDraft("new", isEmpty ? undefined : { id: id.value, name: name.value, tag: tag.value });
  });

  const submit = (): void => {
    isJudged.value = true;
    const exactId = findInt64(id.value.trim());
    const isFaulty = [name.value, tag.value].some((text) => findTextFault(text));
    if (exactId === undefined || isFaulty) {
      announce("Nothing was sent. See the messages beside the fields.");
      return focusField(exactId === undefined ? "add-id" : "add-name");
    }
    const sent = [id.value, name.value, tag.value];
    const plant = { id: exactId, name: name.value, tag: tag.value };
    void run(async () => {
      const outcome = await createPlant(plant);
      list.value.put(plant);
      noteTag(plant.tag);
      const shown = formatName(plant);
      toast(outcome === "created" ? `Added ${shown}.` : `${shown} was already there.`);
      isJudged.value = false;
      // The next plant may have been started meanwhile.
      if ([id, name, tag].some(({ value }, index) => value !== sent[index])) return;
      [id.value, name.value, tag.value] = ["", "", undefined];
      focusField("add-id");
    });
  };

  const suggestId = async (): Promise<void> => {
    try {
      const free = await findFreeId();
      if (free === undefined) return announce("No free id was found.");
      id.value = String(free);
      trouble.value = undefined;
      announce(`Id ${free} is free.`);
      focusField("add-name");
    } catch (error) {
      trouble.value = error;
    }
  };

  const idFault = isJudged.value ? findIdFault(id.value) : undefined;
  const error = trouble.value;
  const label = error === undefined || error instanceof Taken ? "Add plant" : "Try again";
  return (
    <Panel title="Add a plant">
      <Form onSubmit={submit}>
        <Field
          id="add-id"
          label="Id"
          rule={ID_RULE}
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
              value={id.value}
              onInput={(event) => {
                id.value = event.currentTarget.value;
                trouble.value = undefined;
              }}
              onKeyDown={(event) => {
                // A barcode scanner sends Enter after the digits.
                if (event.key !== "Enter") return;
                event.preventDefault();
                focusField("add-name");
              }}
              onBlur={() => {
                isJudged.value ||= id.value !== "";
              }}
            />
            {mayRead.value && <Button onClick={() => void suggestId()}>Next free</Button>}
          </div>
        </Field>
        <NameField id="add-name" name={name} />
        <TagField id="add-tag" tag={tag} />
        {error !== undefined && <FailureNotice of="save" error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="main" isDisabled={isBusy.value}>
            {isBusy.value ? "Sending…" : label}
          </Button>
        </div>
      </Form>
    </Panel>
  );
}

const LOOK_UP_DELAY_MS = 250;

function useTakenBy(text: string): Plant | undefined {
  const taken = useSignal<Plant | undefined>(undefined);
  const id = findInt64(text.trim());
  useEffect(() => {
    if (id === undefined || !mayRead.value) return;
    const controller = new AbortController();
    const look = async (): Promise<void> => {
      // Only a hint: the answer to the request decides.
      const found = await findTaken(id, controller.signal).catch(() => undefined);
      if (!controller.signal.aborted) taken.value = found;
    };
    const timer = setTimeout(() => void look(), LOOK_UP_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [id]);
  return taken.value?.id === id ? taken.value : undefined;
}
