/** plantstore copy: everything from one store to another, whatever engines they have; safe to run again. */

import { concludeCopy } from "./copy-conclusion.ts";
import { formatDatabaseUrlFlag, parseEnds, requireSource } from "./copy-ends.ts";
import { Copy } from "./copy-stores.ts";
import { untilInterrupted } from "./interrupt.ts";
import { withStore } from "./with-store.ts";

export interface CopyOptions {
  readonly from?: string;
  readonly to?: string;
  readonly force?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export async function copyStore(options: CopyOptions): Promise<void> {
  const ends = parseEnds(options);
  await requireSource(ends.from);
  const startedAtMs = performance.now();
  let copy: Copy | undefined;
  const run = (signal: AbortSignal): Promise<void> =>
    // The source first: where it cannot be opened, no target is made.
    withStore(ends.from, (from) =>
      withStore(ends.to, (to) => {
        copy = new Copy({
          from,
          to,
          limits: ends.to,
          isForced: options.force === true,
          isQuiet: options.quiet === true,
          databaseUrlFlag: formatDatabaseUrlFlag(ends.to),
          signal,
        });
        return copy.run();
      }),
    );
  const failure = await untilInterrupted(run).then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  const seconds = (performance.now() - startedAtMs) / 1000;
  await concludeCopy({ account: copy?.account, seconds, failure, isJson: options.json === true });
}
