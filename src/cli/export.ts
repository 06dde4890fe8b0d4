/** plantstore export: writes all matching plants, from the store or a running service, to one file. */

import type { RetryOptions, SortedQuery } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { formatNdjson, formatStoredPlant, type ListedPlant } from "../domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import type { FileFormat } from "../format/plants.ts";
import { type Flags, untilInterrupted, UsageError, withTarget } from "./command.ts";
import { fieldsOf, parseFields } from "./fields.ts";
import { openOutput } from "./files.ts";
import { findFormat } from "./plant-file.ts";
import { type Plants, plantsOf } from "./store-client.ts";
import { countOf, formatSeconds, showProgress } from "./terminal.ts";

type ExportFlags = Flags<"output"> & { readonly format?: FileFormat["kind"] };

export async function exportPlants(config: Config, flags: ExportFlags): Promise<void> {
  const { output: path = "-" } = flags;
  const { format = findFormat(path) ?? "ndjson" } = flags;
  if (format === "xlsx")
    throw new UsageError(`--output: ${path}: the console exports workbooks; choose a .csv file`);
  const form = forms[format];
  const query = parseFields(flags, fieldsOf.export);
  const startedAtMs = performance.now();
  let count = 0;

  await untilInterrupted((signal) =>
    withTarget(config, flags, plantsOf, async (target) => {
      using output = openOutput("--output", path, flags, config, signal);
      // Plants that scroll by on the terminal are progress enough.
      const isShown = path !== "-" || !process.stdout.isTTY;
      using progress = showProgress(() => ({ plants: count }), isShown);
      const retrying = { signal, onRetry: progress.onRetry };
      const blocks = readBlocks(target, query, retrying);
      for await (const plants of blocks) {
        await output.write((count === 0 ? form.head : form.between) + form.format(plants));
        count += plants.length;
      }
      await output.write(count === 0 ? form.head + form.tail : form.tail);
      output.finish();
    }),
  );
  const time = formatSeconds((performance.now() - startedAtMs) / 1000);
  if (process.stderr.isTTY)
    process.stderr.write(`exported ${countOf(count, "plant")} in ${time}\n`);
}

/** A service sends sorted plants in pages of 1,000: a stream could not resume where it was cut off. */
async function* readBlocks(
  target: Plants,
  { sort, ...filter }: ReturnType<typeof parseFields<(typeof fieldsOf)["export"]>>,
  retrying: RetryOptions,
): AsyncGenerator<readonly ListedPlant[]> {
  if (sort === undefined || sort === "id" || sort === "-id") {
    const order = sort === "-id" ? "desc" : undefined;
    return yield* target.exportBlocks({ ...filter, order }, retrying);
  }
  let cursor: string | undefined;
  do {
    const query = { ...filter, sort: sort as SortedQuery["sort"], cursor, limit: 1_000 };
    const page = await target.listSortedPage(query, retrying);
    if (page.plants.length > 0) yield page.plants;
    cursor = page.cursor;
  } while (cursor !== undefined);
}

const forms = {
  ndjson: { head: "", format: formatNdjson, between: "", tail: "" },
  json: {
    head: "[",
    format: (plants: readonly ListedPlant[]) =>
      plants.map((plant) => `\n${formatStoredPlant(plant)}`).join(","),
    between: ",",
    tail: "\n]\n",
  },
  csv: { head: CSV_HEAD, format: formatCsv, between: "", tail: "" },
};
