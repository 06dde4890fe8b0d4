/** The form for a new plant. It says while the id is typed whether another plant has it. */

import { untracked, useSignal, useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import { createPlant, findFreeId, findTaken, readPlant } from "../api/plants.ts";
import { isStatus } from "../api/service.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { formatName } from "../state/format.ts";
import { list, noteTag } from "../state/plants.ts";
import { linkTo } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { announce, toast } from "../state/toasts.ts";
import { Button, FailureNotice, Notice } from "./controls.tsx";
import {
  Field,
  fieldProps,
  findIdFault,
  findTextFault,
  ID_RULE,
  NameField,
  TagField,
} from "./form.tsx";
import { Panel } from "./panel.tsx";

type Trouble =
  | { readonly kind: "taken"; readonly id: bigint; readonly by: Plant | undefined }
  | { readonly kind: "failed"; readonly error: unknown };

export function AddPanel(): JSX.Element {
  const draft = findDraft("new");
  const id = useSignal(draft?.id ?? "");
  const name = useSignal(draft?.name ?? "");
  const tag = useSignal(draft?.tag);
  const isJudged = useSignal(false);
  const isIdLeft = useSignal(false);
  const isSending = useSignal(false);
  const trouble = useSignal<Trouble | undefined>(undefined);
  const idInput = useRef<HTMLInputElement>(null);
  const nameInput = useRef<HTMLInputElement>(null);
  const takenBy = useTakenBy(id.value);

  useEffect(() => idInput.current?.focus(), []);
  useSignalEffect(() => {
    const isEmpty = id.value === "" && name.value === "" && tag.value === undefined;
    const kept = { id: id.value, name: name.value, tag: tag.value };
    untracked(() => keepDraft("new", isEmpty ? undefined : kept));
  });

  // An id that is still being typed is not wrong yet.
  const isIdJudged = isJudged.value || (isIdLeft.value && id.value !== "");
  const idFault = isIdJudged ? findIdFault(id.value) : undefined;
  const exactId = findInt64(id.value.trim());

  const submit = async (): Promise<void> => {
    isJudged.value = true;
    const isFaulty = [name.value, tag.value ?? ""].some((text) => findTextFault(text));
    if (exactId === undefined || isFaulty) {
      announce("Nothing was sent. See the messages beside the fields.");
      (exactId === undefined ? idInput : nameInput).current?.focus();
      return;
    }
    const sent = [id.value, name.value, tag.value];
    const plant = { id: exactId, name: name.value, tag: tag.value };
    isSending.value = true;
    trouble.value = undefined;
    try {
      const outcome = await createPlant(plant);
      list.value.put(plant);
      noteTag(plant.tag);
      const shown = formatName(plant);
      toast(outcome === "created" ? `Added ${shown}.` : `${shown} was already there.`);
      [isJudged.value, isIdLeft.value] = [false, false];
      // The next plant may have been started meanwhile.
      if ([id, name, tag].some(({ value }, index) => value !== sent[index])) return;
      [id.value, name.value, tag.value] = ["", "", undefined];
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
      const free = await findFreeId();
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
          fault={idFault}
          note={
            takenBy !== undefined &&
            trouble.value === undefined && (
              <>
                Already belongs to <a href={linkTo(takenBy.id)}>{formatName(takenBy)}</a>.
              </>
            )
          }
        >
          <div class="with-button">
            <input
              {...fieldProps("add-id", idFault)}
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
              onKeyDown={(event) => {
                // A barcode scanner sends Enter after the digits.
                if (event.key !== "Enter") return;
                event.preventDefault();
                nameInput.current?.focus();
              }}
              onBlur={() => {
                isIdLeft.value = true;
              }}
            />
            {mayRead.value && <Button onClick={() => void suggestId()}>Next free</Button>}
          </div>
        </Field>
        <NameField
          id="add-name"
          inputRef={nameInput}
          value={name.value}
          onInput={(text) => {
            name.value = text;
          }}
        />
        <TagField
          id="add-tag"
          value={tag.value}
          onInput={(text) => {
            tag.value = text;
          }}
        />
        {trouble.value !== undefined && <TroubleNotice trouble={trouble.value} />}
        <div class="form-actions">
          <button type="submit" class="button button-main" disabled={isSending.value}>
            {isSending.value
              ? "Sending…"
              : trouble.value?.kind === "failed"
                ? "Try again"
                : "Add plant"}
          </button>
        </div>
      </form>
    </Panel>
  );
}

const LOOK_UP_DELAY_MS = 250;

function useTakenBy(text: string): Plant | undefined {
  const taken = useSignal<Plant | undefined>(undefined);
  const id = findInt64(text.trim());
  useEffect(() => {
    taken.value = undefined;
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

async function findHolder(id: bigint): Promise<Plant | undefined> {
  if (!mayRead.value) return undefined;
  return (await readPlant(id).catch(() => undefined))?.plant;
}

function TroubleNotice({ trouble }: { readonly trouble: Trouble }): JSX.Element {
  if (trouble.kind === "failed") return <FailureNotice of="save" error={trouble.error} />;
  const { id, by } = trouble;
  const owner = by === undefined ? "another plant" : formatName(by);
  return (
    <Notice kind="fault" title={`Id ${id} already belongs to ${owner}`}>
      <p>Nothing was changed. {by !== undefined && <a href={linkTo(id)}>Open that plant</a>}</p>
    </Notice>
  );
}
