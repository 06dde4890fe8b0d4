/** A new plant: the rules beside the fields before anything is sent, and who has the id where it is taken. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import { createPlant, findFreeId, readPlant } from "../api/plants.ts";
import { explain, isStatus, Lost } from "../api/service.ts";
import { announce } from "../state/announcements.ts";
import { formatName } from "../state/numbers.ts";
import { list } from "../state/plants.ts";
import { linkTo } from "../state/route.ts";
import {
  findIdFault,
  findTextFault,
  findTextNote,
  ID_RULE,
  NAME_RULE,
  TAG_RULE,
} from "../state/rules.ts";
import { mayRead } from "../state/session.ts";
import { noteTag, suggestTags } from "../state/tags.ts";
import { toast } from "../state/toasts.ts";
import { Combobox } from "./combobox.tsx";
import { Field, fieldProps } from "./field.tsx";
import { Notice } from "./notice.tsx";
import { Panel } from "./panel.tsx";
import { useTakenBy } from "./taken-by.ts";

type Trouble =
  | { readonly kind: "taken"; readonly id: bigint; readonly by: Plant | undefined }
  | { readonly kind: "failed"; readonly error: unknown };

export function AddPanel(): JSX.Element {
  const id = useSignal("");
  const name = useSignal("");
  const tag = useSignal("");
  const isJudged = useSignal(false);
  const isIdLeft = useSignal(false);
  const isSending = useSignal(false);
  const trouble = useSignal<Trouble | undefined>(undefined);
  const idInput = useRef<HTMLInputElement>(null);
  const nameInput = useRef<HTMLInputElement>(null);
  const takenBy = useTakenBy(id.value);

  useEffect(() => idInput.current?.focus(), []);

  const idFault = findIdFault(id.value);
  // What is still being typed is not yet wrong.
  const shownIdFault = isJudged.value || (isIdLeft.value && id.value !== "") ? idFault : undefined;
  const nameFault = findTextFault(name.value);
  const tagFault = findTextFault(tag.value);
  const exactId = findInt64(id.value.trim());

  const submit = async (): Promise<void> => {
    isJudged.value = true;
    if (exactId === undefined || nameFault !== undefined || tagFault !== undefined) {
      announce("Nothing was sent: see what is wrong beside the fields.");
      (exactId === undefined ? idInput : nameInput).current?.focus();
      return;
    }
    const sent = [id.value, name.value, tag.value];
    const plant = { id: exactId, name: name.value, tag: tag.value === "" ? undefined : tag.value };
    isSending.value = true;
    trouble.value = undefined;
    try {
      const outcome = await createPlant(plant);
      list.value.put(plant);
      noteTag(plant.tag);
      const how = outcome === "created" ? "is stored" : "was there already, exactly so";
      toast(`${formatName(plant)} ${how}.`);
      [isJudged.value, isIdLeft.value] = [false, false];
      // The next one may have been begun meanwhile.
      if ([id, name, tag].some(({ value }, index) => value !== sent[index])) return;
      [id.value, name.value, tag.value] = ["", "", ""];
      idInput.current?.focus();
    } catch (error) {
      trouble.value = isStatus(error, 409)
        ? { kind: "taken", id: exactId, by: await findHolder(exactId) }
        : { kind: "failed", error };
    } finally {
      isSending.value = false;
    }
  };

  const suggestId = async (): Promise<void> => {
    try {
      const free = await findFreeId(new AbortController().signal);
      if (free === undefined) return announce("No free id was found.");
      id.value = String(free);
      trouble.value = undefined;
      announce(`Id ${free} is free.`);
      nameInput.current?.focus();
    } catch (error) {
      trouble.value = { kind: "failed", error };
    }
  };

  return (
    <Panel title="Add a plant">
      <form
        class="form"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (!isSending.value) void submit();
        }}
      >
        <Field
          id="add-id"
          label="Id"
          rule={ID_RULE}
          fault={shownIdFault}
          note={
            takenBy !== undefined && trouble.value === undefined && <TakenNote plant={takenBy} />
          }
        >
          <div class="with-button">
            <input
              {...fieldProps("add-id", shownIdFault)}
              ref={idInput}
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
              onBlur={() => {
                isIdLeft.value = true;
              }}
            />
            {mayRead.value && (
              <button type="button" class="button" onClick={() => void suggestId()}>
                Next free
              </button>
            )}
          </div>
        </Field>
        <Field
          id="add-name"
          label="Name"
          rule={NAME_RULE}
          fault={nameFault}
          note={findTextNote(name.value)}
        >
          <input
            {...fieldProps("add-name", nameFault)}
            ref={nameInput}
            type="text"
            autocomplete="off"
            value={name.value}
            onInput={(event) => {
              name.value = event.currentTarget.value;
            }}
          />
        </Field>
        <Field
          id="add-tag"
          label="Tag"
          optional
          rule={TAG_RULE}
          fault={tagFault}
          note={findTextNote(tag.value)}
        >
          <Combobox
            id="add-tag"
            inputProps={fieldProps("add-tag", tagFault)}
            value={tag.value}
            suggest={mayRead.value ? suggestTags : async () => []}
            onInput={(text) => {
              tag.value = text;
            }}
          />
        </Field>
        <TroubleNotice trouble={trouble.value} />
        <div class="form-actions">
          <button type="submit" class="button button-main" disabled={isSending.value}>
            {isSending.value
              ? "Sending…"
              : trouble.value?.kind === "failed"
                ? "Send again"
                : "Add plant"}
          </button>
        </div>
      </form>
    </Panel>
  );
}

async function findHolder(id: bigint): Promise<Plant | undefined> {
  if (!mayRead.value) return undefined;
  return (await readPlant(id).catch(() => undefined))?.plant;
}

const TakenNote = ({ plant }: { readonly plant: Plant }): JSX.Element => (
  <>
    Taken by <a href={linkTo(plant.id)}>{formatName(plant)}</a>.
  </>
);

function TroubleNotice({ trouble }: { readonly trouble: Trouble | undefined }): JSX.Element | null {
  if (trouble === undefined) return null;
  if (trouble.kind === "taken")
    return (
      <Notice kind="fault" title="This id is taken">
        {trouble.by === undefined ? (
          <p>A different plant has the id {String(trouble.id)}. Nothing was changed.</p>
        ) : (
          <>
            <p>Nothing was changed. The plant that has it:</p>
            <a class="plant-card" href={linkTo(trouble.id)}>
              <span class="row-id">{String(trouble.id)}</span>
              <strong>{trouble.by.name}</strong>
              {trouble.by.tag !== undefined && <span class="tag">{trouble.by.tag}</span>}
            </a>
          </>
        )}
      </Notice>
    );
  return (
    <Notice kind="fault" title="Not confirmed">
      <p>{explain(trouble.error)}</p>
      {trouble.error instanceof Lost && (
        <p>It may have been stored or not. Send it again: the same plant is stored only once.</p>
      )}
    </Notice>
  );
}
