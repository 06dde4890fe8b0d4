/** plantstore changes: the journal, from the store or a running service. */

import { type Change, findChanges } from "../../client/changes.ts";
import type { ChangePage, Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { formatChange } from "../domain/change.ts";
import type { Store } from "../domain/store.ts";
import {
  type Flags,
  parseChangeNumber,
  retryBusy,
  untilInterrupted,
  withTarget,
} from "./command.ts";
import { writeStandardOutput } from "./files.ts";
import { describeRetry, formatJson, printError } from "./terminal.ts";

const PAGE_LENGTH = 1_000;
const FOLLOW_MS = 500;

const onRetry = (error: Error, waitMs: number): void => printError(describeRetry(error, waitMs));

type ReadPage = (after: number, signal: AbortSignal) => Promise<ChangePage>;

const readers = {
  ofService:
    (client: Client): ReadPage =>
    (after, signal) =>
      client.listChangePage({ after }, { signal, onRetry }),
  ofStore:
    (store: Store): ReadPage =>
    async (after, signal) => {
      const query = { after, limit: PAGE_LENGTH, id: undefined, types: undefined };
      const read = () => store.readChanges(query);
      const page = await retryBusy(store, read, { signal, onRetry });
      // As a service would send them.
      const json = `[${page.changes.map(formatChange).join(",")}]`;
      return { ...page, changes: findChanges(json) ?? [] };
    },
};

export async function printChanges(config: Config, flags: Flags): Promise<void> {
  const expected = `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`;
  const after = parseChangeNumber("--after", flags.after ?? "0", expected);
  const format = flags.json ? (change: Change) => formatJson(change) : formatForPeople;

  const print = async (read: ReadPage, signal: AbortSignal): Promise<void> => {
    for (let last = after; ;) {
      const page = await read(last, signal);
      const text = page.changes.map((change) => `${format(change)}\n`).join("");
      await writeStandardOutput(text, signal);
      ({ last } = page);
      if (!page.hasMore && !flags.follow) return;
      await Bun.sleep(page.hasMore ? 0 : FOLLOW_MS);
      signal.throwIfAborted();
    }
  };
  await untilInterrupted((signal) =>
    withTarget(config, flags, readers, (read) => print(read, signal)),
  );
}

/** In quotes, because a name may hold what a terminal takes for a command. */
function describePlant({ name, tag }: NonNullable<Change["plant"]>): string {
  return JSON.stringify(name) + (tag === undefined ? "" : ` [${JSON.stringify(tag)}]`);
}

function formatForPeople({ seq, time, type, id, by, plant, before }: Change): string {
  const was = plant === undefined ? "" : " was ";
  return [
    `${seq} ${time} ${type.padEnd(8)} ${id} `,
    plant === undefined ? "" : describePlant(plant),
    before === undefined ? "" : was + describePlant(before),
    by === undefined ? "" : ` by ${JSON.stringify(by)}`,
  ].join("");
}
