/** Reading from the service for what is shown: at once, again when what is asked changes, and for as long as it is shown. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

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

interface Options {
  /** Debounce. */
  readonly delayMs?: number;
  /** Reads again and again, while the page is visible. */
  readonly everyMs?: number;
}

/** What others may change at any time. */
export const POLL: Options = { everyMs: 5_000 };

interface State<Answer> {
  readonly answer?: Answer | undefined;
  /** The error of the last read. What was read before stays. */
  readonly failure?: unknown;
  /** The inputs of the answer. */
  readonly inputs?: readonly unknown[];
}

/** A new read ends the one before, whose answer is dropped. */
export function useRead<Answer>(
  read: (ended: AbortSignal, before: Answer | undefined) => Promise<Answer>,
  inputs: readonly unknown[] = [],
  { delayMs = 0, everyMs }: Options = {},
) {
  const state = useSignal<State<Answer>>({});
  const latest = useRef(read);
  latest.current = read;
  const reading = useRef<AbortController>(undefined);
  const again = async (): Promise<void> => {
    reading.current?.abort();
    const own = new AbortController();
    reading.current = own;
    try {
      const answer = await latest.current(own.signal, state.peek().answer);
      if (!own.signal.aborted) state.value = { answer, inputs };
    } catch (failure) {
      if (!own.signal.aborted) state.value = { ...state.peek(), failure };
    }
    if (reading.current === own) reading.current = undefined;
  };
  useEffect(() => {
    const timer = delayMs === 0 ? void again() : setTimeout(() => void again(), delayMs);
    const polling =
      everyMs &&
      setInterval(() => document.hidden || reading.current !== undefined || void again(), everyMs);
    return () => {
      clearTimeout(timer ?? undefined);
      clearInterval(polling);
      reading.current?.abort();
    };
  }, inputs);
  const { answer, failure, inputs: known } = state.value;
  return {
    answer,
    failure,
    /** Of what was asked before. */
    isStale: inputs.some((input, at) => input !== known?.[at]),
    again,
    /** What has happened since it was read. */
    update: (change: (known: Answer) => Answer): void => {
      const now = state.peek();
      if (now.answer !== undefined) state.value = { ...now, answer: change(now.answer) };
    },
  };
}
