/** plantstore copy: copies all plants, webhooks and tokens to another store, of any engine. Idempotent. */

import type { RetryOptions } from "../../client/client.ts";
import { readTokens } from "../auth/token.ts";
import { type Config, parseSetting, settings } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import { formatNdjson, type ListedPlant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import type { Webhook } from "../domain/webhook.ts";
import { parseStoreUrl } from "../store-url.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  failHalfway,
  findSchema,
  type Flags,
  timeUntilInterrupted,
  UsageError,
  withStore,
} from "./command.ts";
import { requireOutsideStore } from "./files.ts";
import { plantsOf, retryBusy } from "./store-client.ts";
import { countOf, formatCount, printError, printReport, showProgress } from "./terminal.ts";

type Sum = Awaited<ReturnType<typeof sumUp>>;

/** Correct at any time, even if the copy ends early. */
export const createReport = () => ({
  plants: { copied: 0, present: 0 },
  webhooks: undefined as { copied: number; present: number } | undefined,
  tokens: { copied: 0, present: 0 },
  verification: null as { readonly equal: boolean; readonly from: Sum; readonly to: Sum } | null,
});
export type Report = ReturnType<typeof createReport>;

export class StoresDiffer extends CommandError {
  override readonly exitCode = EXIT_DIFFERENT;
}

type CopyFlags = Flags<"from" | "to">;

export async function copyStore(
  flags: CopyFlags,
  resolveConfig: (databaseUrl: string | undefined) => Config,
): Promise<void> {
  const { from, to } = parseEnds(flags, resolveConfig);
  const { location, version, newest } = await findSchema(from);
  if (version === undefined) throw new CommandError(`There is no store at ${location}.`);
  if (version < newest)
    throw new CommandError(
      `${location} has schema ${version}, and a copy does not change its source. ` +
        `Run plantstore migrate on it first, which brings it to schema ${newest}.`,
    );
  const report = createReport();
  let ends: { from: string; to: string } | undefined;
  const { seconds, error } = await timeUntilInterrupted((signal) =>
    // The source first: if it cannot be opened, no target is created.
    withStore(from, (source) =>
      withStore(to, async (target) => {
        ends = { from: source.description.location, to: target.description.location };
        await copyPlants(source, target, report, { signal });
        await copyWebhooks(source, target, report);
        // Last: a refused copy must leave no working tokens in the target.
        await copyTokens(source, target, report.tokens);
      }),
    ),
  );
  if (ends === undefined) throw error;
  const { plants, webhooks, tokens, verification } = report;
  const finished = error === undefined;
  if (flags.json || finished)
    printReport(
      verification?.equal
        ? `Copied, and verified: both stores hold the same plants (SHA-256 ${verification.to.sha256}).`
        : "Copied. The target holds more plants than the source.",
      { ...ends, plants, webhooks, tokens, seconds },
      { isJson: flags.json, more: { event: "copied", finished, verification } },
    );
  if (webhooks?.copied)
    printError(
      `${countOf(webhooks.copied, "webhook")} ${webhooks.copied === 1 ? "is" : "are"} paused in the copy: plantstore webhook resume starts one when the old service is stopped.`,
    );
  if (!finished) {
    if (error instanceof StoresDiffer) throw error;
    const state = `${countOf(plants.copied, "plant")} copied, ${formatCount(plants.present)} already there.`;
    failHalfway("copy", error, `${state} Running the copy again continues it.`);
  }
  if (verification !== null && !verification.equal) {
    const extra = countOf(verification.to.count - verification.from.count, "plant");
    printError(`${ends.to} holds ${extra} that ${ends.from} does not. They were left alone.`);
    process.exitCode = EXIT_DIFFERENT;
  }
}

/** Copied webhooks are paused, because the source may still send. A name that the target has is skipped. */
export async function copyWebhooks(source: Store, target: Store, report: Report): Promise<void> {
  const webhooks = await retryBusy(() => source.listWebhooks());
  if (webhooks.length === 0) return;
  const tally = (report.webhooks = { copied: 0, present: 0 });
  const { newest: cursor } = await retryBusy(() => target.readChanges({ after: 0, limit: 0 }));
  const paused = "Copied from another store.";
  for (const webhook of webhooks) {
    const version = crypto.randomUUID();
    const copy: Webhook = { ...webhook, cursor, paused, holder: undefined, version };
    try {
      await retryBusy(() => target.addWebhook(copy));
      tally.copied++;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.reason === "webhooks_full")
        throw new CommandError(`The webhook ${webhook.name} cannot be copied: ${error.message}`);
      if (error.reason !== "webhook_name_taken") throw error;
      tally.present++;
    }
  }
}

async function copyTokens(source: Store, target: Store, tally: Report["tokens"]): Promise<void> {
  const tokens = await retryBusy(() => readTokens(source));
  if (tokens.length === 0) return;
  const hashes = new Set(tokens.map(({ hash }) => hash));
  const there = await retryBusy(() => readTokens(target));
  tally.present = there.filter(({ hash }) => hashes.has(hash)).length;
  const collisions = await retryBusy(() => target.adoptTokens(tokens));
  tally.copied = tokens.length - tally.present - collisions.length;
  if (collisions.length === 0) return;
  const names = collisions.map(({ name }) => name).join(", ");
  throw new CommandError(
    `${countOf(collisions.length, "token")} cannot be copied, because other tokens of ${target.description.location} ` +
      `have the same name: ${names}. Revoke those there (plantstore token revoke) and run the copy again.`,
  );
}

export async function copyPlants(
  source: Store,
  target: Store,
  report: Report,
  options: RetryOptions,
): Promise<void> {
  const [from, to] = [source.description.location, target.description.location];
  const { count: total } = await retryBusy(() => source.countPlants({}, Number.POSITIVE_INFINITY));
  let [stage, done] = ["copying", 0];
  using progress = showProgress(() => ({ stage, plants: done, part: total && done / total }));
  const retrying: RetryOptions = { ...options, onRetry: progress.onRetry };
  const create = async (listed: readonly ListedPlant[]): Promise<void> => {
    const plants = listed.map((plant) => ({ ...plant, id: BigInt(plant.id) }));
    const different: bigint[] = [];
    await plantsOf(target).createBatch(
      plants,
      (index, outcome) => {
        done++;
        if (outcome === "created") report.plants.copied++;
        else if (outcome === "replayed") report.plants.present++;
        else if (outcome.reason === "id_taken") different.push(plants[index]?.id as bigint);
        else throw new CommandError(`${to}: ${outcome.message}`);
      },
      retrying,
    );
    if (different.length > 0)
      throw new StoresDiffer(
        `${to} holds a different plant under the id ${different.join(", ")}. ` +
          "Nothing in it was replaced. Copy into an empty store.",
      );
  };
  const copied = await sumUp(source, retrying, create);
  [stage, done] = ["verifying", 0];
  const [again, arrived] = await Promise.all([
    sumUp(source, retrying),
    sumUp(target, retrying, (plants) => void (done += plants.length)),
  ]);
  const equal = again.sha256 === arrived.sha256;
  const changed = again.sha256 !== copied.sha256 ? from : to;
  if (changed === from || (!equal && arrived.count <= again.count))
    throw new CommandError(
      `${changed} was written to during the copy. Stop the service and run the copy again.`,
    );
  report.verification = { equal, from: again, to: arrived };
}

/** SHA-256 over all plants by ascending id as NDJSON: the checksum of `plantstore export`. */
async function sumUp(
  store: Store,
  retrying: RetryOptions,
  use?: (plants: readonly ListedPlant[]) => Promise<void> | void,
) {
  const hasher = new Bun.CryptoHasher("sha256");
  let count = 0;
  for await (const plants of plantsOf(store).exportBlocks({}, retrying)) {
    await use?.(plants);
    hasher.update(formatNdjson(plants));
    count += plants.length;
  }
  return { count, sha256: hasher.digest("hex") };
}

/** DATABASE_URL is the default of the missing end. It is not validated if it is not used. */
function parseEnds({ from, to }: CopyFlags, resolveConfig: Parameters<typeof copyStore>[1]) {
  if (from === undefined && to === undefined)
    throw new UsageError(
      `--from, --to: give at least one; ${settings.databaseUrl.env} is the default for the other`,
    );
  const resolveEnd = (flag: string, url: string | undefined): Config => {
    if (url !== undefined) parseSetting(settings.databaseUrl, url, flag);
    return resolveConfig(url);
  };
  const ends = { from: resolveEnd("--from", from), to: resolveEnd("--to", to) };
  if (ends.from.databaseUrl === ends.to.databaseUrl)
    throw new UsageError("--from, --to: both are the same store");
  const target = parseStoreUrl(ends.to.databaseUrl);
  // SQLite would use a file beside the source as its WAL.
  if (target.engine === "sqlite") requireOutsideStore("--to", target.path, ends.from.databaseUrl);
  return ends;
}
