/** Waits for what gives no sign of its own: another process, a row in a database, a metric. */

/** Only against a hang, on the slowest machine. Less than a test has, so the error says what was missing. */
export const PATIENCE_MS = 120_000;
/** Often at first; a condition that takes long to come true is not worth the CPU. */
const LOOK_MS = { first: 5, max: 100 };

export async function until(
  what: string,
  isSo: () => boolean | Promise<boolean>,
  patienceMs = PATIENCE_MS,
): Promise<void> {
  const startedAtMs = performance.now();
  for (let waitMs = LOOK_MS.first; !(await isSo()); waitMs = Math.min(waitMs * 1.3, LOOK_MS.max)) {
    if (performance.now() - startedAtMs > patienceMs)
      throw new Error(`${what}: not so after ${patienceMs / 1000} s`);
    await Bun.sleep(waitMs);
  }
}
