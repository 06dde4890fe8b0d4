/** Name and tag of a plant, corrected where they stand; nobody's change is overwritten unknowingly. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Plant } from "../../domain/plant.ts";
import { Changed, isSame, replacePlant, type Versioned } from "../api/plants.ts";
import { explain } from "../api/service.ts";
import { announce } from "../state/announcements.ts";
import { formatName } from "../state/numbers.ts";
import { list } from "../state/plants.ts";
import { openPlant } from "../state/route.ts";
import { findTextFault, findTextNote, NAME_RULE, TAG_RULE } from "../state/rules.ts";
import { noteTag, suggestTags } from "../state/tags.ts";
import { toast } from "../state/toasts.ts";
import { Combobox } from "./combobox.tsx";
import { ConflictNotice } from "./conflict.tsx";
import { Field, fieldProps } from "./field.tsx";
import { Notice } from "./notice.tsx";
import { IdLabel } from "./panel.tsx";
import { mayRead } from "../state/session.ts";

interface PlantFormProps {
  readonly versioned: Versioned;
  /** With what was saved, or with what it is now; undefined where nothing came of it. */
  readonly onDone: (saved: Versioned | undefined) => void;
  /** Where the form was left before the answer came: there may be another one by now. */
  readonly onSavedLate: (saved: Versioned) => void;
  readonly onGone: () => void;
}

export function PlantForm({ versioned, onDone, onSavedLate, onGone }: PlantFormProps): JSX.Element {
  const { plant } = versioned;
  const name = useSignal(plant.name);
  // What is not touched stays exactly as it is: an empty tag is one, and no tag is none.
  const tag = useSignal(plant.tag);
  const trouble = useSignal<unknown>(undefined);
  const isSending = useSignal(false);
  const form = useRef<HTMLFormElement>(null);
  const isLeft = useRef(false);

  useEffect(() => {
    const first = form.current?.querySelector<HTMLInputElement>("#edit-name");
    first?.focus();
    first?.select();
    return () => {
      isLeft.current = true;
    };
  }, []);

  const nameFault = findTextFault(name.value);
  const tagFault = findTextFault(tag.value ?? "");
  const edited: Plant = { id: plant.id, name: name.value, tag: tag.value };

  const save = async (etag: string): Promise<void> => {
    if (nameFault !== undefined || tagFault !== undefined || isSending.value) return;
    if (isSame(edited, plant) && etag === versioned.etag) return onDone(undefined);
    isSending.value = true;
    trouble.value = undefined;
    try {
      const saved = await replacePlant(edited, etag);
      list.value.put(saved.plant);
      noteTag(saved.plant.tag);
      toast(`${formatName(saved.plant)} is saved.`);
      (isLeft.current ? onSavedLate : onDone)(saved);
    } catch (error) {
      trouble.value = error;
      if (isLeft.current)
        return toast(`${formatName(edited)} was not saved for certain. ${explain(error)}`, {
          label: "Open",
          isNeeded: true,
          run: () => openPlant(plant.id),
        });
      if (error instanceof Changed) announce("Somebody else has changed this plant meanwhile.");
    } finally {
      isSending.value = false;
    }
  };

  return (
    <form
      class="form"
      noValidate
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        void save(versioned.etag);
      }}
    >
      <IdLabel id={plant.id} />
      <Field
        id="edit-name"
        label="Name"
        rule={NAME_RULE}
        fault={nameFault}
        note={findTextNote(name.value)}
      >
        <NameInput
          hasLines={/[\r\n]/.test(plant.name)}
          value={name.value}
          fault={nameFault}
          onInput={(text) => {
            name.value = text;
          }}
        />
      </Field>
      <Field
        id="edit-tag"
        label="Tag"
        optional
        rule={TAG_RULE}
        fault={tagFault}
        note={
          tag.value === "" ? (
            <EmptyTagNote onRemove={() => (tag.value = undefined)} />
          ) : (
            findTextNote(tag.value ?? "")
          )
        }
      >
        <Combobox
          id="edit-tag"
          inputProps={fieldProps("edit-tag", tagFault)}
          value={tag.value ?? ""}
          suggest={mayRead.value ? suggestTags : async () => []}
          onInput={(text) => {
            tag.value = text === "" ? undefined : text;
          }}
        />
      </Field>
      {trouble.value instanceof Changed ? (
        <ConflictNotice
          change={trouble.value}
          doing="save"
          onTake={(now) => {
            if (now === undefined) return onGone();
            list.value.put(now.plant);
            onDone(now);
          }}
          onInsist={(now) => void save(now.etag)}
        />
      ) : (
        <>
          {trouble.value !== undefined && (
            <Notice kind="fault" title="Not saved for certain">
              <p>{explain(trouble.value)} Save again: it does no harm.</p>
            </Notice>
          )}
          <div class="form-actions">
            <button type="submit" class="button button-main" disabled={isSending.value}>
              {isSending.value ? "Saving…" : "Save"}
            </button>
            <button type="button" class="button" onClick={() => onDone(undefined)}>
              Cancel
            </button>
          </div>
        </>
      )}
    </form>
  );
}

interface NameInputProps {
  readonly hasLines: boolean;
  readonly value: string;
  readonly fault: string | undefined;
  readonly onInput: (text: string) => void;
}

/** A field of one line would drop the line breaks of a name that has some; which it is does not change while typing. */
function NameInput({ hasLines, value, fault, onInput }: NameInputProps): JSX.Element {
  const shared = { ...fieldProps("edit-name", fault), autocomplete: "off" as const, value };
  return hasLines ? (
    <textarea {...shared} rows={4} onInput={(event) => onInput(event.currentTarget.value)} />
  ) : (
    <input {...shared} type="text" onInput={(event) => onInput(event.currentTarget.value)} />
  );
}

const EmptyTagNote = ({ onRemove }: { readonly onRemove: () => void }): JSX.Element => (
  <>
    It has an empty tag, which is not the same as none.{" "}
    <button type="button" class="button-link" onClick={onRemove}>
      Remove the tag
    </button>
  </>
);
