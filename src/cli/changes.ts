/** plantstore changes and revert: the journal, in the store or a running service. Running a revert again continues it. */

import { type Change, findChanges } from "../../client/changes.ts";
import {
  type Client,
  type Reverted,
  type RevertPreview,
  type RevertRange,
  ServiceError,
} from "../../client/client.ts";
import type { Config } from "../config.ts";
import { STANDARD_OUTPUT, writeDescriptor } from "../descriptor.ts";
import { findChangeNumber, nameBatch, sayWriter } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { formatJson } from "../domain/json.ts";
import {
  openRange,
  parseRevert,
  previewRange,
  readTouched,
  revertBlock,
  startCounts,
} from "../domain/revert.ts";
import type { Store } from "../domain/store.ts";
import {
  type Flags,
  requireFlags,
  untilInterrupted,
  UsageError,
  splitFlag,
  type Whole,
  withTarget,
} from "./command.ts";
import { describeCounts, edit, requireConsent } from "./edit.ts";
import { fieldsOf, parseFields } from "./fields.ts";
import { PAGE_LENGTH, retryBusy, toWorking, writeBlocks } from "./store-client.ts";
import { countOf, printError, printRetry, quotePlant } from "./terminal.ts";

const FOLLOW_MS = 500;

const changesOf = (store: Store): Pick<Client, "listChangePage"> => ({
  listChangePage: async (query, options) => {
    const read = () => store.readChanges({ after: query?.after ?? 0, limit: PAGE_LENGTH });
    const page = await retryBusy(read, options);
    // Serialized and parsed, as a client of a service gets them.
    const json = `[${page.changes.map((change) => change.json).join(",")}]`;
    return { ...page, changes: findChanges(json) ?? [] };
  },
});

const revertsOf = (store: Store, config: Config): Pick<Client, "previewRevert" | "revert"> => ({
  previewRevert: async (range, options) => {
    const opened = await openRange(store, parseRevert({ ...range, dryRun: true }), options?.signal);
    return previewRange(store, opened, { ...config, ...toWorking(options) });
  },

  revert: async (range, options) => {
    const counts = startCounts();
    const opened = await openRange(store, parseRevert(range), options?.signal);
    return writeBlocks(
      counts,
      (working) => readTouched(store, opened, { ...config, ...working }),
      (block, writer, working) =>
        revertBlock(store, block, writer, counts, { ...config, ...working }),
      options,
    );
  },
});

export async function printChanges(config: Config, flags: Flags<never, "follow">): Promise<void> {
  let { after } = parseFields(flags, fieldsOf.changes);
  const format = flags.json ? (change: Change) => formatJson(change) : formatForPeople;
  await untilInterrupted((signal) =>
    withTarget(config, flags, changesOf, async (target) => {
      for (;;) {
        const page = await target.listChangePage({ after }, { signal, onRetry: printRetry });
        const text = page.changes.map((change) => `${format(change)}\n`).join("");
        await writeDescriptor(STANDARD_OUTPUT, text, signal);
        after = page.last;
        if (!page.hasMore && !flags.follow) return;
        await Bun.sleep(page.hasMore ? 0 : FOLLOW_MS);
        signal.throwIfAborted();
      }
    }),
  );
}

function formatForPeople({ seq, time, type, id, plant, before, ...more }: Change): string {
  const facts = [
    plant && quotePlant(plant),
    before && `was ${quotePlant(before)}`,
    ...sayWriter(more),
  ];
  return [seq, time, type.padEnd(8), id, ...facts.filter(Boolean)].join(" ");
}

type RevertFlags = Flags<"by" | "from" | "to" | "types">;

export async function revert(config: Config, flags: RevertFlags): Promise<void> {
  const { by, batch } = flags;
  const types = splitFlag(flags.types) as RevertRange["types"];
  const range: Whole<RevertRange> = {
    from: toMoment(flags.from),
    to: toMoment(flags.to),
    by,
    batch,
    types,
  };
  if (Object.values(range).every((part) => part === undefined))
    throw new UsageError("give at least one of --from, --to, --by, --batch and --types");
  requireFlags(() => parseRevert(range), { types: flags.types });
  requireConsent(flags);
  const name = nameBatch("revert");
  let counts = startCounts();
  const counted = { batch: name, counts: () => counts, canUndo: false };
  await edit({ flags, what: "revert", did: "undone", ...counted }, ({ signal, consent, follow }) =>
    withTarget(config, flags, revertsOf, async (target) => {
      const read = () => target.previewRevert(range, { signal });
      // Only the preview is limited: a larger revert continues without one.
      const preview = flags.dryRun
        ? await read()
        : flags.yes
          ? undefined
          : await read().catch(allowLarge);
      if (!(await consent(preview && describePreview(preview), "Undo them?"))) return;
      await follow(
        preview?.plants,
        (options) => target.revert(range, options),
        (now: Reverted) => (counts = now),
      );
    }),
  );
}

/** Digits are the number of a change; anything else is a time. */
const toMoment = (text: string | undefined): number | string | undefined =>
  text && (findChangeNumber(text) ?? text);

function allowLarge(error: unknown): undefined {
  const isKnown = error instanceof Refusal || error instanceof ServiceError;
  if (!isKnown || error.reason !== "range_too_large") throw error;
  printError("No preview: the changes concern too many plants.");
}

function describePreview(preview: RevertPreview) {
  const { plants, revertible, unchanged, changedSince, sample } = preview;
  const line = { "to undo": revertible, unchanged, changedSince };
  return {
    sample: sample.map(({ before: after, ...plant }) => ({ ...plant, after })),
    more: revertible - sample.length,
    summary: `${countOf(plants, "plant")}: ${describeCounts(line)}`,
    facts: preview,
  };
}
