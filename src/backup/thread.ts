/** The thread that works on a place of backups: a folder may hang, and a running statement cannot be interrupted. */

import { join } from "node:path";
import { countFreeDescriptors } from "../descriptor.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { startThread } from "../thread.ts";
import type { Order, Tasks } from "./backup-worker.ts";

/** The runtime aborts the process if a new thread gets no descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;

function startBackupThread() {
  const free = countFreeDescriptors(DESCRIPTORS_NEEDED);
  if (free < DESCRIPTORS_NEEDED)
    throw new StoreOpenError(
      `A copy needs ${DESCRIPTORS_NEEDED} free file descriptors, and ${free} are free. Raise the limit (ulimit -n).`,
    );
  return startThread(join(import.meta.dir, "backup-worker"));
}

/** Started at the first task, and again at the first task after its end. One task at a time, even while the place hangs. */
export function createThread() {
  let thread: ReturnType<typeof startBackupThread> | undefined;
  return {
    ask: async <Task extends keyof Tasks>(
      task: Task,
      ...args: Parameters<Tasks[Task]>
    ): Promise<Awaited<ReturnType<Tasks[Task]>>> => {
      thread ??= startBackupThread();
      const answer = await thread.ask({ task, args } satisfies Order);
      return answer as Awaited<ReturnType<Tasks[Task]>>;
    },
    end: (): void => {
      thread?.end();
      thread = undefined;
    },
  };
}

/** For one task. Ctrl-C ends it, and leaves everything as it was. */
export async function runOnThread<Task extends keyof Tasks>(
  signal: AbortSignal,
  task: Task,
  ...args: Parameters<Tasks[Task]>
): Promise<Awaited<ReturnType<Tasks[Task]>>> {
  signal.throwIfAborted();
  const thread = createThread();
  signal.addEventListener("abort", thread.end);
  try {
    return await thread.ask(task, ...args);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", thread.end);
    thread.end();
  }
}
