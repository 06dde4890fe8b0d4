/** The import's own thread: a hundred thousand rows do not hold up the page. */

// oxlint-disable-next-line import/no-unassigned-import -- it is there before what comes below is loaded
import "./buffer.ts";
import type { FromWorker, ToWorker } from "./messages.ts";
import { previewFile } from "./preview.ts";
import { ImportRun } from "./run.ts";

const PROGRESS_MS = 150;

const say = (message: FromWorker): void => postMessage(message);

let running: AbortController | undefined;
let previews = 0;

addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
  if (data.to === "cancel") running?.abort();
  else if (data.to === "preview") void preview(data);
  else void run(data);
});

/** The page does not hear of these by itself. */
addEventListener("unhandledrejection", () => say({ is: "broken" }));

async function preview({ file, reading }: Extract<ToWorker, { to: "preview" }>): Promise<void> {
  const turn = ++previews;
  const found = await previewFile(file, reading);
  // Of several that were asked for, the last one counts.
  if (turn === previews) say({ is: "preview", preview: found });
}

async function run(job: Extract<ToWorker, { to: "run" }>): Promise<void> {
  const { run: number } = job;
  running = new AbortController();
  const current = new ImportRun({ ...job, signal: running.signal });
  const timer = setInterval(
    () => say({ is: "progress", run: number, progress: current.progress }),
    PROGRESS_MS,
  );
  try {
    const ending = await current.perform();
    const { progress, refused } = current;
    say({ is: "end", run: number, progress, ending, refused });
  } finally {
    clearInterval(timer);
  }
}
