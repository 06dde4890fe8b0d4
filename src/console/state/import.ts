/** An import under way: it goes on while other views are shown. */

import { computed, effect, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import type {
  Ending,
  FromWorker,
  Mapping,
  Outcome,
  Preview,
  Progress,
  Reading,
} from "../worker/messages.ts";
import { ImportThread } from "../worker/thread.ts";
import { announce } from "./announcements.ts";
import { formatCount } from "./numbers.ts";
import { refresh } from "./plants.ts";
import { endSession, mayRead, token } from "./session.ts";
import { forgetTags } from "./tags.ts";

interface Running {
  readonly step: "running";
  readonly run: number;
  readonly file: File;
  readonly reading: Reading;
  readonly progress: Progress;
}

export type Import =
  | { readonly step: "choose" }
  | { readonly step: "reading"; readonly file: File }
  | { readonly step: "map"; readonly file: File; readonly preview: Preview }
  | Running
  | (Outcome & { readonly step: "ended"; readonly file: File; readonly reading: Reading });

export const current = signal<Import>({ step: "choose" });

/** From 0 to 1, while one runs. */
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
  isHeldUp: false,
  firstRefused: [],
};

/** How long a thread has to end by itself what was cancelled. */
const CANCEL_MS = 2000;

const thread = new ImportThread(hear);
let runs = 0;

function hear(message: FromWorker): void {
  const now = current.value;
  if (message.is === "broken") breakOff({ kind: "failed", message: "The import broke down." });
  else if (message.is === "preview") {
    if (now.step === "reading" || now.step === "map")
      current.value = { step: "map", file: now.file, preview: message.preview };
  } else if (now.step !== "running" || now.run !== message.run) return;
  else if (message.is === "progress") current.value = { ...now, progress: message.progress };
  else end(now, message);
}

/** Without its thread: what it has not told is not known. */
function breakOff(ending: Ending): void {
  thread.end();
  const now = current.value;
  if (now.step === "running") end(now, { progress: now.progress, ending, refused: undefined });
  else if (now.step !== "ended") {
    chooseAnother();
    announce("The import broke down.");
  }
}

function end({ file, reading }: Running, { progress, ending, refused }: Outcome): void {
  current.value = { step: "ended", file, reading, progress, ending, refused };
  announce(
    `The import has ended. ${formatCount(progress.created)} added, ${formatCount(progress.replayed)} already there, ${formatCount(progress.refused)} refused.`,
  );
  forgetTags();
  if (ending.kind === "token") endSession(ending.isExpired ? "expired" : "refused");
  else if (mayRead.value) refresh();
}

export function chooseFile(file: File): void {
  current.value = { step: "reading", file };
  thread.tell({ to: "preview", file, reading: undefined });
}

/** The file as it is, understood another way. */
export function readAs(reading: Reading): void {
  const now = current.value;
  if (now.step === "map") thread.tell({ to: "preview", file: now.file, reading });
}

export function mapColumns(mapping: Mapping): void {
  const now = current.value;
  if (now.step === "map") readAs({ ...now.preview.reading, mapping });
}

/** Also once more, after one that did not get to its end: what is there is recognised. */
export function startImport(file: File, reading: Reading): void {
  const run = ++runs;
  current.value = { step: "running", run, file, reading, progress: nothingYet };
  announce("The import has begun.");
  thread.tell({
    to: "run",
    run,
    file,
    reading,
    url: new URL("plants/batch", baseUrl).href,
    token: token.value ?? "",
  });
}

/** It ends in any case: with its thread, where that does not do so by itself. */
export function cancelImport(): void {
  const begun = current.value;
  if (begun.step !== "running") return;
  thread.tell({ to: "cancel" });
  setTimeout(() => {
    const now = current.value;
    if (now.step === "running" && now.run === begun.run) breakOff({ kind: "cancelled" });
  }, CANCEL_MS);
}

export function chooseAnother(): void {
  current.value = { step: "choose" };
}

/** What one has begun is not for the next who signs in. */
export function forgetImport(): void {
  thread.end();
  chooseAnother();
}

/** Leaving the page would end it. */
const warn = (event: BeforeUnloadEvent): void => event.preventDefault();

effect(() => {
  if (current.value.step !== "running") return;
  addEventListener("beforeunload", warn);
  return () => removeEventListener("beforeunload", warn);
});
