/** plantstore export: the whole (filtered) store, from the store itself or a running service, in one file. */

import type { Config } from "../config.ts";
import type { PlantQuery } from "../domain/page.ts";
import { formatStoredPlant, type Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import { findFormat, type FormatName } from "./file-format.ts";
import { Interrupted, untilInterrupted } from "./interrupt.ts";
import { openFileOutput, openStandardOutput, type Output, ReaderGone } from "./output.ts";
import { Progress } from "./progress.ts";
import { formatCount, formatSeconds } from "./quantity.ts";
import { parseRemote } from "./remote.ts";
import { requireOutsideStore } from "./same-file.ts";
import { requireStore, withStore } from "./with-store.ts";

const PAGE_LENGTH = 1_000;

export interface ExportOptions {
  readonly format?: FormatName;
  readonly tag?: string;
  readonly name?: string;
  readonly output?: string;
  readonly force?: boolean;
  readonly url?: string;
  readonly databaseUrl?: string;
  readonly quiet?: boolean;
}

export async function exportPlants(config: Config, options: ExportOptions): Promise<void> {
  const remote = parseRemote(options, config);
  const form = forms[options.format ?? findFormat(options.output ?? "") ?? "ndjson"];
  if (remote === undefined) {
    await requireStore(config);
    if (options.output !== undefined)
      requireOutsideStore("--output", options.output, config.databaseUrl);
  }
  const startedAtMs = performance.now();
  let count = 0;
  const counted = async function* (pages: AsyncIterable<readonly Plant[]>) {
    for await (const page of pages) {
      yield page;
      count += page.length;
    }
  };

  const run = async (signal: AbortSignal): Promise<void> => {
    const output = openOutput(options, signal);
    // Where the plants themselves pass by on the terminal, they are progress enough.
    const isShown = options.output !== undefined || !process.stdout.isTTY;
    const progress = new Progress(() => ({ plants: count }), {
      isQuiet: options.quiet === true || !isShown,
    });
    try {
      await (remote === undefined
        ? withStore(config, (store) =>
            write(counted(walkStore(store, options, signal)), form, output),
          )
        : write(counted(remote.exportPlants(options, signal)), form, output));
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
  const summary = `exported ${formatCount(count)} plants in ${formatSeconds(seconds)}\n`;
  if (process.stderr.isTTY && options.quiet !== true) process.stderr.write(summary);
}

function openOutput({ output, force }: ExportOptions, signal: AbortSignal): Output {
  if (output === undefined) return openStandardOutput(signal);
  return openFileOutput(output, { force: force === true }, signal);
}

async function* walkStore(
  store: Store,
  { tag, name }: ExportOptions,
  signal: AbortSignal,
): AsyncGenerator<readonly Plant[]> {
  const query: Omit<PlantQuery, "after"> = { limit: PAGE_LENGTH, tag, name, order: "asc" };
  let after: bigint | undefined;
  do {
    signal.throwIfAborted();
    const { plants, next } = await store.listPlants({ ...query, after });
    if (plants.length > 0) yield plants;
    after = next;
  } while (after !== undefined);
}

interface Form {
  readonly head: string;
  readonly between: string;
  readonly format: (plants: readonly Plant[]) => string;
  readonly tail: string;
}

const forms: Readonly<Record<FormatName, Form>> = {
  ndjson: {
    head: "",
    format: (plants) => plants.map((plant) => `${formatStoredPlant(plant)}\n`).join(""),
    between: "",
    tail: "",
  },
  json: {
    head: "[",
    format: (plants) => plants.map((plant) => `\n${formatStoredPlant(plant)}`).join(","),
    between: ",",
    tail: "\n]\n",
  },
  csv: { head: CSV_HEAD, format: formatCsv, between: "", tail: "" },
};

async function write(
  pages: AsyncIterable<readonly Plant[]>,
  form: Form,
  output: Output,
): Promise<void> {
  let before = form.head;
  for await (const plants of pages) {
    await output.write(before + form.format(plants));
    before = form.between;
  }
  await output.write(before === form.head ? form.head + form.tail : form.tail);
}
