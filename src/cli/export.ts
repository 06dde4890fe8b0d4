/** plantstore export: all plants that match, from the store or a running service, as one file. */

import type { RetryOptions } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { formatNdjson, formatStoredPlant, type Plant } from "../domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import type { FileFormat } from "../format/plants.ts";
import {
  findClient,
  Interrupted,
  readPages,
  requireStore,
  type TargetOptions,
  untilInterrupted,
  UsageError,
  withStore,
} from "./command.ts";
import { openFileOutput, openStandardOutput, ReaderGone, requireOutsideStore } from "./files.ts";
import { findFormat } from "./import.ts";
import { countOf, formatSeconds, Progress } from "./terminal.ts";

export interface ExportOptions extends TargetOptions {
  readonly format?: keyof typeof forms;
  readonly tag?: string;
  readonly name?: string;
  readonly output?: string;
  readonly force?: boolean;
  readonly quiet?: boolean;
}

export async function exportPlants(config: Config, options: ExportOptions): Promise<void> {
  const client = findClient(options, config);
  const path = options.output === "-" ? undefined : options.output;
  const named = findFormat(path ?? "");
  if (options.format === undefined && named === "xlsx")
    throw new UsageError(`--output: ${path}: the console exports workbooks; choose a .csv file`);
  const form = forms[options.format ?? (named === "xlsx" ? undefined : named) ?? "ndjson"];
  if (client === undefined) {
    await requireStore(config);
    if (path !== undefined) requireOutsideStore("--output", path, config.databaseUrl);
  }
  const startedAtMs = performance.now();
  let count = 0;

  const run = async (signal: AbortSignal): Promise<void> => {
    const output =
      path === undefined
        ? openStandardOutput(signal)
        : openFileOutput(path, options.force === true, signal);
    // Plants that scroll by on the terminal are progress enough.
    const isShown = path !== undefined || !process.stdout.isTTY;
    const progress = new Progress(options.quiet === true || !isShown, () => ({ plants: count }));
    const retrying: RetryOptions = { signal, onRetry: progress.onRetry };
    const write = async (pages: AsyncIterable<readonly Plant[]>): Promise<void> => {
      for await (const plants of pages) {
        await output.write((count === 0 ? form.head : form.between) + form.format(plants));
        count += plants.length;
      }
      await output.write(count === 0 ? form.head + form.tail : form.tail);
    };
    try {
      await (client === undefined
        ? withStore(config, (store) => write(readPages(store, options, retrying)))
        : write(client.exportBlocks(options, retrying)));
      output.finish();
    } finally {
      progress.close();
      output.abandon();
    }
  };

  try {
    await untilInterrupted(run);
  } catch (error) {
    if (error instanceof ReaderGone) return;
    // A write that waits for its pipe would keep the process alive.
    if (error instanceof Interrupted) process.exit(error.exitCode);
    throw error;
  }
  const seconds = (performance.now() - startedAtMs) / 1000;
  if (process.stderr.isTTY && options.quiet !== true)
    process.stderr.write(`exported ${countOf(count, "plant")} in ${formatSeconds(seconds)}\n`);
}

interface Form {
  readonly head: string;
  readonly between: string;
  readonly format: (plants: readonly Plant[]) => string;
  readonly tail: string;
}

const forms: Readonly<Record<FileFormat["kind"], Form>> = {
  ndjson: { head: "", format: formatNdjson, between: "", tail: "" },
  json: {
    head: "[",
    format: (plants) => plants.map((plant) => `\n${formatStoredPlant(plant)}`).join(","),
    between: ",",
    tail: "\n]\n",
  },
  csv: { head: CSV_HEAD, format: formatCsv, between: "", tail: "" },
};
