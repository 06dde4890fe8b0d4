/** Ctrl-C during a long command: it comes to an end in good order; the second time, at once. */

const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const;
type Name = keyof typeof exitCodes;

/** npm passes a Ctrl-C on that the terminal has already sent to everyone: the two are one. */
export const SAME_SIGNAL_MS = 500;

/** The code to exit with is that of a process which the signal has ended (128 and its number). */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly exitCode: number;

  constructor(signal: Name) {
    super("Interrupted.");
    this.exitCode = exitCodes[signal];
  }
}

/** The signal given to `use` is aborted, with an Interrupted for its reason, by the first Ctrl-C. */
export async function untilInterrupted<Result>(
  use: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  let sinceMs: number | undefined;
  const listeners = (Object.keys(exitCodes) as Name[]).map((name) => {
    const listener = (): void => {
      if (sinceMs !== undefined && performance.now() - sinceMs > SAME_SIGNAL_MS)
        process.exit(exitCodes[name]);
      sinceMs ??= performance.now();
      controller.abort(new Interrupted(name));
    };
    process.on(name, listener);
    return () => process.off(name, listener);
  });
  try {
    return await use(controller.signal);
  } finally {
    for (const remove of listeners) remove();
  }
}

/** The promise, or the reason of the abort, whichever comes first. */
export async function orAborted<Result>(
  promise: Promise<Result>,
  signal: AbortSignal,
): Promise<Result> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const listener = (): void => reject(signal.reason as Error);
  signal.addEventListener("abort", listener);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", listener);
  }
}
