/** plantstore change and remove: all plants that match a filter, in the store or a running service. */

import type { Bulk, BulkFilter, BulkPreview, Client, PlantPatch } from "../../client/client.ts";
import { type Config, toFlag } from "../config.ts";
import { changeBlock, previewBulk, readMatching, startBulkCounts } from "../domain/bulk.ts";
import { filterNames, narrows, pickFilter } from "../domain/filter.ts";
import type { Store } from "../domain/store.ts";
import { type Patch, parsePatch } from "../domain/write.ts";
import { type Flags, refusePairs, UsageError, withTarget } from "./command.ts";
import { dryRunPairs, edit, parseBatch, requireConsent } from "./edit.ts";
import { fieldsOf, parseFields } from "./fields.ts";
import { toWorking, writeBlocks } from "./store-client.ts";
import { formatCount } from "./terminal.ts";

type Target = Pick<Client, "patchMatching" | "previewPatch" | "previewRemoval" | "removeMatching">;

function bulkOf(store: Store, limits: Config): Target {
  const change = (
    bulk: ReturnType<typeof toBulk>,
    options: Parameters<Target["removeMatching"]>[1],
  ) => {
    const counts = startBulkCounts();
    return writeBlocks(
      counts,
      (working) => readMatching(store, bulk, working),
      (block, writer, working) => changeBlock(store, block, bulk, writer, counts, working),
      options,
    );
  };
  return {
    previewPatch: (filter, patch, options) =>
      previewBulk(store, toBulk(filter, patch), { limits, ...toWorking(options) }),
    previewRemoval: (filter, options) =>
      previewBulk(store, toBulk(filter), { limits, ...toWorking(options) }),
    patchMatching: (filter, patch, options) => change(toBulk(filter, patch), options),
    removeMatching: (filter, options) => change(toBulk(filter), options),
  };
}

const toBulk = (filter: BulkFilter, patch?: PlantPatch) => ({
  filter: pickFilter(filter),
  except: filter.except,
  patch: patch && parsePatch(patch),
});

type Selecting = Flags<never, "all">;
type Changing = Selecting & Flags<"setName" | "setTag", "removeTag">;

export const changeMatching = (config: Config, flags: Changing): Promise<void> =>
  run("change", config, flags, parsePatchFlags(flags));

export const removeMatching = (config: Config, flags: Selecting): Promise<void> =>
  run("remove", config, flags, undefined);

/** The flags of the filter have the names of the members, so those of the patch have others. */
function parsePatchFlags(flags: Changing): Patch {
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

function parseSelected(flags: Selecting): BulkFilter {
  const selected = { ...parseFields(flags, fieldsOf.bulk), all: flags.all };
  if (narrows(selected) && flags.all) throw new UsageError("--all: expected no filter with it");
  if (!narrows(selected) && !flags.all)
    throw new UsageError(
      `give a filter that not every plant matches: ${filterNames.map(toFlag).join(", ")}; or --all`,
    );
  return selected;
}

async function run(
  verb: "change" | "remove",
  config: Config,
  flags: Selecting,
  patch: Patch | undefined,
): Promise<void> {
  const selected = parseSelected(flags);
  refusePairs(flags, dryRunPairs);
  requireConsent(flags);
  const batch = parseBatch(flags.batch, verb);
  let counts = startBulkCounts();
  const what = verb === "change" ? verb : "removal";
  const work = { flags, what, did: `${verb}d`, batch, counts: () => counts };
  await edit(work, ({ signal, consent, follow }) =>
    withTarget(
      config,
      flags,
      bulkOf,
      async (target) => {
        const preview = flags.yes
          ? undefined
          : await (patch === undefined
              ? target.previewRemoval(selected, { signal })
              : target.previewPatch(selected, patch, { signal }));
        const question = verb === "change" ? "Change them?" : "Remove them?";
        if (!(await consent(preview && describePreview(preview), question))) return;
        await follow(
          preview?.exact ? preview.plants : undefined,
          (options) =>
            patch === undefined
              ? target.removeMatching(selected, options)
              : target.patchMatching(selected, patch, options),
          (now: Bulk) => (counts = now),
        );
      },
      { batch: flags.batch },
    ),
  );
}

function describePreview(preview: BulkPreview) {
  const { plants, exact, sample } = preview;
  const more = exact ? "" : " or more";
  const match = plants === 1 && exact ? "plant matches" : "plants match";
  return { sample, summary: `${formatCount(plants)}${more} ${match}`, facts: preview };
}
