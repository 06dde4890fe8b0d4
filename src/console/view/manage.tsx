/** What the pages of tokens and webhooks share: their list, a secret that is shown once, forms in dialogs. */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, explain } from "../api/service.ts";
import { toast } from "../state/toasts.ts";
import { Button, Check, IconButton, Notice } from "./controls.tsx";
import { Field, fieldProps, Form, useTask } from "./form.tsx";

/** Resolves to the answer; undefined if it has no body. */
export async function ask<Answer>(path: string, method = "GET", body?: object): Promise<Answer> {
  const init = { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const text = await call(async (client) => {
    const response = await client.request(
      path,
      body === undefined ? { method } : { method, ...init },
    );
    return response.text();
  });
  return (text === "" ? undefined : JSON.parse(text)) as Answer;
}

interface Listed<Item> {
  readonly items: Signal<readonly Item[] | undefined>;
  readonly failure: Signal<unknown>;
  readonly reload: () => Promise<void>;
}

export function useItems<Item>(path: string): Listed<Item> {
  const items = useSignal<readonly Item[] | undefined>(undefined);
  const { trouble: failure, run } = useTask();
  const reload = (): Promise<void> =>
    run(async () => {
      items.value = await ask<readonly Item[]>(path);
    });
  useEffect(() => void reload(), []);
  return { items, failure, reload };
}

interface ManagePageProps {
  readonly title: string;
  readonly intro: string;
  readonly listed: Listed<unknown>;
  /** Of the button that makes a new one. */
  readonly label: string;
  readonly onNew: () => void;
  readonly children: ComponentChildren;
}

export const ManagePage = (props: ManagePageProps): JSX.Element => (
  <div class="single">
    <div class="section-head">
      <h1>{props.title}</h1>
      <Button kind="main" onClick={props.onNew}>
        {props.label}
      </Button>
    </div>
    <p class="faint">{props.intro}</p>
    {props.listed.failure.value !== undefined && (
      <Notice
        kind="fault"
        title="Couldn't load the list"
        text={explain(props.listed.failure.value)}
      >
        <Button kind="small" onClick={() => void props.listed.reload()}>
          Try again
        </Button>
      </Notice>
    )}
    {props.children}
  </div>
);

interface ShownOnceProps {
  readonly title: string;
  readonly secret: Signal<string | undefined>;
}

export function ShownOnce({ title, secret }: ShownOnceProps): JSX.Element | null {
  const field = useRef<HTMLInputElement>(null);
  const shown = secret.value;
  useEffect(() => field.current?.focus(), [shown]);
  if (shown === undefined) return null;
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(shown);
      toast("Copied.");
    } catch {
      field.current?.select();
      toast("Can't copy it here. Press Ctrl+C or ⌘C.");
    }
  };
  return (
    <Notice kind="good" title={title} text="Copy it now. It won't be shown again.">
      <div class="with-button">
        <input
          ref={field}
          class="digits"
          aria-label={title}
          readOnly
          value={shown}
          onFocus={(event) => event.currentTarget.select()}
        />
        <Button kind="main" onClick={() => void copy()}>
          Copy
        </Button>
        <Button onClick={() => (secret.value = undefined)}>Done</Button>
      </div>
    </Notice>
  );
}

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** Escape, or a click beside it, closes it. */
export function Dialog({ title, onClose, children }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector<HTMLElement>(".form input")?.focus();
  }, []);
  const close = (): void => dialog.current?.close();
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) close();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id="dialog-title">{title}</h2>
          <IconButton icon="close" label="Close" onClick={close} />
        </div>
        {children}
      </div>
    </dialog>
  );
}

interface FormDialogProps extends DialogProps {
  /** Of the button that does it. */
  readonly label: string;
  readonly kind?: "main" | "danger";
  readonly run: () => Promise<void>;
}

/** Closes when it is done. */
export function FormDialog(props: FormDialogProps): JSX.Element {
  const { title, label, kind = "main", run, onClose, children } = props;
  const { isBusy, trouble, run: runTask } = useTask();
  const submit = async (): Promise<void> => {
    await runTask(run);
    if (trouble.value === undefined) onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <Form onSubmit={() => void submit()}>
        {children}
        {trouble.value !== undefined && (
          <Notice kind="fault" title="That didn't work" text={explain(trouble.value)} />
        )}
        <div class="form-actions">
          <Button type="submit" kind={kind} isDisabled={isBusy.value}>
            {label}
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </Form>
    </Dialog>
  );
}

/** Of a dialog that makes a new one. */
export interface NewProps {
  readonly secret: Signal<string | undefined>;
  readonly isOpen: Signal<boolean>;
  readonly reload: () => Promise<void>;
}

interface TextFieldProps {
  readonly id: string;
  readonly label: string;
  readonly rule: string;
  readonly optional?: boolean;
  readonly text: Signal<string>;
}

export const TextField = ({ text, ...field }: TextFieldProps): JSX.Element => (
  <Field {...field}>
    <input
      {...fieldProps(field.id, undefined)}
      autocomplete="off"
      value={text.value}
      onInput={(event) => (text.value = event.currentTarget.value)}
    />
  </Field>
);

interface ChecksProps {
  readonly legend: string;
  readonly options: readonly (readonly [value: string, label: string])[];
  readonly chosen: Signal<readonly string[]>;
}

export const Checks = ({ legend, options, chosen }: ChecksProps): JSX.Element => (
  <fieldset>
    <legend>{legend}</legend>
    {options.map(([value, label]) => (
      <Check
        key={value}
        isOn={chosen.value.includes(value)}
        onChange={(isOn) => {
          const others = chosen.value.filter((each) => each !== value);
          chosen.value = isOn ? [...others, value] : others;
        }}
      >
        {label}
      </Check>
    ))}
  </fieldset>
);
