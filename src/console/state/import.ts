/** An import under way: it goes on while other views are shown. */

import { computed, effect, signal } from "@preact/signals";
import { baseUrl } from "../api/service.ts";
import type {
  Ending,
  FromWorker,
  Mapping,
  Preview,
  Progress,
  Reading,
  ToWorker,
} from "../worker/messages.ts";
import { announce } from "./announcements.ts";
import { formatCount } from "./numbers.ts";
import { refresh } from "./plants.ts";
import { endSession, mayRead, token } from "./session.ts";
import { forgetTags } from "./tags.ts";

export type Import =
  | { readonly step: "choose" }
  | { readonly step: "reading"; readonly file: File }
  | { readonly step: "map"; readonly file: File; readonly preview: Preview }
  | {
      readonly step: "running";
      readonly file: File;
      readonly reading: Reading;
      readonly progress: Progress;
    }
  | {
      readonly step: "ended";
      readonly file: File;
      readonly reading: Reading;
      readonly progress: Progress;
      readonly ending: Ending;
      readonly refused: Blob;
    };

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

let worker: Worker | undefined;

function tell(message: ToWorker): void {
  worker ??= startWorker();
  worker.postMessage(message);
}

function startWorker(): Worker {
  const path = document.documentElement.dataset["importWorker"] ?? "";
  const started = new Worker(new URL(path, baseUrl), { type: "module" });
  started.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => hear(data));
  started.addEventListener("error", () => {
    started.terminate();
    worker = undefined;
    current.value = { step: "choose" };
    announce("The import broke down.");
  });
  return started;
}

function hear(message: FromWorker): void {
  const now = current.value;
  if (message.is === "preview") {
    if (now.step === "reading" || now.step === "map")
      current.value = { step: "map", file: now.file, preview: message.preview };
    return;
  }
  if (now.step !== "running") return;
  if (message.is === "progress") {
    current.value = { ...now, progress: message.progress };
    return;
  }
  current.value = { ...now, ...message, step: "ended" };
  const { created, replayed, refused } = message.progress;
  announce(
    `The import has ended. ${formatCount(created)} added, ${formatCount(replayed)} already there, ${formatCount(refused)} refused.`,
  );
  forgetTags();
  if (message.ending.kind === "token") endSession(message.ending.isExpired ? "expired" : "refused");
  else if (mayRead.value) refresh();
}

export function chooseFile(file: File): void {
  current.value = { step: "reading", file };
  tell({ to: "preview", file, reading: undefined });
}

/** The file as it is, understood another way. */
export function readAs(reading: Reading): void {
  const now = current.value;
  if (now.step === "map") tell({ to: "preview", file: now.file, reading });
}

export function mapColumns(mapping: Mapping): void {
  const now = current.value;
  if (now.step === "map") readAs({ ...now.preview.reading, mapping });
}

/** Also once more, after one that did not get to its end: what is there is recognised. */
export function startImport(file: File, reading: Reading): void {
  current.value = { step: "running", file, reading, progress: nothingYet };
  announce("The import has begun.");
  tell({
    to: "run",
    file,
    reading,
    url: new URL("plants/batch", baseUrl).href,
    token: token.value ?? "",
  });
}

export function cancelImport(): void {
  tell({ to: "cancel" });
}

export function chooseAnother(): void {
  current.value = { step: "choose" };
}

/** What one has begun is not for the next who signs in. */
export function forgetImport(): void {
  if (current.value.step === "running") cancelImport();
  chooseAnother();
}

/** Leaving the page would end it. */
const warn = (event: BeforeUnloadEvent): void => event.preventDefault();

effect(() => {
  if (current.value.step !== "running") return;
  addEventListener("beforeunload", warn);
  return () => removeEventListener("beforeunload", warn);
});
