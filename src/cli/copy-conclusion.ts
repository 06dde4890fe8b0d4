/** How a copy ends: its summary, its message, and the exit code that scripts go by. */

import { ConfigError } from "../config.ts";
import type { PlantTally } from "./copy-plants.ts";
import type { TokenTally } from "./copy-tokens.ts";
import { isSameSum, type Sums } from "./copy-verify.ts";
import { printFacts } from "./facts.ts";
import { CommandError, explain, UsageError } from "./failure.ts";
import { Interrupted } from "./interrupt.ts";
import { formatCount, formatSeconds } from "./quantity.ts";

const EXIT_DIFFERENT = 3;

/** Right at any time, and also where the copy ends half-way. */
export interface Account {
  readonly from: string;
  readonly to: string;
  readonly plants: PlantTally;
  readonly tokens: TokenTally;
  /** What both were found to hold in the end. */
  sums: Sums | undefined;
  /** The stores that do not hold what the copy saw in them, or left in them. */
  readonly changed: string[];
}

interface Conclusion {
  /** Undefined where it never came to a copy. */
  readonly account: Account | undefined;
  readonly seconds: number;
  readonly failure: { readonly error: unknown } | undefined;
  readonly isJson: boolean;
}

/** Throws where the copy came to no end, or to one that cannot be relied on. */
export async function concludeCopy(conclusion: Conclusion): Promise<void> {
  const { account, failure, isJson } = conclusion;
  if (account === undefined || failure !== undefined) return concludeEarly(conclusion);
  if (isJson) await printJson(account, conclusion);
  else printSummary(account, conclusion.seconds);
  if (account.changed.length > 0)
    throw new CommandError(
      `Someone wrote to ${account.changed.join(" and to ")} meanwhile: the copy is not verified. Run it again.`,
    );
  const left = describeDifferences(account);
  if (left === "") return;
  process.stderr.write(`plantstore: ${left}\n`);
  process.exitCode = EXIT_DIFFERENT;
}

async function concludeEarly(conclusion: Conclusion): Promise<void> {
  const { account, failure, isJson } = conclusion;
  const error = failure?.error;
  if (error instanceof UsageError || error instanceof ConfigError) throw error;
  if (account !== undefined && isJson) await printJson(account, conclusion);
  const copied = formatCount(account?.plants.copied ?? 0);
  const present = formatCount(account?.plants.present ?? 0);
  const state = `${copied} plants were copied, and ${present} there already.\nRunning it again goes on from there.`;
  if (error instanceof Interrupted) {
    process.stderr.write(`plantstore: interrupted. ${state}\n`);
    // Now: an engine may be waiting for its server.
    process.exit(error.exitCode);
  }
  if (account === undefined || isUntouched(account)) throw error;
  throw new CommandError(`${explain(error)}\nThe copy did not reach its end: ${state}`, {
    cause: error,
  });
}

const isUntouched = ({ plants }: Account): boolean =>
  Object.values(plants).every((count) => count === 0);

function describeDifferences({ from, to, plants, tokens }: Account): string {
  const parts: string[] = [];
  if (plants.different + plants.extra > 0)
    parts.push(
      `${from} and ${to} differ: ${countOf(plants.different, "plant")} under the same id, ` +
        `and ${countOf(plants.extra, "plant")} of the target only. ` +
        "They were left alone; --force makes the target equal to the source.",
    );
  if (tokens.different > 0)
    parts.push(
      `In ${to}, ${countOf(tokens.different, "token")} of ${from} cannot be used; that was left so.`,
    );
  return parts.join(" ");
}

/** Resolves when it is out. That nobody reads it any more is no failure. */
function printJson(account: Account, { seconds, failure }: Conclusion): Promise<void> {
  const { from, to, plants, tokens, sums, changed } = account;
  const verification =
    sums === undefined ? null : { verified: changed.length === 0, equal: isEqual(sums), ...sums };
  const facts = { event: "copied", finished: failure === undefined, from, to, plants, tokens };
  const line = JSON.stringify({ ...facts, verification, seconds: Number(seconds.toFixed(3)) });
  return new Promise((resolve) => {
    process.stdout.write(`${line}\n`, () => resolve());
  });
}

const isEqual = ({ from, to }: Sums): boolean => isSameSum(from, to);

function printSummary(account: Account, seconds: number): void {
  const { from, to, plants, tokens, changed } = account;
  const sums = account.sums as Sums;
  printFacts(judge(sums, changed), [
    ["From", from],
    ["Plants", formatCount(sums.from.count)],
    ["SHA-256", sums.from.sha256],
    ["", ""],
    ["To", to],
    ["Plants", formatCount(sums.to.count)],
    ["SHA-256", sums.to.sha256],
    ["", ""],
    ["Copied", count(plants.copied, tokens.copied)],
    ["Existing", count(plants.present, tokens.present)],
    ...optional("Replaced", plants.replaced),
    ...optional("Removed", plants.removed),
    ...optional("Different", plants.different, tokens.different),
    ...optional("Extra", plants.extra, tokens.extra),
    ["Time", formatSeconds(seconds)],
  ]);
}

function judge(sums: Sums, changed: readonly string[]): string {
  if (changed.length > 0) return "Copied, and not verified.";
  return isEqual(sums)
    ? "Copied, and verified: both stores hold the same plants."
    : "Copied, and verified; what was different in the target was left alone.";
}

const count = (plants: number, tokens: number): string =>
  `${countOf(plants, "plant")}, ${countOf(tokens, "token")}`;

const countOf = (many: number, what: string): string =>
  `${formatCount(many)} ${what}${many === 1 ? "" : "s"}`;

function optional(name: string, plants: number, tokens?: number): [string, string][] {
  if (plants + (tokens ?? 0) === 0) return [];
  return [[name, tokens === undefined ? countOf(plants, "plant") : count(plants, tokens)]];
}
