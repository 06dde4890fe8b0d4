/** plantstore changes: the journal, from the store or a running service. */

import type { Change } from "../../client/changes.ts";
import type { Config } from "../config.ts";
import { STANDARD_OUTPUT, writeDescriptor } from "../descriptor.ts";
import { findChangeNumber } from "../domain/change.ts";
import { formatJson } from "../domain/plant.ts";
import { type Flags, plantsOf, untilInterrupted, UsageError, withTarget } from "./command.ts";
import { describeRetry, printError } from "./terminal.ts";

const FOLLOW_MS = 500;

const onRetry = (error: Error, waitMs: number): void => printError(describeRetry(error, waitMs));

export async function printChanges(config: Config, flags: Flags): Promise<void> {
  let after = parseChangeNumber("--after", flags.after);
  const format = flags.json ? (change: Change) => formatJson(change) : formatForPeople;
  await untilInterrupted((signal) =>
    withTarget(config, flags, async (target) => {
      for (;;) {
        const page = await plantsOf(target).listChangePage({ after }, { signal, onRetry });
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
export const quote = ({ name, tag }: NonNullable<Change["plant"]>): string =>
  JSON.stringify(name) + (tag === undefined ? "" : ` [${JSON.stringify(tag)}]`);

function formatForPeople({ seq, time, type, id, by, batch, plant, before }: Change): string {
  const facts = [
    plant && quote(plant),
    before && `was ${quote(before)}`,
    by && `by ${by}`,
    batch && `in ${JSON.stringify(batch)}`,
  ];
  return [seq, time, type.padEnd(8), id, ...facts.filter(Boolean)].join(" ");
}
