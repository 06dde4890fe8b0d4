/** plantstore migrate: brings the schema of a store up to date, apart from the service. */

import { existsSync } from "node:fs";
import type { Config } from "../config.ts";
import type { Target } from "../store/postgres/url.ts";
import { getSchemaVersion, migrations, openDatabase, readStore } from "../store/sqlite/database.ts";
import { parseStoreUrl } from "../store/open.ts";

interface MigrateOptions {
  readonly dryRun?: boolean;
}

export async function migrate(config: Config, { dryRun = false }: MigrateOptions): Promise<void> {
  const url = parseStoreUrl(config.databaseUrl);
  if (url.engine === "sqlite") return migrateFile(url.path, dryRun);
  return migrateDatabase(url.target, config, dryRun);
}

function migrateFile(path: string, dryRun: boolean): void {
  const before = existsSync(path) ? readStore(path, (db) => getSchemaVersion(db, path)) : 0;
  if (dryRun) return printStatements(migrations.slice(before).map((step) => step.trim()));
  openDatabase(path).close();
  printResult(path, before, migrations.length);
}

async function migrateDatabase(target: Target, config: Config, dryRun: boolean): Promise<void> {
  const { migratePostgres, planMigration } = await import("../store/postgres/schema.ts");
  if (dryRun) return printStatements(await planMigration(target, config));
  const { location, before, after } = await migratePostgres(target, config);
  printResult(location, before, after);
}

/** A script that can be run as it is. */
function printStatements(statements: readonly string[]): void {
  process.stdout.write(
    statements.length === 0
      ? "-- Nothing to do: the schema is up to date.\n"
      : statements.map((statement) => `${statement.replace(/;$/, "")};\n`).join("\n"),
  );
}

function printResult(place: string, before: number, after: number): void {
  process.stdout.write(
    before === after
      ? `${place} is up to date: schema ${after}.\n`
      : `Migrated ${place} from schema ${before} to ${after}.\n`,
  );
}
