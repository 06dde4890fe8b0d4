/** What forms share: one submission at a time, look-ups, suggestions, validation. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ServiceError, type TagCount } from "../../client/client.ts";
import { findFault } from "../../src/domain/faults.ts";
import { Taken } from "../api/plants.ts";
import { call, explain } from "../api/service.ts";
import { formatName, formatTotal } from "../state/format.ts";
import { linkTo } from "../state/route.ts";
import { explainFault, limits } from "../state/rules.ts";
import { mayRead } from "../state/session.ts";
import { fill, t } from "../text/text.ts";
import { type ControlProps, Field, type FieldProps, Notice } from "./controls.tsx";

/** A submission. At most one is in flight. */
export function useTask() {
  const isBusy = useSignal(false);
  /** The error of the last attempt. */
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

/** Reads at once and then every 5 seconds while the page is visible. Stale answers are dropped. */
export function usePolling<Answer>(read: (before: Answer | undefined) => Promise<Answer>) {
  const answer = useSignal<Answer | undefined>(undefined);
  /** The error of the last read. */
  const failure = useSignal<unknown>(undefined);
  const questions = useRef(0);
  const poll = async (): Promise<void> => {
    const question = ++questions.current;
    const isLast = (): boolean => question === questions.current;
    try {
      const found = await read(answer.value);
      if (isLast()) [answer.value, failure.value] = [found, undefined];
    } catch (error) {
      if (isLast()) failure.value = error;
    }
  };
  useEffect(() => {
    void poll();
    const timer = setInterval(() => document.hidden || void poll(), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  return { answer: answer.value, failure: failure.value, poll };
}

/** Debounce: runs after the delay, again when an input changes. The signal aborts the earlier run. */
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

/** A hint while the user types. The service decides on submit. */
export function useLookUp<Found>(
  key: bigint | string | undefined,
  look: (signal: AbortSignal) => Promise<Found | undefined>,
): Found | undefined {
  const found = useSignal<readonly [typeof key, Found | undefined]>([undefined, undefined]);
  const lookUp = async (signal: AbortSignal): Promise<void> => {
    if (key === undefined || !mayRead.value) return;
    const answer = await look(signal).catch(() => undefined);
    if (!signal.aborted) found.value = [key, answer];
  };
  useLater(LOOK_UP_DELAY_MS, lookUp, [key]);
  return found.value[0] === key ? found.value[1] : undefined;
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
  const fault = findFault(field, text, limits);
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

/** Suggests the first 1,000 tags in use, with counts. The browser filters them. */
export function TagInput(input: ControlProps): JSX.Element {
  const { id } = input;
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
        onFocus={() => mayRead.value && void suggest().catch(() => undefined)}
      />
      <datalist id={`${id}-tags`}>
        {tags.value.map(({ tag, ...total }) => (
          <option key={tag} value={tag}>{`${tag} (${formatTotal(total)})`}</option>
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
