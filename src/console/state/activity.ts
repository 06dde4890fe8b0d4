/** Samples of the last minutes, asked for as long as somebody looks. */

import { signal } from "@preact/signals";
import { readActivity, type Activity, type Sample } from "../api/activity.ts";
import { isAbort } from "../api/service.ts";

const SAMPLES_MAX = 300;

export const activity = signal<Activity | undefined>(undefined);
export const activityFailure = signal<unknown>(undefined);

/** Begins to follow; the result ends it. */
export function followActivity(): () => void {
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const next = async (): Promise<void> => {
    try {
      if (document.visibilityState === "visible") await readOn(controller.signal);
    } catch (error) {
      if (isAbort(error)) return;
      activityFailure.value = error;
    }
    if (!controller.signal.aborted)
      timer = setTimeout(() => void next(), activity.value?.intervalMs ?? 2000);
  };
  void next();
  return () => {
    controller.abort();
    clearTimeout(timer);
  };
}

async function readOn(signalOff: AbortSignal): Promise<void> {
  const known = activity.value?.samples ?? [];
  const { intervalMs, samples } = await readActivity(known.at(-1)?.atMs, signalOff);
  activityFailure.value = undefined;
  activity.value = { intervalMs, samples: merge(known, samples) };
}

function merge(known: readonly Sample[], added: readonly Sample[]): Sample[] {
  const last = known.at(-1)?.atMs ?? 0;
  return [...known, ...added.filter(({ atMs }) => atMs > last)].slice(-SAMPLES_MAX);
}

export function forgetActivity(): void {
  activity.value = undefined;
}
