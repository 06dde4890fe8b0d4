/** plantstore check: what is in the store and what is wrong with it, changing nothing. */

import type { Config } from "../config.ts";
import { parseStoreUrl } from "../store/open.ts";
import { checkPostgres } from "./check-postgres.ts";
import { checkSqlite } from "./check-sqlite.ts";
import { CommandError } from "./failure.ts";
import { printTable } from "./table.ts";

export async function check(config: Config, asJson: boolean): Promise<void> {
  const url = parseStoreUrl(config.databaseUrl);
  const checked =
    url.engine === "sqlite" ? checkSqlite(url.path) : await checkPostgres(url.target, config);
  const { isSound, place, rows, facts } = checked;
  if (asJson) process.stdout.write(`${formatJson({ ok: isSound, ...facts })}\n`);
  else printTable(["CHECK", "RESULT", "FOUND"], rows);
  if (!isSound)
    throw new CommandError(`Something is wrong with ${place}; see docs/backup.md for what to do.`);
}

/** The types of the language do not know it yet. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** Ids as exact digits, as everywhere. */
const formatJson = (facts: Readonly<Record<string, unknown>>): string =>
  JSON.stringify(facts, (_, value: unknown) =>
    typeof value === "bigint" ? exactJson.rawJSON(String(value)) : value,
  );
