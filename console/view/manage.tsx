/** What the tokens and webhooks pages share: the list, a secret that is shown once, dialogs with forms. */

import { computed, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import type * as drawing from "../labels.ts";
import { loadScript } from "../api/page.ts";
import { explain } from "../api/service.ts";
import { Modal } from "../state/dialog.ts";
import { identity } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { fill, t } from "../text/text.ts";
import { Blank, Button, Check, Form, Notice, Table, type TableRow } from "./controls.tsx";
import { useSubmission } from "./form.tsx";
import { POLL, useRead } from "./read.ts";

/** A dialog with a form. It closes when `run` resolves. */
interface Question {
  readonly title: string;
  /** The text of the submit button. */
  readonly label: string;
  readonly kind?: "main" | "danger";
  readonly content: ComponentChildren;
  /** Resolves to the message to show. */
  readonly run: (form: FormData) => Promise<string | undefined>;
}

const managed = new Modal<Question>();

/** The list, and the open dialog. */
export function useManager<Item>(read: () => Promise<readonly Item[]>) {
  const { answer: items, failure, again: reload } = useRead(read, [], POLL);
  return { items, failure, reload, question: managed };
}

export type Manager = ReturnType<typeof useManager>;

interface ManagePageProps {
  readonly manager: Manager;
  readonly icon: "tokens" | "webhooks";
  readonly title: string;
  readonly intro: string;
  /** The title of an empty list. */
  readonly none: string;
  readonly creation: Question;
  readonly heads: readonly string[];
  readonly rows: readonly TableRow[];
  readonly keys: readonly string[];
}

export function ManagePage(props: ManagePageProps): JSX.Element {
  const { title, creation, rows } = props;
  const { items, failure, reload, question } = props.manager;
  const shown = question.value;
  const create = (
    <Button kind="main" onClick={() => question.open(creation)}>
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
        <Notice kind="fault" title={t.operators.manage.notLoaded} text={explain(failure)} />
      )}
      {rows.length > 0 && (
        <Table
          label={title}
          isListing
          heads={props.heads}
          emptyHead={t.shared.actions}
          rows={rows}
          keys={props.keys}
        />
      )}
      {items?.length === 0 && (
        <Blank icon={props.icon} title={props.none} text={props.intro}>
          {create}
        </Blank>
      )}
      {shown !== undefined && (
        <QuestionDialog
          question={shown}
          onDone={reload}
          // A slow answer must not close the dialog that was opened next.
          onClose={() => question.close(shown)}
        />
      )}
    </div>
  );
}

/** Codes are drawn by a script of their own. */
export const loadDrawing = (): Promise<typeof drawing> => loadScript("labels");

/** A secret that the service does not show again. It stays until the user is done with it. */
export const shownOnce = new Modal<SecretProps>(() => hasPerson.value);
const hasPerson = computed(() => identity.value !== undefined);

export const ShownOnce = (): JSX.Element | null =>
  shownOnce.value === undefined ? null : <Secret {...shownOnce.value} />;

interface SecretProps {
  readonly title: string;
  readonly secret: string;
  /** Of a token: a link that signs in with it, its name, and what it may do, in words. */
  readonly access?: Readonly<Record<"link" | "who" | "may", string>>;
}

function Secret({ title, secret, access }: SecretProps): JSX.Element {
  // A toast would be behind the dialog.
  const isCopied = useSignal(false);
  const copyField = (label: string, value: string, kind?: "main"): JSX.Element => (
    <div class="with-button">
      <textarea
        ref={kind === "main" ? selectText : null}
        class="digits secret"
        aria-label={label}
        readOnly
        rows={1}
        value={value}
        onFocus={(event) => event.currentTarget.select()}
      />
      {/* Browsers offer the clipboard only on a secure origin. Elsewhere the user copies the selected text. */}
      {"clipboard" in navigator && (
        <Button
          kind={kind}
          onClick={() =>
            void navigator.clipboard.writeText(value).then(() => (isCopied.value = true))
          }
        >
          {t.operators.manage.copy} <span class="visually-hidden">{label}</span>
        </Button>
      )}
    </div>
  );
  return (
    <Dialog title={t.operators.manage.copyNow}>
      <div class="stack">
        <p>{fill(t.operators.manage.shownOnce, { secret: title })}</p>
        {copyField(title, secret, "main")}
        {access !== undefined && (
          <section class="stack" aria-labelledby="sign-in-link">
            <h3 id="sign-in-link">{t.operators.tokens.signInLink}</h3>
            <p>{fill(t.operators.tokens.linkFor, access)}</p>
            <LinkCode link={access.link} />
            {copyField(t.operators.tokens.signInLink, access.link)}
          </section>
        )}
        <div class="form-actions">
          <Button onClick={() => shownOnce.close()}>{t.operators.manage.done}</Button>
          <span role="status">{isCopied.value && t.operators.manage.copied}</span>
        </div>
      </div>
    </Dialog>
  );
}

const selectText = (field: HTMLTextAreaElement | null): void => field?.select();

/** For the camera of a phone. Without its script the link is enough. */
function LinkCode({ link }: { readonly link: string }): JSX.Element | null {
  const code = useSignal<drawing.Code | undefined>(undefined);
  useEffect(() => {
    loadDrawing().then(
      ({ drawQr }) => (code.value = drawQr(link)),
      () => undefined,
    );
  }, [link]);
  if (code.value === undefined) return null;
  const { width, height, path } = code.value;
  return (
    <svg
      class="link-code"
      viewBox={`0 0 ${width} ${height}`}
      role="img"
      aria-label={t.operators.tokens.linkCode}
      shape-rendering="crispEdges"
    >
      <rect width={width} height={height} />
      <path d={path} />
    </svg>
  );
}

interface DialogProps {
  readonly title: string;
  /** Without it, neither Escape nor a click outside closes the dialog. */
  readonly onClose?: () => void;
  /** Something can be typed into it: a click outside does not close it, nor does a scan that would lose the text. */
  readonly isForm?: boolean;
  readonly children: ComponentChildren;
}

/** Closes on Escape or a click outside. */
export const Dialog = ({ title, onClose, isForm, children }: DialogProps): JSX.Element => (
  <dialog
    ref={showDialog}
    aria-labelledby="dialog-title"
    closedby={onClose === undefined ? "none" : isForm === true ? "closerequest" : "any"}
    // Browsers that don't know `closedby` close it on Escape.
    onClose={onClose ?? (({ currentTarget }) => currentTarget.showModal())}
  >
    <form class="section-head" method="dialog">
      <h2 id="dialog-title" tabIndex={-1}>
        {title}
      </h2>
      {onClose !== undefined && (
        <Button kind="plain" icon="close" label={t.shared.close} type="submit" />
      )}
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
  readonly onDone?: () => Promise<void>;
  readonly onClose: () => void;
}

export function QuestionDialog({ question, onDone, onClose }: QuestionDialogProps): JSX.Element {
  const { isBusy, trouble, run } = useSubmission();
  const submit = async (form: HTMLFormElement): Promise<void> => {
    await run(async () => {
      const said = await question.run(new FormData(form));
      if (said !== undefined) toast(said);
      await onDone?.();
    });
    if (trouble.value === undefined) onClose();
  };
  return (
    <Dialog title={question.title} onClose={onClose} isForm>
      <Form onSubmit={(form) => void submit(form)}>
        {question.content}
        {trouble.value !== undefined && (
          <Notice kind="fault" title={t.operators.manage.failed} text={explain(trouble.value)} />
        )}
        <div class="form-actions">
          <Button type="submit" kind={question.kind ?? "main"} disabled={isBusy.value}>
            {question.label}
          </Button>
          <Button onClick={onClose}>{t.shared.cancel}</Button>
        </div>
      </Form>
    </Dialog>
  );
}

/** Undefined if the field is empty. */
export const readText = (form: FormData, id: string): string | undefined =>
  (form.get(id) as string).trim() || undefined;

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
