/** plantstore changes: the journal, from the store or a running service. */

import type { Change as RemoteChange, Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { type Change, type ChangePage, formatChange } from "../domain/change.ts";
import type { Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import {
  parseChangeNumber,
  retryBusy,
  type TargetOptions,
  untilInterrupted,
  withTarget,
} from "./command.ts";
import { writeStandardOutput } from "./files.ts";
import { describeRetry, printError } from "./terminal.ts";

interface ChangesOptions extends TargetOptions {
  readonly after: string;
  readonly follow?: boolean;
  readonly json?: boolean;
}

const PAGE_LENGTH = 1_000;
const FOLLOW_MS = 500;

const onRetry = (error: Error, waitMs: number): void => printError(describeRetry(error, waitMs));

type Page = Pick<ChangePage, "changes" | "last" | "hasMore">;
type ReadPage = (after: number, signal: AbortSignal) => Promise<Page>;

const readers = {
  ofService:
    (client: Client): ReadPage =>
    async (after, signal) => {
      const page = await client.listChangePage({ after }, { signal, onRetry });
      return { ...page, changes: page.changes.map(toChange) };
    },
  ofStore:
    (store: Store): ReadPage =>
    (after, signal) => {
      const query = { after, limit: PAGE_LENGTH, id: undefined, types: undefined };
      return retryBusy(store, () => store.readChanges(query), { signal, onRetry });
    },
};

export async function printChanges(config: Config, options: ChangesOptions): Promise<void> {
  const expected = `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`;
  const after = parseChangeNumber("--after", options.after, expected);
  const format = options.json ? formatChange : formatForPeople;

  const print = async (read: ReadPage, signal: AbortSignal): Promise<void> => {
    for (let last = after; ;) {
      const page = await read(last, signal);
      const text = page.changes.map((change) => `${format(change)}\n`).join("");
      await writeStandardOutput(text, signal);
      ({ last } = page);
      if (!page.hasMore && !options.follow) return;
      await Bun.sleep(page.hasMore ? 0 : FOLLOW_MS);
      signal.throwIfAborted();
    }
  };
  await untilInterrupted((signal) =>
    withTarget(config, options, readers, (read) => print(read, signal)),
  );
}

function toChange({ time, plant, before, ...change }: RemoteChange): Change {
  const toPlant = (content: RemoteChange["plant"]): Plant | undefined =>
    content && { id: change.id, name: content.name, tag: content.tag };
  return {
    ...change,
    by: change.by,
    atMs: Date.parse(time),
    plant: toPlant(plant),
    before: toPlant(before),
  };
}

/** In quotes, because a name may hold what a terminal takes for a command. */
function describePlant({ name, tag }: Plant): string {
  return JSON.stringify(name) + (tag === undefined ? "" : ` [${JSON.stringify(tag)}]`);
}

function formatForPeople({ seq, atMs, type, id, by, plant, before }: Change): string {
  const was = plant === undefined ? "" : " was ";
  return [
    `${seq} ${new Date(atMs).toISOString()} ${type.padEnd(8)} ${id} `,
    plant === undefined ? "" : describePlant(plant),
    before === undefined ? "" : was + describePlant(before),
    by === undefined ? "" : ` by ${JSON.stringify(by)}`,
  ].join("");
}
