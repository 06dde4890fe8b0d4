/** Waits for what gives no sign of its own: another process, a row in a database, a metric. */

/** Only against a hang, on the slowest machine. Less than a test has, so the error says what was missing. */
export const PATIENCE_MS = 120_000;
const LOOK_MS = 5;

export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const startedAtMs = performance.now();
  while (!(await isSo())) {
    if (performance.now() - startedAtMs > PATIENCE_MS)
      throw new Error(`${what}: not so after ${PATIENCE_MS / 1000} s`);
    await Bun.sleep(LOOK_MS);
  }
}
