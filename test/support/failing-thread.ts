/** Starts itself as a thread, which throws or rejects, and prints the error that the starter gets. */

import { describeError } from "../../src/domain/errors.ts";
import { runThread, startThread } from "../../src/thread.ts";

type Setup = { readonly fails: string | undefined };

if (Bun.isMainThread) {
  const { ended } = startThread(import.meta.path, { fails: process.argv[2] });
  const error: unknown = await ended.catch((reason: unknown) => reason);
  process.stdout.write(JSON.stringify(describeError(error as Error)));
} else
  runThread(({ fails }: Setup) => {
    const error = Object.assign(new TypeError("broken"), { code: "EXAMPLE", syscall: "listen" });
    if (fails === "throws") throw error;
    void Promise.reject(error);
  });
