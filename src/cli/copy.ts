/** plantstore copy: all plants and tokens of one store into another, of any engine. Running it again is safe. */

import type { RetryOptions } from "../../client/client.ts";
import { type Config, parseSetting, settings } from "../config.ts";
import type { PlantCount } from "../domain/page.ts";
import { formatNdjson, type Plant } from "../domain/plant.ts";
import type { Store } from "../domain/store.ts";
import type { TokenRecord } from "../domain/token.ts";
import { parseStoreUrl, type StoreUrl } from "../store/open.ts";
import { describeHost } from "../store/postgres/url.ts";
import {
  CommandError,
  createPlants,
  EXIT_DIFFERENT,
  explain,
  findSchema,
  Interrupted,
  readPages,
  retryBusy,
  timeUntilInterrupted,
  UsageError,
  withStore,
} from "./command.ts";
import { isSameFile, requireOutsideStore } from "./files.ts";
import {
  countOf,
  formatCount,
  formatSeconds,
  printError,
  printFacts,
  printLine,
  Progress,
  roundToMs,
} from "./terminal.ts";

interface CopyOptions {
  readonly from?: string;
  readonly to?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

interface Sum {
  readonly count: number;
  /** Over all plants by ascending id, each as a line of JSON: the checksum of `plantstore export`. */
  readonly sha256: string;
}

/** Right at any time, also if the copy ends early. */
export interface Report {
  readonly plants: { copied: number; present: number };
  /** `different` tokens cannot be used in the target as in the source. */
  readonly tokens: { copied: number; present: number; different: number };
  /** Undefined until both stores are open. */
  ends?: { readonly from: string; readonly to: string };
  verification?: { readonly equal: boolean; readonly from: Sum; readonly to: Sum };
}

/** The target holds other plants than the source. */
export class StoresDiffer extends CommandError {
  override readonly exitCode = EXIT_DIFFERENT;
}

type Resolve = (databaseUrl: string | undefined) => Config;

export async function copyStore(options: CopyOptions, resolveConfig: Resolve): Promise<void> {
  const { from, to } = parseEnds(options, resolveConfig);
  const { location, version, newest } = await findSchema(from);
  if (version === undefined) throw new CommandError(`There is no store at ${location}.`);
  if (version < newest)
    throw new CommandError(
      `${location} has schema ${version}, and a copy does not change its source. ` +
        `Run plantstore migrate on it first, which brings it to schema ${newest}.`,
    );
  const report: Report = {
    plants: { copied: 0, present: 0 },
    tokens: { copied: 0, present: 0, different: 0 },
  };
  const { seconds, error } = await timeUntilInterrupted((signal) =>
    // The source first: if it cannot be opened, no target is made.
    withStore(from, (source) =>
      withStore(to, async (target) => {
        report.ends = { from: source.description.location, to: target.description.location };
        // Tokens first: a collision of names needs a person, who should not have to wait for the plants.
        await copyTokens(source, target, report.tokens);
        await copyPlants(source, target, { isQuiet: options.quiet === true, signal, report });
      }),
    ),
  );
  if (report.ends === undefined) throw error;
  if (options.json) {
    const { ends, plants, tokens, verification = null } = report;
    const facts = { event: "copied", finished: error === undefined, ...ends, plants, tokens };
    await printLine(JSON.stringify({ ...facts, verification, seconds: roundToMs(seconds) }));
  }
  if (error !== undefined) fail(error, report.plants);
  summarize(report, seconds, options.json === true);
}

async function copyTokens(source: Store, target: Store, tally: Report["tokens"]): Promise<void> {
  const tokens = await retryBusy(source, () => source.listTokens());
  const hashes = new Set(tokens.map(({ hash }) => hash));
  const before = await retryBusy(target, () => target.listTokens());
  const collisions =
    tokens.length === 0 ? [] : await retryBusy(target, () => target.adoptTokens(tokens));
  tally.present = before.filter(({ hash }) => hashes.has(hash)).length;
  tally.copied = tokens.length - tally.present - collisions.length;
  const { location } = target.description;
  if (collisions.length > 0) {
    const names = collisions.map(({ name }) => name).join(", ");
    throw new CommandError(
      `${countOf(collisions.length, "token")} cannot be copied, because other tokens of ${location} ` +
        `have the same name: ${names}. Revoke those there (plantstore token revoke) and run the copy again.`,
    );
  }
  const after = await retryBusy(target, () => target.listTokens());
  const byHash = new Map(after.map((token) => [token.hash, token]));
  for (const token of tokens) {
    if (isAsUsable(token, byHash.get(token.hash))) continue;
    tally.different++;
    printError(
      `Token ${token.name} (${token.prefix}…) is revoked or changed in ${location} and stays so.`,
    );
  }
}

const isAsUsable = (token: TokenRecord, copy: TokenRecord | undefined): boolean =>
  copy !== undefined &&
  token.name === copy.name &&
  token.scopes.join(" ") === copy.scopes.join(" ") &&
  token.expiresAtMs === copy.expiresAtMs &&
  (token.revokedAtMs === undefined) === (copy.revokedAtMs === undefined);

interface PlantCopy {
  readonly isQuiet: boolean;
  readonly signal: AbortSignal;
  readonly report: Report;
  readonly delaysMs?: readonly number[];
}

export async function copyPlants(
  source: Store,
  target: Store,
  { isQuiet, signal, report, delaysMs }: PlantCopy,
): Promise<void> {
  const [from, to] = [source.description.location, target.description.location];
  const counting = (): Promise<PlantCount> => source.countPlants({}, Number.POSITIVE_INFINITY);
  const total = (await retryBusy(source, counting)).count;
  let [stage, done] = ["copying", 0];
  using progress = new Progress(isQuiet, () => ({
    stage,
    plants: done,
    part: total && done / total,
  }));
  const retrying: RetryOptions = { signal, delaysMs, onRetry: progress.onRetry };
  const create = async (plants: readonly Plant[]): Promise<void> => {
    const different: bigint[] = [];
    await createPlants(
      target,
      plants,
      (index, outcome) => {
        done++;
        if (outcome === "created") report.plants.copied++;
        else if (outcome === "replayed") report.plants.present++;
        else if (outcome.reason === "id_taken") different.push((plants[index] as Plant).id);
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
  const changed = again.sha256 !== copied.sha256 ? from : to;
  const equal = again.sha256 === arrived.sha256;
  if (changed === from || (!equal && arrived.count <= again.count))
    throw new CommandError(
      `${changed} was written to during the copy. Stop the service and run the copy again.`,
    );
  report.verification = { equal, from: again, to: arrived };
}

async function sumUp(
  store: Store,
  retrying: RetryOptions,
  use?: (plants: readonly Plant[]) => Promise<void> | void,
): Promise<Sum> {
  const hasher = new Bun.CryptoHasher("sha256");
  let count = 0;
  for await (const plants of readPages(store, {}, retrying)) {
    await use?.(plants);
    hasher.update(formatNdjson(plants));
    count += plants.length;
  }
  return { count, sha256: hasher.digest("hex") };
}

/** DATABASE_URL stands in for the end that is left out. */
function parseEnds(options: CopyOptions, resolveConfig: Resolve): { from: Config; to: Config } {
  const { from, to } = options;
  if (from !== undefined) parseSetting(settings.databaseUrl, from, "--from");
  if (to !== undefined) parseSetting(settings.databaseUrl, to, "--to");
  if (from === undefined && to === undefined)
    throw new UsageError(
      `--from, --to: give at least one; ${settings.databaseUrl.env} stands in for the other`,
    );
  // Given as a flag, so DATABASE_URL is not judged if it is not used.
  const config = resolveConfig(to === undefined ? undefined : from);
  const ends = {
    from: { ...config, databaseUrl: from ?? config.databaseUrl },
    to: { ...config, databaseUrl: to ?? config.databaseUrl },
  };
  const [one, other] = [parseStoreUrl(ends.from.databaseUrl), parseStoreUrl(ends.to.databaseUrl)];
  if (isSameStore(one, other)) throw new UsageError("--from, --to: both are the same store");
  if (one.engine === "sqlite" && other.engine === "sqlite") {
    // SQLite would take a file beside either store for its log.
    requireOutsideStore("--to", other.path, ends.from.databaseUrl);
    requireOutsideStore("--from", one.path, ends.to.databaseUrl);
  }
  return ends;
}

/** One server may have several names; then only the checksums tell. */
function isSameStore(one: StoreUrl, other: StoreUrl): boolean {
  if (one.engine === "sqlite") return other.engine === "sqlite" && isSameFile(one.path, other.path);
  if (other.engine === "sqlite" || one.target.database !== other.target.database) return false;
  const hosts = new Set(one.target.hosts.map(describeHost));
  return other.target.hosts.some((host) => hosts.has(describeHost(host)));
}

function summarize(report: Report, seconds: number, isJson: boolean): void {
  const { plants, tokens } = report;
  const { from, to } = report.ends as NonNullable<Report["ends"]>;
  const { equal, ...sums } = report.verification as NonNullable<Report["verification"]>;
  if (!isJson)
    printFacts(
      equal
        ? "Copied, and verified: both stores hold the same plants."
        : "Copied. The target holds more plants than the source.",
      [
        ["From", from],
        ["Plants", formatCount(sums.from.count)],
        ["SHA-256", sums.from.sha256],
        ["", ""],
        ["To", to],
        ["Plants", formatCount(sums.to.count)],
        ["SHA-256", sums.to.sha256],
        ["", ""],
        ["Copied", `${countOf(plants.copied, "plant")}, ${countOf(tokens.copied, "token")}`],
        ["Existing", `${countOf(plants.present, "plant")}, ${countOf(tokens.present, "token")}`],
        ["Time", formatSeconds(seconds)],
      ],
    );
  if (!equal) {
    const extra = countOf(sums.to.count - sums.from.count, "plant");
    printError(`${to} holds ${extra} that ${from} does not. They were left alone.`);
  }
  if (!equal || tokens.different > 0) process.exitCode = EXIT_DIFFERENT;
}

function fail(error: unknown, { copied, present }: Report["plants"]): never {
  const state =
    `${countOf(copied, "plant")} copied, ${formatCount(present)} already there. ` +
    "Running the copy again continues it.";
  if (error instanceof Interrupted) {
    printError(`interrupted. ${state}`);
    throw error;
  }
  if (error instanceof StoresDiffer || copied + present === 0) throw error;
  throw new CommandError(`${explain(error)}\nThe copy did not finish: ${state}`, { cause: error });
}
