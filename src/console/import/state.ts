/** The current import. It continues while other views are shown. */

import { computed, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { gaps } from "../state/feed.ts";
import { endSession, mayRead, token } from "../state/session.ts";
import { announce, toast } from "../state/toasts.ts";
import type { Difference, Import, Order, Reading } from "./messages.ts";

/** Undefined until a file is chosen. */
export const current = signal<Import | undefined>(undefined);

/** From 0 to 1, while an import runs. */
export const importProgress = computed(() =>
  current.value?.ending === undefined ? current.value?.progress?.done : undefined,
);

/** Whether the plants that are different are to be updated. */
export const updating = signal(false);

let worker: Worker | undefined;

/** Each task has a worker of its own, so what an earlier one still posts is not mixed up with it. */
function start(begun: Import): void {
  worker?.terminate();
  current.value = begun;
  const { importWorker = "", workbook = "" } = document.documentElement.dataset;
  const started = new Worker(new URL(importWorker, baseUrl), {
    type: "module",
    // Tells the worker where the script for workbooks is, which it loads on demand.
    name: new URL(workbook, baseUrl).href,
  });
  started.addEventListener("message", ({ data }: MessageEvent<Partial<Import>>) => {
    if (started === worker) hear(data, used);
  });
  started.addEventListener("error", () => {
    if (started !== worker) return;
    chooseAnother();
    toast("The import failed unexpectedly.");
  });
  const used = token.value;
  const isAllowed = begun.progress !== undefined || mayRead.value;
  const order: Order = { ...begun.task, url: baseUrl, token: isAllowed ? used : undefined };
  started.postMessage(order);
  worker = started;
}

/** `used` is the token of the worker. The person may have signed in with another one since. */
function hear(change: Partial<Import>, used = token.value): void {
  if (current.value === undefined) return;
  current.value = { ...current.value, ...change };
  const { progress, ending } = current.value;
  if (progress === undefined || ending === undefined) return;
  worker?.terminate();
  const { created, updated, replayed, refused } = progress;
  announce(
    `The import has ended. ${formatCount(created)} added, ${formatCount(updated)} updated, ${formatCount(replayed)} already there, ${formatCount(refused)} refused.`,
  );
  const { kind } = ending;
  if ((kind === "expired" || kind === "refused") && used === token.value) endSession(kind);
  // The service may keep no changes to follow.
  else gaps.value++;
}

/** Guesses how to read the file if that is not given. */
export function checkFile(file: File, reading?: Reading): void {
  const preview = reading === undefined ? undefined : current.value?.preview;
  if (reading === undefined) updating.value = false;
  start({ task: { file, reading }, preview, isReading: true });
}

/** Also starts an import again: plants that are already stored are recognised. */
export function startImport(file: File, reading: Reading, updates: readonly Difference[]): void {
  const counts = { created: 0, updated: 0, replayed: 0, refused: 0, done: 0, seconds: 0 };
  const progress = { ...counts, isWaiting: false, firstRefused: [], rejects: new Blob() };
  start({ task: { file, reading, updates }, progress });
  announce("The import has started.");
}

/** What the worker has not reported yet stays unknown: importing the file again settles it. */
export function cancelImport(): void {
  hear({ ending: { kind: "cancelled" } });
}

export function chooseAnother(): void {
  worker?.terminate();
  current.value = undefined;
}

addEventListener("beforeunload", (event) => {
  // Leaving the page would end the import.
  if (importProgress.value !== undefined) event.preventDefault();
});
