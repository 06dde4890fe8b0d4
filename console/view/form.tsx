/** What forms do: they send once at a time, look up, suggest, and say what is wrong before they send. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ServiceError, type TagCount } from "../../client/client.ts";
import { findFaults } from "../../src/domain/plant.ts";
import { Taken } from "../api/plants.ts";
import { call, explain } from "../api/service.ts";
import { formatName, formatTotal } from "../state/format.ts";
import { linkTo } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { type ControlProps, Field, type FieldProps, Notice } from "./controls.tsx";

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

/** Reads at once and then every few seconds, but not while the page is hidden. The last question counts. */
export function usePolling<Answer>(read: (before: Answer | undefined) => Promise<Answer>) {
  const answer = useSignal<Answer | undefined>(undefined);
  /** Why it failed the last time. */
  const failure = useSignal<unknown>(undefined);
  const asked = useRef(0);
  const poll = async (): Promise<void> => {
    const question = ++asked.current;
    const isLast = (): boolean => question === asked.current;
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

/** Only a hint: the answer to the request decides. */
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

export function focusField(id: string): void {
  document.querySelector<HTMLInputElement>(`#${id}`)?.focus();
}

/** As the ref of a field. The next key after it has appeared belongs to it. */
export function selectField(field: HTMLInputElement | null): void {
  field?.focus();
  field?.select();
}

/** What is wrong with a name or a tag, or worth a second look. */
export const judgeText = (text = ""): Pick<FieldProps, "fault" | "note"> => ({
  fault:
    findFaults(0n, text, undefined).name &&
    "Contains a character that can't be stored (U+0000 or half of a surrogate pair).",
  note: text.trim() === text ? undefined : "Starts or ends with a space.",
});

const TAGS_MAX = 1000;

/** Suggests the first tags in use, with how many plants have each. The browser picks those that match. */
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
        // Any tag can be typed, so a failure does not matter.
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

const EMPTY_NOTE = "This plant has an empty tag, which is not the same as no tag.";

export function TagField({ id, value, onText }: TagFieldProps): JSX.Element {
  const { fault, note } = judgeText(value);
  return (
    <Field
      {...{ id, label: "Tag", hint: "(optional)", fault, note: value === "" ? EMPTY_NOTE : note }}
      control={TagInput}
      value={value ?? ""}
      onText={(text) => onText(text === "" ? undefined : text)}
    />
  );
}
