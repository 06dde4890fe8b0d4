/** What forms share: one submission at a time, look-ups, suggestions, validation. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { ServiceError, type TagCount } from "../../client/client.ts";
import { findFault } from "../../src/domain/faults.ts";
import { joinList } from "../../src/domain/token.ts";
import { Taken } from "../api/plants.ts";
import { call, explain } from "../api/service.ts";
import { formatName, formatTotal } from "../state/format.ts";
import { linkTo } from "../state/route.ts";
import { explainFault, findLimits } from "../state/rules.ts";
import { mayRead } from "../state/session.ts";
import { Submission } from "../state/submission.ts";
import { fill, t } from "../text/text.ts";
import { type ControlProps, Field, type FieldProps, Notice } from "./controls.tsx";
import { useRead } from "./read.ts";

export const useSubmission = (): Submission => useMemo(() => new Submission(), []);

const LOOK_UP_DELAY_MS = 250;

/** A hint while the user types. The service decides on submit. */
export function useLookUp<Found>(
  key: bigint | string | undefined,
  look: (ended: AbortSignal) => Promise<Found | undefined>,
): Found | undefined {
  const read = async (ended: AbortSignal): Promise<Found | undefined> =>
    key === undefined || !mayRead.value ? undefined : look(ended);
  const { answer, isStale } = useRead(read, [key], { delayMs: LOOK_UP_DELAY_MS });
  return isStale ? undefined : answer;
}

const outcomes = {
  save: [t.plants.notSaved, t.plants.saveUnconfirmed],
  deletion: [t.plants.notDeleted, t.plants.deletionUnconfirmed],
} as const;

interface FailureNoticeProps {
  readonly of: keyof typeof outcomes;
  readonly error: unknown;
}

/** A write that was refused, or one without an answer that may have taken effect. */
export function FailureNotice({ of, error }: FailureNoticeProps): JSX.Element {
  if (error instanceof Taken) {
    const { id, current } = error;
    const holder = current === undefined ? t.plants.anotherPlant : formatName(current.plant);
    return (
      <Notice kind="fault" title={fill(t.plants.idTaken, { id: String(id), plant: holder })}>
        <p>
          {t.plants.nothingChanged} {current && <a href={linkTo(id)}>{t.plants.openThatPlant}</a>}
        </p>
      </Notice>
    );
  }
  const isRefused = error instanceof ServiceError && !error.isTransient;
  const [refused, unconfirmed] = outcomes[of];
  return <Notice kind="fault" title={isRefused ? refused : unconfirmed} text={explain(error)} />;
}

/** The connection was lost during a save. */
export const WaitingNotice = (): JSX.Element => (
  <Notice kind="warning" title={t.plants.offline} text={t.plants.sentAgain} />
);

export function focusField(id: string): void {
  document.querySelector<HTMLInputElement>(`#${id}`)?.focus();
}

/** The ref of a field that takes the focus when it appears. */
export function selectField(field: HTMLInputElement | null): void {
  field?.focus();
  field?.select();
}

/** The fault or the warning of a name or tag. */
export function judgeText(
  field: "name" | "tag",
  text: string | undefined,
): Pick<FieldProps, "fault" | "note"> {
  if (text === undefined) return {};
  const fault = findFault(field, text, findLimits());
  return {
    fault: fault && explainFault(fault),
    note: text.trim() === text ? undefined : t.plants.spaces,
  };
}

/** The shortest barcodes of shops have 8 digits. */
export const isCode = (name: string): boolean => /^\d{8,}$/.test(name.trim());

/** Why the name may be a mistake, such as a scan into the wrong field. */
export function findDoubt(id: string, name: string): string | undefined {
  const text = name.trim();
  if (text === "") return t.plants.nameEmpty;
  if (text === id.trim()) return t.plants.nameIsId;
  return isCode(text) ? t.plants.nameIsCode : undefined;
}

const TAGS_MAX = 1000;

/** Several tags, with commas between them. */
export const TagsInput = (input: ControlProps): JSX.Element => <TagInput {...input} isList />;

type TagInputProps = ControlProps & { readonly isList?: boolean };

/** Suggests the first 1,000 tags in use, with counts. The browser filters them. In a list, the last tag is suggested. */
export function TagInput({ isList = false, ...input }: TagInputProps): JSX.Element {
  const { id } = input;
  const before = useSignal("");
  const tags = useSignal<readonly TagCount[]>([]);
  const suggest = async (): Promise<void> => {
    tags.value = (await call((client) => client.countTagPage({ limit: TAGS_MAX }))).tags;
  };
  return (
    <>
      <input
        {...input}
        type="text"
        list={`${id}-tags`}
        autocomplete="off"
        // Suggestions are optional, so a failure is ignored.
        onInput={(event) => {
          if (isList) before.value = event.currentTarget.value.replace(/[^,]*$/, "");
          input.onInput?.(event);
        }}
        onFocus={() => mayRead.value && void suggest().catch(() => undefined)}
      />
      <datalist id={`${id}-tags`}>
        {tags.value.map(({ tag, ...total }) => (
          <option
            key={tag}
            value={isList ? before.value + joinList([tag]) : tag}
          >{`${tag} (${formatTotal(total)})`}</option>
        ))}
      </datalist>
    </>
  );
}

interface TagFieldProps {
  readonly id: string;
  /** An empty tag is a tag; undefined is none. */
  readonly value: string | undefined;
  readonly onText: (tag: string | undefined) => void;
}

export function TagField({ id, value, onText }: TagFieldProps): JSX.Element {
  const { fault, note } = judgeText("tag", value);
  return (
    <Field
      {...{ id, label: t.shared.tag, hint: t.plants.optional, fault }}
      note={value === "" ? t.plants.emptyTagNote : note}
      control={TagInput}
      value={value ?? ""}
      onText={(text) => onText(text === "" ? undefined : text)}
    />
  );
}
