/** plantstore changes and revert: the journal, in the store or a running service. Running a revert again continues it. */

import { isatty } from "node:tty";
import type { Change } from "../../client/changes.ts";
import {
  type Content,
  type RevertLeft,
  type RevertPreview,
  type RevertRange,
  ServiceError,
} from "../../client/client.ts";
import type { Config } from "../config.ts";
import { readDescriptor, STANDARD_INPUT, STANDARD_OUTPUT, writeDescriptor } from "../descriptor.ts";
import { findChangeNumber, sayWriter } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { formatJson } from "../domain/json.ts";
import { parseRevert } from "../domain/revert.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  type Flags,
  requireFlags,
  splitList,
  untilInterrupted,
  UsageError,
  withTarget,
} from "./command.ts";
import { countOf, printError, printLine, printRetry, showLine } from "./terminal.ts";

const FOLLOW_MS = 500;

export async function printChanges(config: Config, flags: Flags): Promise<void> {
  let after = parseChangeNumber("--after", flags.after);
  const format = flags.json ? (change: Change) => formatJson(change) : formatForPeople;
  await untilInterrupted((signal) =>
    withTarget(config, flags, async (target) => {
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

export function parseChangeNumber(flag: string, text = "0"): number {
  const number = findChangeNumber(text);
  if (number !== undefined) return number;
  throw new UsageError(`${flag}: ${JSON.stringify(text)} is not the number of a change`);
}

/** Quoted, because a name may contain terminal escape sequences. */
const quote = ({ name, tag }: NonNullable<Change["plant"]>): string =>
  JSON.stringify(name) + (tag === undefined ? "" : ` [${JSON.stringify(tag)}]`);

function formatForPeople({ seq, time, type, id, plant, before, ...more }: Change): string {
  const facts = [plant && quote(plant), before && `was ${quote(before)}`, ...sayWriter(more)];
  return [seq, time, type.padEnd(8), id, ...facts.filter(Boolean)].join(" ");
}

/** Prints the first plants that were left alone, and how many more there are. */
export function listLeft() {
  const shownMax = 10;
  let count = 0;
  return {
    onLeft: ({ id, message }: RevertLeft): void => {
      if (++count <= shownMax) printError(`plant ${id}: ${message}`);
    },
    finish: (): void => {
      if (count > shownMax) printError(`… and ${count - shownMax} more`);
      if (count > 0) process.exitCode = EXIT_DIFFERENT;
    },
  };
}

export async function revert(config: Config, flags: Flags): Promise<void> {
  const { by, batch } = flags;
  const types = splitList(flags.types) as RevertRange["types"];
  const range = { from: toMoment(flags.from), to: toMoment(flags.to), by, batch, types };
  if (Object.values(range).every((part) => part === undefined))
    throw new UsageError("give at least one of --from, --to, --by, --batch and --types");
  requireFlags(() => parseRevert(range), flags.types);
  if (!flags.dryRun && !flags.yes && !isatty(STANDARD_INPUT))
    throw new UsageError("--yes is required without a terminal; --dry-run shows the effect");
  await untilInterrupted((signal) =>
    withTarget(config, flags, async (target) => {
      if (flags.dryRun)
        return printPreview(await target.previewRevert(range, { signal }), printLine, flags.json);
      if (!flags.yes) {
        const preview = await target.previewRevert(range, { signal }).catch(allowLarge);
        if (preview !== undefined) await printPreview(preview, showLine);
        if (!(await confirm("Undo them?", signal))) throw new CommandError("Nothing was changed.");
      }
      const left = listLeft();
      const reverted = await target.revert(range, { signal, onLeft: left.onLeft });
      left.finish();
      const { reverted: done, unchanged, changedSince, refused, batch: name } = reverted;
      await printLine(
        flags.json
          ? JSON.stringify(reverted)
          : `undone ${done}, unchanged ${unchanged}, changed since ${changedSince}, refused ${refused}; batch ${JSON.stringify(name)}`,
      );
    }),
  );
}

/** Digits are the number of a change; anything else is a time. */
const toMoment = (text: string | undefined): number | string | undefined =>
  text && (findChangeNumber(text) ?? text);

/** Only the preview is limited: a larger revert continues without one. */
function allowLarge(error: unknown): undefined {
  const isKnown = error instanceof Refusal || error instanceof ServiceError;
  if (!isKnown || error.reason !== "range_too_large") throw error;
  printError("No preview: the changes concern too many plants.");
}

export const show = (plant: Content | undefined): string =>
  plant === undefined ? "none" : quote(plant);

async function printPreview(
  preview: RevertPreview,
  print: typeof printLine,
  isJson = false,
): Promise<void> {
  if (isJson) return print(formatJson(preview));
  const { plants, revertible, unchanged, changedSince, sample } = preview;
  for (const { id, now, before } of sample) await print(`${id}: ${show(now)} -> ${show(before)}`);
  if (sample.length < revertible) await print(`… and ${revertible - sample.length} more`);
  await print(
    `${countOf(plants, "plant")}: to undo ${revertible}, unchanged ${unchanged}, changed since ${changedSince}`,
  );
}

/** False without an answer. */
export async function confirm(question: string, signal: AbortSignal): Promise<boolean> {
  process.stderr.write(`${question} [y/N] `);
  for await (const chunk of readDescriptor(STANDARD_INPUT, signal))
    return /^y(es)?\s*$/i.test(new TextDecoder().decode(chunk));
  return false;
}
