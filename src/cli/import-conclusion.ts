/** How an import ends: its summary, its message, and the exit code that scripts go by. */

import { ConfigError } from "../config.ts";
import { MissingColumn } from "../format/csv.ts";
import { MalformedFile } from "../format/records.ts";
import { CommandError, explain, UsageError } from "./failure.ts";
import { Interrupted } from "./interrupt.ts";
import { formatCount, formatSeconds } from "./quantity.ts";
import type { Tally } from "./import-records.ts";

const EXIT_REFUSED = 3;

interface Conclusion extends Readonly<Tally> {
  readonly seconds: number;
  readonly failure: { readonly error: unknown } | undefined;
  readonly isJson: boolean;
}

/** Throws where the import came to no end. */
export async function concludeImport(conclusion: Conclusion): Promise<void> {
  const { failure, isJson, refused } = conclusion;
  if (failure === undefined) {
    await print(formatSummary(conclusion));
    if (refused > 0) process.exitCode = EXIT_REFUSED;
    return;
  }
  const { error } = failure;
  if (error instanceof UsageError || error instanceof ConfigError) throw error;
  if (error instanceof MissingColumn)
    throw new UsageError(`${error.message} Name the columns by --map id=…,name=…,tag=…`);
  if (error instanceof Interrupted) {
    await print(formatSummary(conclusion));
    process.stderr.write("plantstore: interrupted; running the import again is safe.\n");
    // A read that waits for its pipe would keep the process alive.
    process.exit(error.exitCode);
  }
  if (isJson) await print(formatSummary(conclusion));
  const why = error instanceof MalformedFile ? error.message : explain(error);
  const stored = conclusion.created + conclusion.replayed;
  throw new CommandError(
    `${why}\nThe import did not reach its end: ${stored} plants are stored. Running it again is safe.`,
    { cause: error },
  );
}

function formatSummary({
  created,
  replayed,
  refused,
  seconds,
  failure,
  isJson,
}: Conclusion): string {
  if (isJson) {
    const finished = failure === undefined;
    return JSON.stringify({ finished, created, replayed, refused, seconds: roundToMs(seconds) });
  }
  if (!process.stdout.isTTY) return `created ${created}, replayed ${replayed}, refused ${refused}`;
  const [c, r, f] = [created, replayed, refused].map(formatCount);
  const rate = formatCount((created + replayed + refused) / seconds);
  return `created ${c}, replayed ${r}, refused ${f} in ${formatSeconds(seconds)} (${rate} a second)`;
}

const roundToMs = (seconds: number): number => Math.round(seconds * 1000) / 1000;

/** Resolves when it is out. That nobody reads it any more is no failure. */
function print(line: string): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(`${line}\n`, () => resolve());
  });
}
