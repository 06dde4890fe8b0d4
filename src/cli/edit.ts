/** What import, change, remove and revert share: a preview, a question, progress, and a report that says how to undo. */

import { isatty } from "node:tty";
import { type BulkOptions, type Content, ServiceError } from "../../client/client.ts";
import { readDescriptor, STANDARD_INPUT } from "../descriptor.ts";
import { batchRule, nameBatch } from "../domain/change.ts";
import { formatJson } from "../domain/json.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  failHalfway,
  type Flags,
  Interrupted,
  parseFlag,
  timeUntilInterrupted,
  UsageError,
} from "./command.ts";
import {
  formatCount,
  printError,
  printLine,
  quotePlant,
  REFUSED_PRINTED_MAX,
  showLine,
  showProgress,
} from "./terminal.ts";

type Counts = Readonly<Record<string, number>>;

interface Edit {
  readonly flags: Flags;
  /** In messages, as in "The import did not finish". */
  readonly what: string;
  /** What became of a plant, as in "changed". */
  readonly did: string;
  /** Its name in the journal. */
  readonly batch: string;
  /** Correct at any time. */
  readonly counts: () => Counts;
  /** The counts, for people. */
  readonly describe?: () => string;
  /** How far it got, and that it is safe to run again. */
  readonly state?: () => string;
  /** False: the report does not say how to undo it. */
  readonly canUndo?: boolean;
  /** Standard output carries something else than the report. */
  readonly isOutputTaken?: boolean;
}

interface Preview {
  readonly sample: readonly {
    readonly id: bigint;
    readonly now?: Content | undefined;
    readonly after?: Content | undefined;
  }[];
  /** Plants that the sample leaves out. */
  readonly more?: number;
  readonly summary: string;
  /** For --json. */
  readonly facts: object;
}

type Told = Readonly<Record<"plants" | "changedSince" | "refused", number>>;

export interface Steps {
  readonly signal: AbortSignal;
  /** The edit may write from now on, so its end is reported. */
  readonly begin: () => void;
  /** Shows what a dry run or a question is about. Resolves to false for a dry run. Throws a CommandError without a yes. */
  readonly consent: (preview: Preview | undefined, question?: string) => Promise<boolean>;
  /** Shows the progress of work that tells its counts. `total` is the number of plants, if it is known. */
  readonly follow: <Counts extends Told>(
    total: number | undefined,
    start: (options: BulkOptions<Counts>) => Promise<Counts>,
    note: (counts: Counts) => void,
  ) => Promise<void>;
}

/** For `refusePairs`. */
export const dryRunPairs = [
  ["--dry-run", "--yes", "a dry run does not ask"],
  ["--dry-run", "--batch", "a dry run writes nothing"],
] as const;

/** Throws a usage error if nobody can be asked. */
export function requireConsent({ dryRun, yes }: Flags): void {
  if (!dryRun && !yes && !isatty(STANDARD_INPUT))
    throw new UsageError("--yes is required without a terminal; --dry-run shows the effect");
}

/** The name of an earlier edit adds this one to it. */
export const parseBatch = (flag: string | undefined, name: string): string =>
  parseFlag("--batch", flag, batchRule) ?? nameBatch(name);

/** What the report tells, besides the counts. */
interface Ending {
  hasBegun: boolean;
  isFollowed: boolean;
  /** Plants that were left alone. */
  left: number;
}

/** Runs an edit, and reports what it did, even if it ends early. */
export async function edit(work: Edit, run: (steps: Steps) => Promise<void>): Promise<void> {
  const ending: Ending = { hasBegun: false, isFollowed: false, left: 0 };
  const { seconds, error } = await timeUntilInterrupted((signal) =>
    run({
      signal,
      begin: () => void (ending.hasBegun = true),
      consent: async (preview, question) => {
        const isWrite = await requireYes(work.flags, preview, question, signal);
        ending.hasBegun ||= isWrite;
        return isWrite;
      },
      follow: followWith(signal, work, ending),
    }),
  );
  if (ending.hasBegun && !(error instanceof UsageError)) await report(work, ending, seconds, error);
  else if (error !== undefined) throw error as Error;
}

async function requireYes(
  { dryRun = false, yes, json }: Flags,
  preview: Preview | undefined,
  question: string | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const isAsked = question !== undefined && !yes;
  if (preview !== undefined && dryRun) await printPreview(preview, printLine, json);
  else if (preview !== undefined && isAsked) await printPreview(preview, showLine);
  if (!dryRun && isAsked && !(await confirm(question, signal)))
    throw new CommandError("Nothing was changed.");
  return !dryRun;
}

async function printPreview(
  { sample, more = 0, summary, facts }: Preview,
  print: typeof printLine,
  isJson = false,
): Promise<void> {
  if (isJson) return print(formatJson(facts));
  for (const { id, now, after } of sample) await print(`${id}: ${show(now)} -> ${show(after)}`);
  if (more > 0) await print(`… and ${formatCount(more)} more`);
  await print(summary);
}

const show = (plant: Content | undefined): string =>
  plant === undefined ? "none" : quotePlant(plant);

/** False without an answer. */
async function confirm(question: string, signal: AbortSignal): Promise<boolean> {
  process.stderr.write(`${question} [y/N] `);
  for await (const chunk of readDescriptor(STANDARD_INPUT, signal))
    return /^y(es)?\s*$/i.test(new TextDecoder().decode(chunk));
  return false;
}

const followWith =
  (signal: AbortSignal, { batch }: Edit, ending: Ending): Steps["follow"] =>
  async (total, start, note) => {
    ending.isFollowed = true;
    let told: Told = { plants: 0, changedSince: 0, refused: 0 };
    {
      using progress = showProgress(() => {
        const { plants, changedSince, refused } = told;
        return { plants, refused: changedSince + refused, part: total && plants / total };
      });
      const counts = await start({
        signal,
        batch,
        onRetry: progress.onRetry,
        onProgress: (now) => note((told = now)),
        onLeft: ({ id, message }) => {
          if (++ending.left <= REFUSED_PRINTED_MAX)
            progress.print(`plantstore: plant ${id}: ${message}`);
        },
      }).catch((error: unknown) => {
        // The service did nothing of it.
        const isRefused = error instanceof ServiceError && !error.isTransient;
        throw isRefused ? new CommandError(error.message, { cause: error }) : error;
      });
      note(counts);
    }
    const more = ending.left - REFUSED_PRINTED_MAX;
    if (more > 0) printError(`… and ${more} more`);
  };

async function report(
  { flags: { json }, what, did, batch, canUndo = true, isOutputTaken = false, ...work }: Edit,
  { isFollowed, left }: Ending,
  seconds: number,
  error: unknown,
): Promise<void> {
  const counts = work.counts();
  const changed = sumOf(counts, ["created", "replaced", "removed", "reverted"]);
  const isFinished = error === undefined;
  const isInterrupted = error instanceof Interrupted;
  const describe = (): string => {
    const { unchanged = 0, changedSince = 0, refused = 0 } = counts;
    const line = describeCounts({ [did]: changed, unchanged, changedSince, refused });
    return `${line}; batch ${JSON.stringify(batch)}`;
  };
  if (isFinished || isInterrupted || json) {
    const line = json
      ? JSON.stringify({ finished: isFinished, ...counts, batch, seconds })
      : (work.describe ?? describe)();
    if (!isOutputTaken) await printLine(line);
    else if (json) await showLine(line);
    else printError(line);
  }
  const isOurs = error instanceof CommandError && !isInterrupted;
  const isNothing = isOurs && changed + sumOf(counts, ["replayed"]) === 0;
  // A service may have done more than it has told.
  const mayBeMore = isFollowed && !isFinished && !isNothing;
  if (canUndo && !json && (changed > 0 || mayBeMore))
    printError(`to undo this ${what}: plantstore revert --batch ${quoteWord(batch)}`);
  if (isNothing) throw error;
  const known = `${formatCount(changed)} plants are known to be ${did}. Running it again continues it.`;
  if (!isFinished) failHalfway(what, error, work.state?.() ?? known);
  if (left + sumOf(counts, ["refused", "changedSince"]) > 0) process.exitCode = EXIT_DIFFERENT;
}

const sumOf = (counts: Counts, names: readonly string[]): number =>
  names.reduce((sum, name) => sum + (counts[name] ?? 0), 0);

const quoteWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** As in `created 1, changed since 0`. The API says `replaced` for changed. */
export const describeCounts = (counts: Counts): string =>
  Object.entries(counts)
    .map(([name, count]) => {
      const words = name === "replaced" ? "changed" : name;
      return `${words.replace(/[A-Z]/, (letter) => ` ${letter.toLowerCase()}`)} ${count}`;
    })
    .join(", ");
