/** plantstore changes: the journal, from the store or a running service. */

import type { ChangePage as RemotePage, Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { type Change, type ChangePage, formatChange } from "../domain/change.ts";
import type { Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import {
  Interrupted,
  parseChangeNumber,
  retryBusy,
  type TargetOptions,
  untilInterrupted,
  withTarget,
} from "./command.ts";
import { openStandardOutput, ReaderGone } from "./files.ts";
import { describeRetry, printError } from "./terminal.ts";

export interface ChangesOptions extends TargetOptions {
  readonly after?: string;
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
    async (after, signal) =>
      toPage(await client.listChangePage({ after }, { signal, onRetry })),
  ofStore:
    (store: Store): ReadPage =>
    (after, signal) => {
      const query = { after, limit: PAGE_LENGTH, id: undefined, types: undefined };
      return retryBusy(store, () => store.readChanges(query), { signal, onRetry });
    },
};

export async function printChanges(config: Config, options: ChangesOptions): Promise<void> {
  const expected = `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`;
  const after = parseChangeNumber("--after", options.after ?? "0", expected);
  const format = options.json === true ? formatChange : formatForPeople;

  const print = async (read: ReadPage, signal: AbortSignal): Promise<void> => {
    const output = openStandardOutput(signal);
    for (let last = after; ;) {
      const page = await read(last, signal);
      await output.write(page.changes.map((change) => `${format(change)}\n`).join(""));
      ({ last } = page);
      if (!page.hasMore && options.follow !== true) return;
      await Bun.sleep(page.hasMore ? 0 : FOLLOW_MS);
      signal.throwIfAborted();
    }
  };
  try {
    await untilInterrupted((signal) =>
      withTarget(config, options, readers, (read) => print(read, signal)),
    );
  } catch (error) {
    if (error instanceof ReaderGone) return;
    if (error instanceof Interrupted) process.exit(error.exitCode);
    throw error;
  }
}

const toPlant = (id: bigint, content: RemotePage["changes"][number]["plant"]): Plant | undefined =>
  content && { id, name: content.name, tag: content.tag };

function toPage({ changes, ...rest }: RemotePage): Page {
  return {
    ...rest,
    changes: changes.map(({ seq, time, type, id, by, plant, before }) => ({
      seq,
      atMs: Date.parse(time),
      type,
      id,
      by,
      plant: toPlant(id, plant),
      before: toPlant(id, before),
    })),
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
