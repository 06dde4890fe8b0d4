/** plantstore change and remove: all plants that match a filter, in the store or a running service. */

import { isatty } from "node:tty";
import { type BulkFilter, type BulkPreview, ServiceError } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { STANDARD_INPUT } from "../descriptor.ts";
import { idsRule, startBulkCounts } from "../domain/bulk.ts";
import { filterNames, narrows } from "../domain/filter.ts";
import { formatJson } from "../domain/json.ts";
import { type Patch, parsePatch } from "../domain/write.ts";
import { confirm, listLeft, show } from "./changes.ts";
import {
  CommandError,
  failHalfway,
  type Flags,
  refusePairs,
  timeUntilInterrupted,
  UsageError,
  withTarget,
} from "./command.ts";
import { parseFilter } from "./export.ts";
import { adviseRevert, describeCounts, parseBatch } from "./import.ts";
import { formatCount, printLine, showLine, showProgress } from "./terminal.ts";

type Verb = "change" | "remove";

export const changeMatching = (config: Config, flags: Flags): Promise<void> =>
  run("change", config, flags, parsePatchFlags(flags));

export const removeMatching = (config: Config, flags: Flags): Promise<void> =>
  run("remove", config, flags, undefined);

/** The flags of the filter have the names of the members, so those of the patch have others. */
function parsePatchFlags(flags: Flags): Patch {
  const { setName, setTag, removeTag } = flags;
  refusePairs(flags, [["--set-tag", "--remove-tag", "give one of them"]]);
  const patch = {
    ...(setName === undefined ? {} : { name: setName }),
    ...(setTag === undefined ? {} : { tag: setTag }),
    ...(removeTag ? { tag: null } : {}),
  };
  if (Object.keys(patch).length === 0)
    throw new UsageError("give --set-name, --set-tag or --remove-tag: what to change");
  return parsePatch(patch);
}

function parseSelected(flags: Flags): BulkFilter {
  const filter = parseFilter(flags);
  const { all: isAll = false, except } = flags;
  if (narrows(filter) && isAll) throw new UsageError("--all: expected no filter with it");
  if (!narrows(filter) && !isAll)
    throw new UsageError(
      `give a filter that not every plant matches: ${filterNames.map((name) => `--${name}`).join(", ")}; or --all`,
    );
  const ids = except === undefined ? undefined : idsRule.find(except);
  if (except !== undefined && ids === undefined)
    throw new UsageError(`--except: expected ${idsRule.expected}, got ${JSON.stringify(except)}`);
  return { ...filter, except: ids, all: flags.all };
}

async function run(
  verb: Verb,
  config: Config,
  flags: Flags,
  patch: Patch | undefined,
): Promise<void> {
  const { dryRun, yes, json } = flags;
  const selected = parseSelected(flags);
  refusePairs(flags, [
    ["--dry-run", "--yes", "a dry run does not ask"],
    ["--dry-run", "--batch", "a dry run writes nothing"],
  ]);
  if (!dryRun && !yes && !isatty(STANDARD_INPUT))
    throw new UsageError("--yes is required without a terminal; --dry-run shows the effect");
  const batch = parseBatch(flags.batch, verb);
  let counts = startBulkCounts();
  let isBegun = false;
  const { error } = await timeUntilInterrupted((signal) =>
    withTarget(
      config,
      flags,
      async (target) => {
        const preview = yes
          ? undefined
          : await (patch === undefined
              ? target.previewRemoval(selected, { signal })
              : target.previewPatch(selected, patch, { signal }));
        if (preview !== undefined)
          await printPreview(preview, dryRun ? printLine : showLine, flags);
        if (dryRun) return;
        const question = verb === "change" ? "Change them?" : "Remove them?";
        if (!yes && !(await confirm(question, signal)))
          throw new CommandError("Nothing was changed.");
        isBegun = true;
        const left = listLeft();
        {
          using progress = showProgress(() => {
            const { plants, changedSince, refused } = counts;
            const part = preview?.exact ? preview.plants && plants / preview.plants : undefined;
            return { plants, refused: changedSince + refused, part };
          });
          const options = {
            signal,
            batch,
            onLeft: left.onLeft,
            onProgress: (now: Counts) => (counts = now),
            onRetry: progress.onRetry,
          };
          counts = await (patch === undefined
            ? target.removeMatching(selected, options)
            : target.patchMatching(selected, patch, options));
        }
        left.finish();
      },
      { batch: flags.batch },
    ),
  );
  const done = changedIn(counts);
  const isRefused = error instanceof ServiceError && !error.isTransient && done === 0;
  if (error instanceof Error && (!isBegun || isRefused)) throw error;
  if (!isBegun) return;
  const what = verb === "change" ? verb : "removal";
  const finished = error === undefined;
  if (json) await printLine(JSON.stringify({ finished, ...counts, batch }));
  else if (finished) await printLine(summarize(verb, counts, batch));
  // A service may have done more than it has told.
  if (!json && (done > 0 || !finished)) adviseRevert(what, batch);
  const known = `${formatCount(done)} plants are known to be ${verb}d.`;
  if (!finished) failHalfway(what, error, `${known} Running it again continues it.`);
}

type Counts = ReturnType<typeof startBulkCounts>;

const changedIn = ({ replaced, removed }: Counts): number => replaced + removed;

function summarize(verb: Verb, counts: Counts, batch: string): string {
  const { unchanged, changedSince, refused } = counts;
  const line = describeCounts({
    [`${verb}d`]: changedIn(counts),
    unchanged,
    changedSince,
    refused,
  });
  return `${line}; batch ${JSON.stringify(batch)}`;
}

async function printPreview(
  preview: BulkPreview,
  print: typeof printLine,
  { dryRun, json }: Flags,
): Promise<void> {
  if (dryRun && json) return print(formatJson(preview));
  const { plants, exact, sample } = preview;
  for (const { id, now, after } of sample) await print(`${id}: ${show(now)} -> ${show(after)}`);
  const more = exact ? "" : " or more";
  await print(
    `${formatCount(plants)}${more} ${plants === 1 && exact ? "plant matches" : "plants match"}`,
  );
}
