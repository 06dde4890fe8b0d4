/** A field of a form: its label, its rule beside it before anything is sent, and what is wrong with it. */

import type { ComponentChildren, JSX } from "preact";

interface FieldProps {
  readonly id: string;
  readonly label: string;
  readonly optional?: boolean;
  readonly rule?: ComponentChildren;
  readonly fault?: string | undefined;
  /** Something worth knowing that is no fault. */
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

/** What ties an input to its field. */
export const fieldProps = (
  id: string,
  fault: string | undefined,
): { id: string; "aria-describedby": string; "aria-invalid": "true" | "false" } => ({
  id,
  "aria-describedby": `${id}-notes`,
  "aria-invalid": fault === undefined ? "false" : "true",
});
