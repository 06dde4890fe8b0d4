/** The thread that works on a place of backups: a folder may hang, and a running statement cannot be interrupted. */

import { dirname, join, resolve } from "node:path";
import { countFreeDescriptors } from "../descriptor.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { startThread } from "../thread.ts";
import type { Task } from "./tasks.ts";
import { sweepScratch } from "./scratch.ts";

/** The runtime aborts the process if a new thread gets no descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;

function startBackupThread() {
  const free = countFreeDescriptors(DESCRIPTORS_NEEDED);
  if (free < DESCRIPTORS_NEEDED)
    throw new StoreOpenError(
      `A copy needs ${DESCRIPTORS_NEEDED} free file descriptors, and ${free} are free. Raise the limit (ulimit -n).`,
    );
  const thread = startThread(join(import.meta.dir, "backup-worker"));
  let working: Promise<unknown> = Promise.resolve();
  return {
    ...thread,
    /** One task at a time, even while the place hangs. */
    ask<Answer>(task: Task): Promise<Answer> {
      const answer = working.then(() => thread.ask(task));
      working = answer.catch(() => undefined);
      return answer as Promise<Answer>;
    },
  };
}

/** For one task. Ctrl-C ends it, and leaves everything as it was. */
export async function runOnThread<Answer>(task: Task, signal: AbortSignal): Promise<Answer> {
  signal.throwIfAborted();
  const thread = startBackupThread();
  signal.addEventListener("abort", thread.end);
  try {
    return await thread.ask<Answer>(task);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", thread.end);
    thread.end();
    removeDownloads(task);
  }
}

/** A thread that is ended cannot remove them itself. */
function removeDownloads(task: Task): void {
  if ("place" in task)
    sweepScratch("scratch" in task ? task.scratch : dirname(resolve(task.to)), true);
}

/** Started at the first task, and again at the first task after its end. */
export function createThread() {
  let thread: ReturnType<typeof startBackupThread> | undefined;
  return {
    ask: async <Answer>(task: Task): Promise<Answer> =>
      (thread ??= startBackupThread()).ask<Answer>(task),
    end: (): void => {
      thread?.end();
      thread = undefined;
    },
  };
}
