/** The current import. It continues while other views are shown. */

import { computed, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { forgetTags, refresh } from "../state/plants.ts";
import { endSession, mayRead, token } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import {
  type Begun,
  type Comparison,
  type Difference,
  type FromWorker,
  nothingYet,
  type Outcome,
  type Preview,
  type Progress,
  type Reading,
  type ToWorker,
} from "./messages.ts";

export type Running = Begun & {
  readonly step: "running";
  readonly progress: Progress;
  readonly isCancelling: boolean;
};

export type Ended = Begun & Outcome & { readonly step: "ended" };

export interface Mapping {
  readonly step: "map";
  readonly file: File;
  readonly preview: Preview;
  /** Undefined until it begins. */
  readonly comparison?: Comparison;
  /** The rows of the preview are out of date. */
  readonly isReading: boolean;
}

type Import =
  | { readonly step: "choose" }
  | { readonly step: "reading"; readonly file: File }
  | Mapping
  | Running
  | Ended;

export const current = signal<Import>({ step: "choose" });

/** From 0 to 1, while an import runs. */
export const importProgress = computed(() => {
  const now = current.value;
  return now.step === "running"
    ? Math.min(1, now.progress.bytesDone / Math.max(1, now.file.size))
    : undefined;
});

/** How long a cancelled worker may take to report before it is terminated. */
const CANCEL_MS = 7000;

let worker: Worker | undefined;

function stopWorker(): void {
  worker?.terminate();
  worker = undefined;
}

/** Each task has a worker of its own, so what an earlier one still posts is not mixed up with it. */
function startWorker(task: ToWorker): void {
  stopWorker();
  const { importWorker = "", workbook = "" } = document.documentElement.dataset;
  const started = new Worker(new URL(importWorker, baseUrl), {
    type: "module",
    // Tells the worker where the script for workbooks is, which it loads on demand.
    name: new URL(workbook, baseUrl).href,
  });
  const pass = (message: FromWorker): void => {
    if (started === worker) hear(message);
  };
  started.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => pass(data));
  started.addEventListener("error", () => pass({ is: "broken" }));
  started.postMessage(task);
  worker = started;
}

const BROKEN = "The import failed unexpectedly.";

function hear(message: FromWorker): void {
  const now = current.value;
  if (message.is === "preview") {
    if (now.step === "reading" || now.step === "map")
      current.value = {
        step: "map",
        file: now.file,
        preview: message.preview,
        isReading: false,
      };
  } else if (message.is === "comparison") {
    if (now.step === "map") current.value = { ...now, comparison: message.comparison };
  } else if (now.step !== "running") {
    chooseAnother();
    announce(BROKEN);
  } else if (message.is === "progress") current.value = { ...now, progress: message.progress };
  else if (message.is === "end") end(now, message);
  else breakOff(now, { kind: "failed", message: BROKEN });
}

/** What the worker has not reported yet stays unknown. */
const breakOff = (now: Running, ending: Outcome["ending"]): void =>
  end(now, { progress: now.progress, ending, refused: undefined });

function end({ file, reading, updates }: Running, { progress, ending, refused }: Outcome): void {
  stopWorker();
  current.value = { step: "ended", file, reading, updates, progress, ending, refused };
  const { created, updated, replayed, refused: count } = progress;
  announce(
    `The import has ended. ${formatCount(created)} added, ${formatCount(updated)} updated, ${formatCount(replayed)} already there, ${formatCount(count)} refused.`,
  );
  forgetTags();
  if (ending.kind === "token") endSession(ending.isExpired ? "expired" : "refused");
  else if (mayRead.value) void refresh();
}

export function chooseFile(file: File): void {
  current.value = { step: "reading", file };
  startPreview(file, undefined);
}

function startPreview(file: File, reading: Reading | undefined): void {
  const allowed = mayRead.value ? token.value : undefined;
  startWorker({ to: "preview", file, reading, url: baseUrl, token: allowed });
}

export function readAs(reading: Reading): void {
  const now = current.value;
  if (now.step !== "map") return;
  // The next choice may come before the preview.
  const { file, preview } = now;
  current.value = { step: "map", file, preview: { ...preview, reading }, isReading: true };
  startPreview(file, reading);
}

/** Also starts an import again: plants that are already stored are recognised. */
export function startImport(
  file: File,
  reading: Reading,
  updates: readonly Difference[] = [],
): void {
  const begun = { file, reading, updates };
  current.value = { step: "running", ...begun, progress: nothingYet, isCancelling: false };
  announce("The import has started.");
  startWorker({ to: "run", ...begun, url: baseUrl, token: token.value ?? "" });
}

/** Ends in any case: a worker that does not react is terminated. */
export function cancelImport(): void {
  const begun = current.value;
  if (begun.step !== "running") return;
  current.value = { ...begun, isCancelling: true };
  const cancelled = worker;
  cancelled?.postMessage({ to: "cancel" } satisfies ToWorker);
  setTimeout(() => {
    const now = current.value;
    if (now.step === "running" && worker === cancelled) breakOff(now, { kind: "cancelled" });
  }, CANCEL_MS);
}

export function chooseAnother(): void {
  stopWorker();
  current.value = { step: "choose" };
}

addEventListener("beforeunload", (event) => {
  // Leaving the page would end the import.
  if (current.value.step === "running") event.preventDefault();
});
