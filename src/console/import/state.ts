/** The current import. It continues while other views are shown. */

import { computed, effect, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { forgetTags, refresh } from "../state/plants.ts";
import { endSession, mayRead, token } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import type {
  Ending,
  FromWorker,
  Mapping,
  Outcome,
  Preview,
  Progress,
  Reading,
  ToWorker,
} from "./messages.ts";

interface Running {
  readonly step: "running";
  readonly run: number;
  readonly file: File;
  readonly reading: Reading;
  readonly progress: Progress;
  readonly isCancelling: boolean;
}

export type Import =
  | { readonly step: "choose" }
  | { readonly step: "reading"; readonly file: File }
  | { readonly step: "map"; readonly file: File; readonly preview: Preview }
  | Running
  | (Outcome & { readonly step: "ended"; readonly file: File; readonly reading: Reading });

export const current = signal<Import>({ step: "choose" });

/** From 0 to 1, while an import runs. */
export const importProgress = computed(() => {
  const now = current.value;
  return now.step === "running"
    ? Math.min(1, now.progress.bytesDone / Math.max(1, now.file.size))
    : undefined;
});

const nothingYet: Progress = {
  created: 0,
  replayed: 0,
  refused: 0,
  bytesDone: 0,
  seconds: 0,
  isWaiting: false,
  firstRefused: [],
};

/** How long a cancelled worker may take to report before it is terminated. */
const CANCEL_MS = 7000;

let worker: Worker | undefined;
let runs = 0;

function tell(message: ToWorker): void {
  worker ??= startWorker();
  worker.postMessage(message);
}

function startWorker(): Worker {
  const path = document.documentElement.dataset["importWorker"] ?? "";
  const started = new Worker(new URL(path, baseUrl), { type: "module" });
  // A terminated worker may have posted messages before.
  const pass = (message: FromWorker): void => {
    if (started === worker) hear(message);
  };
  started.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => pass(data));
  started.addEventListener("error", () => pass({ is: "broken" }));
  return started;
}

function terminateWorker(): void {
  worker?.terminate();
  worker = undefined;
}

function hear(message: FromWorker): void {
  const now = current.value;
  if (message.is === "broken")
    breakOff({ kind: "failed", message: "The import failed unexpectedly." });
  else if (message.is === "preview") {
    if (now.step === "reading" || now.step === "map")
      current.value = { step: "map", file: now.file, preview: message.preview };
  } else if (now.step !== "running" || now.run !== message.run) return;
  else if (message.is === "progress") current.value = { ...now, progress: message.progress };
  else end(now, message);
}

/** What the worker has not reported yet stays unknown. */
function breakOff(ending: Ending): void {
  terminateWorker();
  const now = current.value;
  if (now.step === "running") end(now, { progress: now.progress, ending, refused: undefined });
  else if (now.step !== "ended") {
    chooseAnother();
    announce("The import failed unexpectedly.");
  }
}

function end({ file, reading }: Running, { progress, ending, refused }: Outcome): void {
  current.value = { step: "ended", file, reading, progress, ending, refused };
  const { created, replayed, refused: count } = progress;
  announce(
    `The import has ended. ${formatCount(created)} added, ${formatCount(replayed)} already there, ${formatCount(count)} refused.`,
  );
  forgetTags();
  if (ending.kind === "token") endSession(ending.isExpired ? "expired" : "refused");
  else if (mayRead.value) void refresh();
}

export function chooseFile(file: File): void {
  current.value = { step: "reading", file };
  tell({ to: "preview", file, reading: undefined });
}

export function readAs(reading: Reading): void {
  const now = current.value;
  if (now.step === "map") tell({ to: "preview", file: now.file, reading });
}

export function mapColumns(mapping: Mapping): void {
  const now = current.value;
  if (now.step === "map") readAs({ ...now.preview.reading, mapping });
}

/** Also starts an import again: plants that are already stored are recognised. */
export function startImport(file: File, reading: Reading): void {
  const run = ++runs;
  current.value = {
    step: "running",
    run,
    file,
    reading,
    progress: nothingYet,
    isCancelling: false,
  };
  announce("The import has started.");
  tell({
    to: "run",
    run,
    file,
    reading,
    url: baseUrl,
    token: token.value ?? "",
  });
}

/** Ends in any case: a worker that does not react is terminated. */
export function cancelImport(): void {
  const begun = current.value;
  if (begun.step !== "running") return;
  current.value = { ...begun, isCancelling: true };
  tell({ to: "cancel" });
  setTimeout(() => {
    const now = current.value;
    if (now.step === "running" && now.run === begun.run) breakOff({ kind: "cancelled" });
  }, CANCEL_MS);
}

export function chooseAnother(): void {
  current.value = { step: "choose" };
}

export function forgetImport(): void {
  terminateWorker();
  chooseAnother();
}

/** Leaving the page would end the import. */
const warn = (event: BeforeUnloadEvent): void => event.preventDefault();

effect(() => {
  if (current.value.step !== "running") return;
  addEventListener("beforeunload", warn);
  return () => removeEventListener("beforeunload", warn);
});
