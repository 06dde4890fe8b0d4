/** plantstore export: all plants that match, from the store or a running service, as one file. */

import type { Config } from "../config.ts";
import { formatNdjson, formatStoredPlant, type Plant } from "../domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import type { FileFormat } from "../format/plants.ts";
import {
  plantsOf,
  type TargetOptions,
  untilInterrupted,
  UsageError,
  withTarget,
} from "./command.ts";
import { openFileOutput, requireOutsideStore, writeStandardOutput } from "./files.ts";
import { findFormat } from "./import.ts";
import { countOf, formatSeconds, Progress } from "./terminal.ts";

interface ExportOptions extends TargetOptions {
  readonly format?: keyof typeof forms;
  readonly tag?: string;
  readonly name?: string;
  readonly output?: string;
  readonly force?: boolean;
  readonly quiet?: boolean;
}

export async function exportPlants(config: Config, options: ExportOptions): Promise<void> {
  const { url, output: path = "-", force = false, quiet = false } = options;
  const { format = findFormat(path) ?? "ndjson" } = options;
  if (format === "xlsx")
    throw new UsageError(`--output: ${path}: the console exports workbooks; choose a .csv file`);
  const form = forms[format];
  if (url === undefined && path !== "-") requireOutsideStore("--output", path, config.databaseUrl);
  const startedAtMs = performance.now();
  let count = 0;

  await untilInterrupted((signal) =>
    withTarget(config, options, plantsOf, async (target) => {
      using file = path === "-" ? undefined : openFileOutput(path, force, signal);
      const write = file?.write ?? ((text: string) => writeStandardOutput(text, signal));
      // Plants that scroll by on the terminal are progress enough.
      const isShown = path !== "-" || !process.stdout.isTTY;
      using progress = new Progress(quiet || !isShown, () => ({ plants: count }));
      const blocks = target.exportBlocks(options, { signal, onRetry: progress.onRetry });
      for await (const plants of blocks) {
        await write((count === 0 ? form.head : form.between) + form.format(plants));
        count += plants.length;
      }
      await write(count === 0 ? form.head + form.tail : form.tail);
      file?.finish();
    }),
  );
  const seconds = (performance.now() - startedAtMs) / 1000;
  if (process.stderr.isTTY && !quiet)
    process.stderr.write(`exported ${countOf(count, "plant")} in ${formatSeconds(seconds)}\n`);
}

interface Form {
  readonly head: string;
  readonly between: string;
  readonly format: (plants: readonly Plant[]) => string;
  readonly tail: string;
}

const forms: Readonly<Record<Exclude<FileFormat["kind"], "xlsx">, Form>> = {
  ndjson: { head: "", format: formatNdjson, between: "", tail: "" },
  json: {
    head: "[",
    format: (plants) => plants.map((plant) => `\n${formatStoredPlant(plant)}`).join(","),
    between: ",",
    tail: "\n]\n",
  },
  csv: { head: CSV_HEAD, format: formatCsv, between: "", tail: "" },
};
