/** The fields of a plant, with the rules of the interface: a form says what is wrong before anything is sent. */

import type { ComponentChildren, JSX } from "preact";
import { findInt64, INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isStorable } from "../../domain/plant.ts";
import { suggestTags } from "../state/plants.ts";
import { mayRead } from "../state/session.ts";
import { Combobox } from "./combobox.tsx";

interface FieldProps {
  readonly id: string;
  readonly label: string;
  readonly optional?: boolean;
  readonly rule?: string;
  readonly fault?: string | undefined;
  /** Worth knowing, but not a fault. */
  readonly note?: ComponentChildren;
  readonly children: ComponentChildren;
}

export function Field(props: FieldProps): JSX.Element {
  const { id, label, optional, rule, fault, note, children } = props;
  return (
    <div class={fault === undefined ? "field" : "field field-faulty"}>
      <label for={id}>
        {label}
        {optional === true && <span class="field-optional"> (optional)</span>}
      </label>
      {children}
      <div class="field-notes" id={`${id}-notes`}>
        {fault === undefined ? (
          rule !== undefined && <p class="field-rule">{rule}</p>
        ) : (
          <p class="field-fault">{fault}</p>
        )}
        {note !== undefined && note !== false && <p class="field-note">{note}</p>}
      </div>
    </div>
  );
}

/** Ties an input to its field. */
export const fieldProps = (
  id: string,
  fault: string | undefined,
): { id: string; "aria-describedby": string; "aria-invalid": "true" | "false" } => ({
  id,
  "aria-describedby": `${id}-notes`,
  "aria-invalid": fault === undefined ? "false" : "true",
});

export const ID_RULE = `A whole number from ${INT64_MIN} to ${INT64_MAX}. It never changes.`;

export function findIdFault(text: string): string | undefined {
  const written = text.trim();
  if (written === "") return "Enter an id.";
  if (findInt64(written) !== undefined) return undefined;
  if (!/^-?[\d.eE+-]+$/.test(written)) return "Only digits, with a minus sign if negative.";
  const digits = /^(-?)\d+$/.exec(written);
  if (digits === null) return "The id must be a whole number.";
  return digits[1] === "-"
    ? `Too small: the smallest id is ${INT64_MIN}.`
    : `Too large: the largest id is ${INT64_MAX}.`;
}

export const findTextFault = (text: string): string | undefined =>
  isStorable(text)
    ? undefined
    : "Contains a character that can't be stored (U+0000 or half a pair).";

const findTextNote = (text: string): string | undefined =>
  text !== "" && text.trim() !== text ? "Starts or ends with a space." : undefined;

interface NameFieldProps {
  readonly id: string;
  readonly value: string;
  /** A field of one line would drop the line breaks of a name that has some. */
  readonly hasLines?: boolean;
  readonly inputRef?: { current: HTMLInputElement | HTMLTextAreaElement | null };
  readonly onInput: (text: string) => void;
}

export function NameField({ id, value, hasLines, inputRef, onInput }: NameFieldProps): JSX.Element {
  const fault = findTextFault(value);
  const shared = {
    ...fieldProps(id, fault),
    autocomplete: "off" as const,
    value,
    ref: (element: HTMLInputElement | HTMLTextAreaElement | null) => {
      if (inputRef !== undefined) inputRef.current = element;
    },
    onInput: (event: { currentTarget: { value: string } }) => onInput(event.currentTarget.value),
  };
  return (
    <Field id={id} label="Name" rule="Any text." fault={fault} note={findTextNote(value)}>
      {hasLines === true ? <textarea {...shared} rows={4} /> : <input {...shared} type="text" />}
    </Field>
  );
}

interface TagFieldProps {
  readonly id: string;
  /** An empty tag is a tag; undefined is none. */
  readonly value: string | undefined;
  readonly onInput: (tag: string | undefined) => void;
}

export function TagField({ id, value, onInput }: TagFieldProps): JSX.Element {
  const text = value ?? "";
  const fault = findTextFault(text);
  const note =
    value === "" ? (
      <>
        This plant has an empty tag, which is not the same as no tag.{" "}
        <button type="button" class="button-link" onClick={() => onInput(undefined)}>
          Remove the tag
        </button>
      </>
    ) : (
      findTextNote(text)
    );
  return (
    <Field
      id={id}
      label="Tag"
      optional
      rule="A word or two for the kind of plant."
      fault={fault}
      note={note}
    >
      <Combobox
        id={id}
        inputProps={fieldProps(id, fault)}
        value={text}
        suggest={mayRead.value ? suggestTags : async () => []}
        onInput={(typed) => onInput(typed === "" ? undefined : typed)}
      />
    </Field>
  );
}
