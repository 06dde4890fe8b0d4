/** What backup and restore have in common: their argument, their way to end, and what they say then. */

import { resolve } from "node:path";
import { migrations } from "../store/sqlite/database.ts";
import { parseStoreUrl } from "../store/open.ts";
import type { Transferred } from "../store/sqlite/backup.ts";
import { formatBytes, printFacts } from "./facts.ts";
import { CommandError, UsageError } from "./failure.ts";
import { Interrupted, untilInterrupted } from "./interrupt.ts";
import { formatCount, formatSeconds } from "./quantity.ts";

export interface TransferOptions {
  readonly json?: boolean;
}

interface Report {
  readonly event: "backed_up" | "restored";
  readonly sentence: string;
  readonly from: string;
  readonly asJson: boolean;
}

export function parseFile(file: string): string {
  // As when a variable in a script is not set.
  if (file === "") throw new UsageError("<file>: nothing is not allowed; expected a path");
  return file;
}

/** The path of the store; throws, and says what to use instead, where it is not ours to copy. */
export function requireFile(databaseUrl: string): string {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "sqlite") return url.path;
  throw new CommandError(
    "PostgreSQL has its own tools for this, and they know more than we do:\n" +
      `  pg_dump --format=custom --file=plants.dump "$DATABASE_URL"\n` +
      `  pg_restore --clean --if-exists --dbname="$DATABASE_URL" plants.dump\n` +
      "For backups to any point in time, see docs/backup.md. To a SQLite file: plantstore copy.",
  );
}

/** Does it, and says so. Ctrl-C ends it with everything left as it was. */
export async function reportTransfer(
  report: Report,
  transfer: (signal: AbortSignal) => Promise<Transferred>,
): Promise<void> {
  const startedAtMs = performance.now();
  try {
    const transferred = await untilInterrupted(transfer);
    print(report, transferred, (performance.now() - startedAtMs) / 1000);
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    process.stderr.write("plantstore: Interrupted; nothing was changed.\n");
    // Now: the thread that copies is in the middle of a statement, and would be waited for.
    process.exit(error.exitCode);
  }
}

function print(report: Report, transferred: Transferred, seconds: number): void {
  const { event, sentence, from, asJson } = report;
  const { path, schemaVersion, plants, tokens, bytes } = transferred;
  if (asJson) {
    const counts = { plants: Number(plants), tokens: Number(tokens), bytes };
    const facts = { event, from: resolve(from), to: path, schema: schemaVersion, ...counts };
    process.stdout.write(`${JSON.stringify({ ...facts, seconds: Number(seconds.toFixed(3)) })}\n`);
    return;
  }
  printFacts(sentence, [
    ["From", resolve(from)],
    ["To", path],
    ["Plants", formatCount(Number(plants))],
    ["Tokens", formatCount(Number(tokens))],
    ["Schema", describeSchema(schemaVersion)],
    ["Size", formatBytes(bytes)],
    ["Time", formatSeconds(seconds)],
  ]);
}

export function describeSchema(version: number): string {
  return version === migrations.length
    ? `${version}, the newest`
    : `${version}, will be migrated to ${migrations.length} at the next start`;
}
