/** What the tokens and webhooks pages share: the list, a secret that is shown once, dialogs with forms. */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { explain } from "../api/service.ts";
import { toast } from "../state/toasts.ts";
import { Blank, Button, Check, Form, Notice, Table, type TableRow } from "./controls.tsx";
import { selectField, usePolling, useTask } from "./form.tsx";

/** A dialog with a form. It closes when `run` resolves. */
interface Question {
  readonly title: string;
  /** The text of the submit button. */
  readonly label: string;
  readonly kind?: "main" | "danger";
  readonly content: ComponentChildren;
  /** Resolves to the message to show. */
  readonly run: (given: FormData) => Promise<string | undefined>;
}

/** The list, the open dialog, and the secret of the newest item. */
export function useManager<Item>(read: () => Promise<readonly Item[]>) {
  const question = useSignal<Question | undefined>(undefined);
  const secret = useSignal<string | undefined>(undefined);
  const { answer: items, failure, poll } = usePolling(read);
  return { items, failure, reload: poll, question, secret };
}

interface ManagePageProps {
  readonly manager: ReturnType<typeof useManager>;
  readonly title: string;
  readonly intro: string;
  readonly secretTitle: string;
  readonly creation: Question;
  readonly heads: readonly string[];
  readonly rows: readonly TableRow[];
}

export function ManagePage(props: ManagePageProps): JSX.Element {
  const { title, creation, rows } = props;
  const { items, failure, reload, question, secret } = props.manager;
  const asked = question.value;
  const create = (
    <Button kind="main" onClick={() => (question.value = creation)}>
      {creation.title}
    </Button>
  );
  return (
    <div class="single">
      <div class="section-head">
        <h1>{title}</h1>
        {items?.length !== 0 && create}
      </div>
      {items?.length !== 0 && <p class="faint">{props.intro}</p>}
      {failure !== undefined && (
        <Notice kind="fault" title="Couldn't load the list" text={explain(failure)} />
      )}
      {/* Not behind an open dialog, which would keep the focus. */}
      {asked === undefined && <ShownOnce title={props.secretTitle} secret={secret} />}
      {rows.length > 0 && <Table label={title} isListing heads={props.heads} rows={rows} />}
      {items?.length === 0 && (
        <Blank
          icon={title === "Tokens" ? "tokens" : "webhooks"}
          title={`No ${title.toLowerCase()} yet`}
          text={props.intro}
        >
          {create}
        </Blank>
      )}
      {asked !== undefined && (
        <QuestionDialog
          question={asked}
          onDone={reload}
          onClose={() => {
            // A slow answer must not close the dialog that was opened next.
            if (question.value === asked) question.value = undefined;
          }}
        />
      )}
    </div>
  );
}

interface ShownOnceProps {
  readonly title: string;
  readonly secret: Signal<string | undefined>;
}

function ShownOnce({ title, secret }: ShownOnceProps): JSX.Element | null {
  const shown = secret.value;
  if (shown === undefined) return null;
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(shown);
    toast("Copied.");
  };
  return (
    <Notice kind="good" title={title} text="Copy it now. It won't be shown again.">
      <div class="with-button">
        <input
          ref={selectField}
          class="digits"
          aria-label={title}
          readOnly
          value={shown}
          onFocus={(event) => event.currentTarget.select()}
        />
        {/* Browsers offer the clipboard only on a secure origin. Elsewhere the user copies the selected text. */}
        {"clipboard" in navigator && (
          <Button kind="main" onClick={() => void copy()}>
            Copy
          </Button>
        )}
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

/** Closes on Escape or a click outside. */
export const Dialog = ({ title, onClose, children }: DialogProps): JSX.Element => (
  <dialog ref={showDialog} aria-labelledby="dialog-title" closedby="any" onClose={onClose}>
    <form class="section-head" method="dialog">
      <h2 id="dialog-title">{title}</h2>
      <Button kind="plain" icon="close" label="Close" type="submit" />
    </form>
    {children}
  </dialog>
);

function showDialog(dialog: HTMLDialogElement | null): void {
  dialog?.showModal();
  dialog?.querySelector<HTMLElement>(".form input")?.focus();
}

interface QuestionDialogProps {
  readonly question: Question;
  readonly onDone: () => Promise<void>;
  readonly onClose: () => void;
}

function QuestionDialog({ question, onDone, onClose }: QuestionDialogProps): JSX.Element {
  const { isBusy, trouble, run } = useTask();
  const submit = async (form: HTMLFormElement): Promise<void> => {
    await run(async () => {
      const said = await question.run(new FormData(form));
      if (said !== undefined) toast(said);
      await onDone();
    });
    if (trouble.value === undefined) onClose();
  };
  return (
    <Dialog title={question.title} onClose={onClose}>
      <Form onSubmit={(form) => void submit(form)}>
        {question.content}
        {trouble.value !== undefined && (
          <Notice kind="fault" title="That didn't work" text={explain(trouble.value)} />
        )}
        <div class="form-actions">
          <Button type="submit" kind={question.kind ?? "main"} disabled={isBusy.value}>
            {question.label}
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </Form>
    </Dialog>
  );
}

/** Undefined if the field is empty. */
export const readText = (given: FormData, id: string): string | undefined =>
  (given.get(id) as string).trim() || undefined;

interface ChecksProps {
  readonly id: string;
  readonly legend: string;
  readonly options: readonly (readonly [value: string, label: string])[];
  readonly chosen: readonly string[];
}

export const Checks = ({ id, legend, options, chosen }: ChecksProps): JSX.Element => (
  <fieldset>
    <legend>{legend}</legend>
    {options.map(([value, label]) => (
      <Check key={value} name={id} value={value} defaultChecked={chosen.includes(value)}>
        {label}
      </Check>
    ))}
  </fieldset>
);
