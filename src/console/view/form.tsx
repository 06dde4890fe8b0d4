/** Forms, and the fields of a plant with the rules of the interface: a form says what is wrong before it sends. */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { ServiceError } from "../../../client/client.ts";
import { findInt64, INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isStorable, type Plant } from "../../domain/plant.ts";
import { Taken } from "../api/plants.ts";
import { explain } from "../api/service.ts";
import { formatName } from "../state/format.ts";
import { suggestTags } from "../state/plants.ts";
import { linkTo } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { Combobox } from "./combobox.tsx";
import { Notice } from "./controls.tsx";

interface Task {
  readonly isBusy: Signal<boolean>;
  /** Why it failed the last time. */
  readonly trouble: Signal<unknown>;
  readonly run: (action: () => Promise<void>) => Promise<void>;
}

/** Something that is sent, once at a time. */
export function useTask(): Task {
  const isBusy = useSignal(false);
  const trouble = useSignal<unknown>(undefined);
  const run = async (action: () => Promise<void>): Promise<void> => {
    if (isBusy.value) return;
    isBusy.value = true;
    trouble.value = undefined;
    try {
      await action();
    } catch (error) {
      trouble.value = error;
    } finally {
      isBusy.value = false;
    }
  };
  return { isBusy, trouble, run };
}

const outcomes = { save: "Not saved", deletion: "Not deleted" } as const;

interface FailureNoticeProps {
  readonly of: keyof typeof outcomes;
  readonly error: unknown;
}

/** A write that was refused, or one that may have been carried out although no answer came. */
export function FailureNotice({ of, error }: FailureNoticeProps): JSX.Element {
  if (error instanceof Taken)
    return (
      <Notice
        kind="fault"
        title={`Id ${error.id} already belongs to ${error.by === undefined ? "another plant" : formatName(error.by)}`}
      >
        <p>
          Nothing was changed.{" "}
          {error.by !== undefined && <a href={linkTo(error.id)}>Open that plant</a>}
        </p>
      </Notice>
    );
  const isRefused = error instanceof ServiceError && !error.isTransient;
  const title = isRefused ? outcomes[of] : `Couldn't confirm the ${of}. It's safe to try again.`;
  return <Notice kind="fault" title={title} text={explain(error)} />;
}

interface FormProps {
  readonly onSubmit: () => void;
  readonly children: ComponentChildren;
}

export const Form = ({ onSubmit, children }: FormProps): JSX.Element => (
  <form
    class="form"
    noValidate
    onSubmit={(event) => {
      event.preventDefault();
      onSubmit();
    }}
  >
    {children}
  </form>
);

export function focusField(id: string): void {
  document.querySelector<HTMLInputElement>(`#${id}`)?.focus();
}

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

interface ChoiceProps {
  readonly id: string;
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, label: string])[];
  readonly fault?: string | undefined;
  readonly onChange: (value: string) => void;
}

export const Choice = (props: ChoiceProps): JSX.Element => (
  <Field id={props.id} label={props.label} fault={props.fault}>
    <select
      {...fieldProps(props.id, props.fault)}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    >
      {props.options.map(([value, text]) => (
        <option key={value} value={value} selected={value === props.value}>
          {text}
        </option>
      ))}
    </select>
  </Field>
);

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

export const findTextFault = (text = ""): string | undefined =>
  isStorable(text)
    ? undefined
    : "Contains a character that can't be stored (U+0000 or half of a surrogate pair).";

const findTextNote = (text: string): string | undefined =>
  text !== "" && text.trim() !== text ? "Starts or ends with a space." : undefined;

interface NameFieldProps {
  readonly id: string;
  readonly name: Signal<string>;
  /** A field of one line would drop the line breaks of a name that has some. */
  readonly hasLines?: boolean;
  readonly note?: ComponentChildren;
}

export function NameField({ id, name, hasLines, note }: NameFieldProps): JSX.Element {
  const { value } = name;
  const fault = findTextFault(value);
  const shared = {
    ...fieldProps(id, fault),
    autocomplete: "off" as const,
    value,
    onInput: (event: { currentTarget: { value: string } }) => {
      name.value = event.currentTarget.value;
    },
  };
  return (
    <Field id={id} label="Name" fault={fault} note={note ?? findTextNote(value)}>
      {hasLines === true ? <textarea {...shared} rows={4} /> : <input {...shared} type="text" />}
    </Field>
  );
}

interface TagFieldProps {
  readonly id: string;
  /** An empty tag is a tag; undefined is none. */
  readonly tag: Signal<string | undefined>;
}

export function TagField({ id, tag }: TagFieldProps): JSX.Element {
  const fault = findTextFault(tag.value);
  const put = (text: string): void => {
    tag.value = text === "" ? undefined : text;
  };
  const note =
    tag.value === "" ? (
      <>
        This plant has an empty tag, which is not the same as no tag.{" "}
        <button type="button" class="button-link" onClick={() => put("")}>
          Remove the tag
        </button>
      </>
    ) : (
      findTextNote(tag.value ?? "")
    );
  return (
    <Field id={id} label="Tag" optional fault={fault} note={note}>
      <Combobox
        id={id}
        inputProps={fieldProps(id, fault)}
        value={tag.value ?? ""}
        suggest={mayRead.value ? suggestTags : async () => []}
        onInput={put}
      />
    </Field>
  );
}

const LOOK_UP_DELAY_MS = 250;

/** Only a hint: the answer to the request decides. */
export function useLookUp(
  key: bigint | string | undefined,
  look: (signal: AbortSignal) => Promise<Plant | undefined>,
): Plant | undefined {
  const found = useSignal<readonly [typeof key, Plant | undefined]>([undefined, undefined]);
  useEffect(() => {
    if (key === undefined || !mayRead.value) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      look(controller.signal).then(
        (plant) => {
          found.value = [key, plant];
        },
        () => undefined,
      );
    }, LOOK_UP_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key]);
  return found.value[0] === key ? found.value[1] : undefined;
}
