/** plantstore change and remove: all plants that match a filter, in the store or a running service. */

import { isatty } from "node:tty";
import {
  type Bulk as Done,
  type BulkPreview,
  type RevertLeft,
  ServiceError,
} from "../../client/client.ts";
import type { Config } from "../config.ts";
import { STANDARD_INPUT } from "../descriptor.ts";
import {
  type Bulk,
  changeBlock,
  idsRule,
  previewBulk,
  readMatching,
  startBulkCounts,
} from "../domain/bulk.ts";
import { filterNames, narrows } from "../domain/filter.ts";
import { formatJson } from "../domain/json.ts";
import { type Patch, parsePatch } from "../domain/write.ts";
import { confirm, listLeft, show } from "./changes.ts";
import {
  CommandError,
  failHalfway,
  type Flags,
  refusePairs,
  retryBusy,
  type Target,
  timeUntilInterrupted,
  toRefused,
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

type Selected = Pick<Bulk, "filter" | "except">;

function parseSelected(flags: Flags): Selected {
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
  return { filter, except: ids };
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
        const worker = workerOf(target, { ...selected, patch }, signal);
        const preview = yes ? undefined : await worker.preview();
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
          counts = await worker.run(batch, {
            onLeft: left.onLeft,
            onProgress: (now) => (counts = now),
            onRetry: progress.onRetry,
          });
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

interface Hooks {
  readonly onLeft: (plant: RevertLeft) => void;
  readonly onProgress: (counts: Counts) => void;
  readonly onRetry: (error: Error, waitMs: number) => void;
}

/** One interface for a service and for a local store. */
function workerOf(target: Target, bulk: Bulk, signal: AbortSignal) {
  const { filter, except, patch } = bulk;
  const { client } = target;
  const wanted = { ...filter, except, all: narrows(filter) ? undefined : true };
  if (client !== undefined)
    return {
      preview: () =>
        patch === undefined
          ? client.previewRemoval(wanted, { signal })
          : client.previewPatch(wanted, patch, { signal }),
      run: async (batch: string, hooks: Hooks): Promise<Counts> => {
        const options = { ...hooks, signal, batch };
        const { batch: _, ...counts }: Done = await (patch === undefined
          ? client.removeMatching(wanted, options)
          : client.patchMatching(wanted, patch, options));
        return counts;
      },
    };
  const { store } = target;
  const optionsWith = (onRetry?: Hooks["onRetry"]) => ({
    signal,
    retry: <Result>(attempt: () => Promise<Result>) =>
      retryBusy(
        async () => {
          // SQLite reads are synchronous and would starve Ctrl-C and the progress line.
          await new Promise(setImmediate);
          signal.throwIfAborted();
          return attempt();
        },
        { signal, onRetry },
      ),
  });
  return {
    preview: (): Promise<BulkPreview> => previewBulk(store, bulk, optionsWith()),
    run: async (batch: string, { onLeft, onProgress, onRetry }: Hooks): Promise<Counts> => {
      const counts = startBulkCounts();
      const options = optionsWith(onRetry);
      for await (const block of readMatching(store, bulk, options)) {
        const left = await changeBlock(store, block, bulk, { batch }, counts, options);
        for (const { id, refusal } of left) onLeft({ id, ...toRefused(refusal) });
        onProgress(counts);
      }
      return counts;
    },
  };
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
