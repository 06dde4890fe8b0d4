/** Forms and their fields, those of a plant with its rules: a form says what is wrong before it sends. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX, PartialInputHTMLAttributes } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ServiceError, type TagCount, type TagCountPage } from "../../../client/client.ts";
import { findInt64, INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isStorable, type Plant } from "../../domain/plant.ts";
import { readTags, Taken } from "../api/plants.ts";
import { explain, isAbort } from "../api/service.ts";
import { formatName, formatTotal } from "../state/format.ts";
import { linkTo } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { Notice } from "./controls.tsx";

/** Something that is sent, once at a time. */
export function useTask() {
  const isBusy = useSignal(false);
  /** Why it failed the last time. */
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

const POLL_MS = 5000;

/** Reads at once and then every few seconds, but not while the page is hidden. */
export function usePolling<Answer>(read: () => Promise<Answer>, accept: (answer: Answer) => void) {
  /** Why it failed the last time. */
  const failure = useSignal<unknown>(undefined);
  const asked = useRef(0);
  const answered = useRef(0);
  const poll = async (): Promise<void> => {
    const question = ++asked.current;
    const show = await read().then(
      (answer) => () => {
        accept(answer);
        failure.value = undefined;
      },
      (error: unknown) => () => {
        failure.value = error;
      },
    );
    // The answer to a later question may have overtaken this one.
    if (question < answered.current) return;
    answered.current = question;
    show();
  };
  useEffect(() => {
    void poll();
    const timer = setInterval(() => document.hidden || void poll(), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  return { failure: failure.value, poll };
}

/** Runs again when an input changes. The signal ends an earlier run. */
export function useLater(
  delayMs: number,
  run: (signal: AbortSignal) => unknown,
  inputs: readonly unknown[],
): void {
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(() => run(controller.signal), delayMs);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, inputs);
}

const LOOK_UP_DELAY_MS = 250;

/** Only a hint: the answer to the request decides. Looks again when `news` changes. */
export function useLookUp(
  key: bigint | string | undefined,
  look: (signal: AbortSignal) => Promise<Plant | undefined>,
  news?: number,
): Plant | undefined {
  const found = useSignal<readonly [typeof key, Plant | undefined]>([undefined, undefined]);
  const lookUp = async (signal: AbortSignal): Promise<void> => {
    if (key === undefined || !mayRead.value) return;
    const plant = await look(signal).catch(() => undefined);
    if (!signal.aborted) found.value = [key, plant];
  };
  useLater(LOOK_UP_DELAY_MS, lookUp, [key, news]);
  return found.value[0] === key ? found.value[1] : undefined;
}

const outcomes = { save: "Not saved", deletion: "Not deleted" } as const;

interface FailureNoticeProps {
  readonly of: keyof typeof outcomes;
  readonly error: unknown;
}

/** A write that was refused, or one that may have been carried out although no answer came. */
export function FailureNotice({ of, error }: FailureNoticeProps): JSX.Element {
  if (error instanceof Taken) {
    const { id, current } = error;
    const holder = current === undefined ? "another plant" : formatName(current.plant);
    return (
      <Notice kind="fault" title={`Id ${id} already belongs to ${holder}`}>
        <p>Nothing was changed. {current && <a href={linkTo(id)}>Open that plant</a>}</p>
      </Notice>
    );
  }
  const isRefused = error instanceof ServiceError && !error.isTransient;
  const title = isRefused ? outcomes[of] : `Couldn't confirm the ${of}. It's safe to try again.`;
  return <Notice kind="fault" title={title} text={explain(error)} />;
}

interface FormProps {
  readonly onSubmit: (form: HTMLFormElement) => void;
  readonly children: ComponentChildren;
}

export const Form = ({ onSubmit, children }: FormProps): JSX.Element => (
  <form
    class="form"
    noValidate
    onSubmit={(event) => {
      event.preventDefault();
      onSubmit(event.currentTarget);
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
  readonly optional?: boolean | undefined;
  readonly fault?: string | undefined;
  /** Worth knowing, but not a fault. */
  readonly note?: ComponentChildren;
}

/** Its children need `fieldProps`. */
export function Field(props: FieldProps & { readonly children: ComponentChildren }): JSX.Element {
  const { id, label, optional, fault, note, children } = props;
  return (
    <div class="field">
      <label for={id}>
        {label}
        {optional === true && <span class="faint"> (optional)</span>}
      </label>
      {children}
      <div class="field-notes" id={`${id}-notes`}>
        {fault !== undefined && <p class="field-fault">{fault}</p>}
        {note !== undefined && note !== false && <p class="field-note">{note}</p>}
      </div>
    </div>
  );
}

/** Ties an input to its field. */
export const fieldProps = (
  id: string,
  fault?: string,
): { id: string; name: string; "aria-describedby": string; "aria-invalid": "true" | "false" } => ({
  id,
  name: id,
  "aria-describedby": `${id}-notes`,
  "aria-invalid": fault === undefined ? "false" : "true",
});

type InputProps = Omit<
  PartialInputHTMLAttributes<HTMLInputElement>,
  keyof FieldProps | "type" | "role"
>;

export function TextField(props: FieldProps & InputProps): JSX.Element {
  const { id, label, optional, fault, note, ...input } = props;
  return (
    <Field id={id} label={label} optional={optional} fault={fault} note={note}>
      <input {...fieldProps(id, fault)} type="text" autocomplete="off" {...input} />
    </Field>
  );
}

interface ChoiceProps extends FieldProps {
  readonly value?: string;
  readonly options: readonly (readonly [value: string, label: string])[];
  readonly onChange?: (value: string) => void;
}

export const Choice = (props: ChoiceProps): JSX.Element => (
  <Field id={props.id} label={props.label} fault={props.fault}>
    <select
      {...fieldProps(props.id, props.fault)}
      value={props.value}
      onChange={(event) => props.onChange?.(event.currentTarget.value)}
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
  if (!/^-?\d+$/.test(written)) return "The id must be a whole number.";
  return written.startsWith("-")
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
  readonly value: string;
  readonly onInput: (name: string) => void;
  /** A field of one line would drop the line breaks of a name that has some. */
  readonly hasLines?: boolean;
  /** Selects the name when the field appears. */
  readonly isFocused?: boolean;
  readonly note?: ComponentChildren;
}

export function NameField(props: NameFieldProps): JSX.Element {
  const { id, value, onInput, hasLines = false, isFocused = false, note } = props;
  const fault = findTextFault(value);
  // Before the next key: it belongs to the field.
  useLayoutEffect(() => {
    if (!isFocused) return;
    focusField(id);
    document.querySelector<HTMLInputElement>(`#${id}`)?.select();
  }, []);
  const input = {
    ...fieldProps(id, fault),
    value,
    onInput: (event: { readonly currentTarget: { readonly value: string } }) =>
      onInput(event.currentTarget.value),
  };
  return (
    <Field id={id} label="Name" fault={fault} note={note ?? findTextNote(value)}>
      {hasLines ? (
        <textarea {...input} rows={4} />
      ) : (
        <input {...input} type="text" autocomplete="off" />
      )}
    </Field>
  );
}

interface ComboboxProps extends PartialInputHTMLAttributes<HTMLInputElement> {
  readonly id: string;
  readonly value: string;
  readonly onText: (text: string) => void;
  /** Called when a suggestion is picked, or on Enter. */
  readonly onChoose?: (text: string, isPicked: boolean) => void;
}

const SUGGEST_DELAY_MS = 120;
const TAGS_AT_ONCE = 1000;
const SUGGESTIONS_MAX = 50;

/** A text field that suggests tags, after the combobox pattern of the ARIA Authoring Practices. */
export function Combobox({ onText, onChoose, ...input }: ComboboxProps): JSX.Element {
  const { id, value } = input;
  const isOpen = useSignal(false);
  const options = useSignal<readonly TagCount[]>([]);
  const active = useSignal(-1);
  const typed = useSignal(false);
  /** The first tags in use, as they were when the list was opened. */
  const known = useRef<TagCountPage>(undefined);
  const listbox = useRef<HTMLUListElement>(null);

  const suggest = async (signal: AbortSignal): Promise<void> => {
    if (!isOpen.value || !mayRead.value) return;
    try {
      if (!typed.value) known.current = undefined;
      const { tags, next } = (known.current ??= await readTags({ limit: TAGS_AT_ONCE }, signal));
      const part = typed.value ? value.toUpperCase() : "";
      const local = tags.filter(({ tag }) => tag.toUpperCase().includes(part));
      // Where not all tags are known, the service finds those that begin like this.
      const query = { prefix: value, limit: SUGGESTIONS_MAX };
      const begun = next === undefined || part === "" ? [] : (await readTags(query, signal)).tags;
      if (signal.aborted) return;
      const others = local.filter(({ tag }) => begun.every((each) => each.tag !== tag));
      const found = [...begun, ...others].slice(0, SUGGESTIONS_MAX);
      // What the keys have come to stays chosen.
      const chosen = options.value[active.value]?.tag;
      options.value = found;
      active.value = found.findIndex(({ tag }) => tag === chosen);
    } catch (error) {
      if (!isAbort(error)) options.value = [];
    }
  };
  useLater(typed.value ? SUGGEST_DELAY_MS : 0, suggest, [value, isOpen.value]);
  useEffect(() => {
    listbox.current?.children[active.value]?.scrollIntoView({ block: "nearest" });
  }, [active.value]);

  const open = (isTyped: boolean): void => {
    typed.value = isTyped;
    active.value = -1;
    isOpen.value = true;
  };
  const choose = (text: string, isPicked: boolean): void => {
    isOpen.value = false;
    onText(text);
    onChoose?.(text, isPicked);
  };
  const move = (step: number): void => {
    if (!isOpen.value) return open(false);
    const count = options.value.length;
    if (count > 0)
      active.value = (active.value + step + count + (active.value < 0 && step < 0 ? 1 : 0)) % count;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // The key is for the input method.
    if (event.isComposing) return;
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter" && isOpen.value && active.value >= 0)
      choose(options.value[active.value]?.tag ?? value, true);
    else if (event.key === "Enter" && onChoose !== undefined) choose(value, false);
    else if (event.key === "Escape" && isOpen.value) isOpen.value = false;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const isShown = isOpen.value && options.value.length > 0;
  const isActive = isShown && active.value >= 0;
  return (
    <div class="combobox">
      <input
        {...input}
        type="text"
        role="combobox"
        autocomplete="off"
        aria-autocomplete="list"
        aria-expanded={isShown ? "true" : "false"}
        aria-controls={`${id}-options`}
        aria-activedescendant={isActive ? `${id}-option-${active.value}` : undefined}
        onInput={(event) => {
          open(true);
          onText(event.currentTarget.value);
        }}
        onClick={() => open(false)}
        onBlur={() => {
          isOpen.value = false;
        }}
        onKeyDown={onKeyDown}
      />
      <ul
        class="options"
        id={`${id}-options`}
        role="listbox"
        aria-label="Tags in use"
        hidden={!isShown}
        ref={listbox}
      >
        {options.value.map(({ tag, ...total }, index) => (
          <li
            key={tag}
            id={`${id}-option-${index}`}
            role="option"
            class="option"
            aria-selected={index === active.value ? "true" : "false"}
            // Earlier than click: the field would lose its focus first.
            onPointerDown={(event) => {
              event.preventDefault();
              choose(tag, true);
            }}
          >
            <span class="cut">{tag === "" ? <i>empty tag</i> : tag}</span>{" "}
            <small class="faint tabular">{formatTotal(total)}</small>
          </li>
        ))}
      </ul>
    </div>
  );
}

interface TagFieldProps {
  readonly id: string;
  /** An empty tag is a tag; undefined is none. */
  readonly value: string | undefined;
  readonly onInput: (tag: string | undefined) => void;
}

export function TagField({ id, value, onInput }: TagFieldProps): JSX.Element {
  const fault = findTextFault(value);
  const note =
    value === "" ? (
      <>
        This plant has an empty tag, which is not the same as no tag.{" "}
        <button type="button" class="button-link" onClick={() => onInput(undefined)}>
          Remove the tag
        </button>
      </>
    ) : (
      findTextNote(value ?? "")
    );
  return (
    <Field id={id} label="Tag" optional fault={fault} note={note}>
      <Combobox
        {...fieldProps(id, fault)}
        id={id}
        value={value ?? ""}
        onText={(text) => onInput(text === "" ? undefined : text)}
      />
    </Field>
  );
}
