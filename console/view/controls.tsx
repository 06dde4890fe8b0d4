/** The components that all views share: icons, buttons, fields, tables, notices, menus. The reference uses them too. */

import type {
  ButtonHTMLAttributes,
  ComponentChildren,
  JSX,
  PartialInputHTMLAttributes,
  Ref,
} from "preact";
import { useId } from "preact/hooks";

const paths = {
  search: "M9 3.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11ZM13 13l4 4",
  camera:
    "M3 6.5c0-.5.5-1 1-1h2.5l1-2h5l1 2H16c.5 0 1 .5 1 1v8.5c0 .5-.5 1-1 1H4c-.5 0-1-.5-1-1zM10 13.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z",
  plus: "M10 4v12M4 10h12",
  close: "m5 5 10 10M15 5 5 15",
  share: "M10 12V3.5M6.5 6.5 10 3l3.5 3.5M4 11v4.5c0 .5.5 1 1 1h10c.5 0 1-.5 1-1V11",
  overview: "M3.5 16.5h13M5.5 16.5v-5M10 16.5v-12M14.5 16.5v-8",
  plants:
    "M10 17V9M10 12C10 8.5 7.5 6.5 3.5 6.5c0 4 2.5 6 6.5 6M10 9c0-3.5 2.5-5.5 6.5-5.5 0 4-2.5 6-6.5 6",
  import: "M10 3v9.5M6.5 9 10 12.5 13.5 9M4 13.5v2c0 .5.5 1 1 1h10c.5 0 1-.5 1-1v-2",
  changes: "M4 4.5v4h4M4.3 8.5a6.5 6.5 0 1 1-.6 4M10.5 7v4l2.5 1.5",
  health: "M3 12.5h3l2.5-7 3.5 10 2-5.5h3",
  tokens: "M9.5 10a3 3 0 1 1-6 0 3 3 0 0 1 6 0ZM9.5 10h7.5v2.5M13.5 10v3",
  webhooks: "M3.5 10h9M9 6l4 4-4 4M16.5 4v12",
  person: "M10 10.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM3.5 17c.8-2.8 3.3-4 6.5-4s5.7 1.2 6.5 4",
  edit: "m4 16 .8-3.5L13.5 3.8l2.7 2.7-8.7 8.7L4 16Z",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.8 10.5h7.4L14.5 6M8.5 9v4.5M11.5 9v4.5",
  warning: "M10 3.5 17.5 16.5h-15L10 3.5ZM10 8.5v3.5M10 14.2v.2",
  print:
    "M6 7.5V3.5h8v4M6 14H4.5c-.5 0-1-.5-1-1V8.5c0-.5.5-1 1-1h11c.5 0 1 .5 1 1V13c0 .5-.5 1-1 1H14M6 11.5h8v5H6z",
  range: "M3.5 4.5h13M3.5 15.5h13M10 6.5v7M7.5 11 10 13.5l2.5-2.5",
  check: "m4.5 10.5 3.5 3.5 7.5-8",
  ascending: "M6 4v12M3.5 13.5 6 16l2.5-2.5M11 5h6M11 10h4.5M11 15h3",
  descending: "M6 16V4M3.5 6.5 6 4l2.5 2.5M11 15h6M11 10h4.5M11 5h3",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { readonly name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

/** Read from the page, because the build adds a hash to the URL. */
const leaf = document.querySelector<HTMLLinkElement>("link[rel=icon]")?.href;

export const Mark = (): JSX.Element => <img src={leaf} alt="" />;

interface ButtonProps extends ButtonHTMLAttributes {
  readonly kind?: "main" | "danger" | "small" | "plain" | undefined;
  readonly icon?: IconName;
  /** The accessible name of a button without text. */
  readonly label?: string;
}

export const Button = ({ kind, icon, label, children, ...rest }: ButtonProps): JSX.Element => (
  <button
    type="button"
    class={`button${kind === undefined ? "" : ` button-${kind}`}${label === undefined ? "" : " button-icon"}`}
    aria-label={label}
    title={label}
    {...rest}
  >
    {icon !== undefined && <Icon name={icon} />}
    {children}
  </button>
);

type InputProps = Omit<PartialInputHTMLAttributes<HTMLInputElement>, "list" | "role" | "type">;

export const Check = ({ children, ...input }: InputProps): JSX.Element => (
  <label class="check">
    <input type="checkbox" {...input} />
    {children}
  </label>
);

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

/** The props of every form control. */
export interface ControlProps extends InputProps {
  readonly id: string;
  readonly value?: string;
}

export interface FieldProps extends ControlProps {
  readonly label: string;
  /** Shown beside the label. */
  readonly hint?: string | undefined;
  readonly fault?: string | undefined;
  /** A hint that is not a fault. */
  readonly note?: ComponentChildren;
  readonly type?: string;
  readonly onText?: (text: string) => void;
  readonly inputRef?: Ref<HTMLInputElement>;
  /** Replaces the one-line input. */
  readonly control?: "textarea" | "select" | ((props: ControlProps) => JSX.Element) | undefined;
}

export function Field(props: FieldProps): JSX.Element {
  const { id, label, hint, fault, note, onText, inputRef = null, control, ...input } = props;
  const Control = (control ?? "input") as "input";
  return (
    <div class="field">
      <label for={id}>
        {label} {hint !== undefined && <small>{hint}</small>}
      </label>
      <Control
        id={id}
        name={id}
        aria-describedby={`${id}-notes`}
        aria-invalid={fault === undefined ? "false" : "true"}
        ref={inputRef}
        autocomplete="off"
        onInput={(event) => onText?.(event.currentTarget.value)}
        {...(input as object)}
      />
      <div class="field-notes" id={`${id}-notes`} aria-live="polite">
        {fault !== undefined && <p class="field-fault">{fault}</p>}
        {note !== undefined && note !== false && <p class="field-note">{note}</p>}
      </div>
    </div>
  );
}

interface ChoiceProps extends FieldProps {
  readonly options: readonly (readonly [value: string, label: string])[];
}

export const Choice = ({ options, ...field }: ChoiceProps): JSX.Element => (
  <Field {...field} control="select">
    {options.map(([value, text]) => (
      <option key={value} value={value}>
        {text}
      </option>
    ))}
  </Field>
);

interface TermsProps {
  readonly class: string;
  readonly of: readonly (readonly [term: ComponentChildren, description: ComponentChildren])[];
}

export const Terms = (props: TermsProps): JSX.Element => (
  <dl class={props.class}>
    {props.of.map(([term, description], at) => (
      <div key={at}>
        <dt>{term}</dt>
        <dd>{description}</dd>
      </div>
    ))}
  </dl>
);

/** The cells of a row. In a short row the last cell spans the rest. */
export type TableRow = readonly ComponentChildren[];

interface TableProps {
  readonly label: string;
  readonly caption?: string;
  readonly heads: readonly string[];
  /** The name of a column whose head is empty, for screen readers. Without it the column has no head. */
  readonly emptyHead?: string;
  readonly rows: readonly TableRow[];
  /** What each row is about. Otherwise the focus stays at the same place when rows come before it. */
  readonly keys?: readonly (string | number)[] | undefined;
  /** Shows all rows without scrolling; on a phone each row is a card. */
  readonly isListing?: boolean;
}

export const Table = ({
  label,
  caption,
  heads,
  emptyHead,
  rows,
  keys,
  isListing,
}: TableProps): JSX.Element => (
  <div
    class={isListing === true ? "table-frame listing" : "table-frame"}
    tabIndex={isListing === true ? undefined : 0}
    role="region"
    aria-label={label}
  >
    {/* As cards the elements lose the roles that they have as a table. */}
    <table class="table" role="table">
      {caption !== undefined && <caption>{caption}</caption>}
      <thead>
        <tr>
          {heads.map((head, at) =>
            head === "" && emptyHead === undefined ? (
              <td key={at} />
            ) : (
              <th key={at} scope="col">
                {head === "" ? <span class="visually-hidden">{emptyHead}</span> : head}
              </th>
            ),
          )}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((cells, row) => (
          <tr key={keys?.[row] ?? row} role="row">
            {cells.map((cell, at) => (
              <td
                key={at}
                role="cell"
                colSpan={at === cells.length - 1 ? Math.max(1, heads.length - at) : 1}
                data-head={heads[at]}
              >
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);

interface NoticeProps {
  readonly kind: "fault" | "warning" | "good";
  readonly title: string;
  readonly text?: ComponentChildren;
  readonly children?: ComponentChildren;
}

export const Notice = ({ kind, title, text, children }: NoticeProps): JSX.Element => (
  <div class={`notice notice-${kind}`} role={kind === "good" ? "status" : "alert"}>
    <Icon name={kind === "good" ? "check" : "warning"} />
    <div>
      <strong>{title}</strong>
      {text !== undefined && <p>{text}</p>}
      {children}
    </div>
  </div>
);

interface BlankProps {
  readonly icon: IconName;
  readonly title: string;
  readonly text: ComponentChildren;
  /** What to do. */
  readonly children?: ComponentChildren;
}

/** In place of content that is missing: why, and what to do. */
export const Blank = ({ icon, title, text, children }: BlankProps): JSX.Element => (
  <div class="blank">
    <Icon name={icon} />
    <h2>{title}</h2>
    <p>{text}</p>
    <div class="form-actions">{children}</div>
  </div>
);

interface MenuProps extends ButtonProps {
  /** The text of the menu's button. */
  readonly text?: ComponentChildren;
}

/** Closes on Escape, a click outside, a choice, and when Tab leaves the menu. */
export function Menu({ text, children, ...button }: MenuProps): JSX.Element {
  const id = useId();
  return (
    <>
      <Button popovertarget={id} {...button}>
        {text}
      </Button>
      <div
        class="menu-panel"
        id={id}
        popover="auto"
        onClick={({ currentTarget, target }) => {
          if ((target as Element).closest("button, a") !== null) currentTarget.hidePopover();
        }}
        onFocusOut={({ currentTarget, relatedTarget: next }) => {
          if (!(next instanceof Element) || currentTarget.contains(next)) return;
          // The menu's own button toggles it already.
          if (next.getAttribute("popovertarget") !== id) currentTarget.hidePopover();
        }}
      >
        {children}
      </div>
    </>
  );
}
