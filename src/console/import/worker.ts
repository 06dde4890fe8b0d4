/** The entry of the import worker: a large file does not block the page. */

import type { FromWorker, ToWorker } from "./messages.ts";
import { previewFile } from "./preview.ts";
import { ImportRun } from "./run.ts";

const PROGRESS_MS = 150;

const post = (message: FromWorker): void => postMessage(message);

let running: AbortController | undefined;
let previews = 0;

addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
  if (data.to === "cancel") running?.abort();
  else if (data.to === "preview") void preview(data);
  else void run(data);
});

// The page's error event does not cover rejections.
addEventListener("unhandledrejection", () => post({ is: "broken" }));

async function preview({ file, reading }: Extract<ToWorker, { to: "preview" }>): Promise<void> {
  const number = ++previews;
  const found = await previewFile(file, reading);
  // Only the latest request counts.
  if (number === previews) post({ is: "preview", preview: found });
}

async function run(job: Extract<ToWorker, { to: "run" }>): Promise<void> {
  const { run: number } = job;
  running = new AbortController();
  const current = new ImportRun({ ...job, signal: running.signal });
  const timer = setInterval(
    () => post({ is: "progress", run: number, progress: current.progress }),
    PROGRESS_MS,
  );
  try {
    const ending = await current.perform();
    const { progress, refused } = current;
    post({ is: "end", run: number, progress, ending, refused });
  } finally {
    clearInterval(timer);
  }
}
