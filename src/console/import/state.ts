/** The current import. It continues while other views are shown. */

import { computed, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { forgetTags, refresh } from "../state/plants.ts";
import { endSession, mayRead, token } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import type {
  Begun,
  Checking,
  Difference,
  Ending,
  FromWorker,
  Reading,
  ToWorker,
} from "./messages.ts";

type Import = { readonly step: "choose" } | Checking | Begun;

export const current = signal<Import>({ step: "choose" });

/** From 0 to 1, while an import runs. */
export const importProgress = computed(() => {
  const now = current.value;
  return now.step === "begun" && now.ending === undefined
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
  started.addEventListener("error", () => pass(undefined));
  started.postMessage(task);
  worker = started;
}

const BROKEN = "The import failed unexpectedly.";

function hear(change: FromWorker): void {
  const now = current.value;
  if (change !== undefined) {
    current.value = { ...now, ...change };
    if ("ending" in change) conclude();
  } else if (now.step === "begun") breakOff({ kind: "failed", message: BROKEN });
  else {
    chooseAnother();
    announce(BROKEN);
  }
}

/** What the worker has not reported yet stays unknown. */
const breakOff = (ending: Ending): void => hear({ ending });

function conclude(): void {
  stopWorker();
  const { progress, ending } = current.value as Begun;
  const { created, updated, replayed, refused } = progress;
  announce(
    `The import has ended. ${formatCount(created)} added, ${formatCount(updated)} updated, ${formatCount(replayed)} already there, ${formatCount(refused)} refused.`,
  );
  forgetTags();
  if (ending?.kind === "token") endSession(ending.isExpired ? "expired" : "refused");
  else if (mayRead.value) void refresh();
}

/** Guesses how to read the file if that is not given. */
export function checkFile(file: File, reading?: Reading): void {
  const now = current.value;
  const shown = now.step === "check" && reading !== undefined ? now.preview : undefined;
  current.value = {
    step: "check",
    file,
    // The next choice may come before the preview.
    ...(shown !== undefined && reading !== undefined && { preview: { ...shown, reading } }),
    isReading: true,
    comparing: undefined,
  };
  const allowed = mayRead.value ? token.value : undefined;
  startWorker({ to: "preview", file, reading, url: baseUrl, token: allowed });
}

/** Also starts an import again: plants that are already stored are recognised. */
export function startImport(
  file: File,
  reading: Reading,
  updates: readonly Difference[] = [],
): void {
  const begun: Begun = {
    step: "begun",
    file,
    reading,
    updates,
    progress: {
      created: 0,
      updated: 0,
      replayed: 0,
      refused: 0,
      bytesDone: 0,
      seconds: 0,
      isWaiting: false,
      firstRefused: [],
    },
    isCancelling: false,
  };
  current.value = begun;
  announce("The import has started.");
  startWorker({ to: "run", ...begun, url: baseUrl, token: token.value ?? "" });
}

/** Ends in any case: a worker that does not react is terminated. */
export function cancelImport(): void {
  hear({ isCancelling: true });
  const cancelled = worker;
  cancelled?.postMessage({ to: "cancel" } satisfies ToWorker);
  setTimeout(() => {
    if (worker === cancelled && cancelled !== undefined) breakOff({ kind: "cancelled" });
  }, CANCEL_MS);
}

export function chooseAnother(): void {
  stopWorker();
  current.value = { step: "choose" };
}

addEventListener("beforeunload", (event) => {
  // Leaving the page would end the import.
  if (importProgress.value !== undefined) event.preventDefault();
});
