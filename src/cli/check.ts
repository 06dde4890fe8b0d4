/** plantstore check and migrate: what is in a store, what is wrong with it, and its schema. */

import { resolve } from "node:path";
import type { Config } from "../config.ts";
import { parseStoreUrl } from "../store/open.ts";
import type { PlantCounts, TokenCounts } from "../store/rows.ts";
import type { Target } from "../store/postgres/url.ts";
import { checks, inspectStore } from "../store/sqlite/check.ts";
import { migrations, openDatabase } from "../store/sqlite/database.ts";
import { describeSchema } from "./backup.ts";
import { CommandError, describeMigration, findSchema, UsageError } from "./command.ts";
import { formatBytes, formatCount, printError, printTable } from "./terminal.ts";

interface Checked {
  /** Whether it is a file or a database, and which. */
  readonly place: readonly ["file" | "database", string];
  /** A row for each check. */
  readonly rows: readonly (readonly string[])[];
  readonly faults: readonly { readonly check: string; readonly message: string }[];
  readonly schemaVersion: number | undefined;
  readonly plants: PlantCounts | undefined;
  readonly tokens: TokenCounts | undefined;
  /** Undefined if there is no store. */
  readonly size: string | undefined;
  readonly bytes: Readonly<Record<string, unknown>>;
}

/** Changes nothing. */
export async function check(config: Config, options: { readonly json?: boolean }): Promise<void> {
  const url = parseStoreUrl(config.databaseUrl);
  const { place, rows, faults, schemaVersion, plants, tokens, size, bytes } =
    url.engine === "sqlite" ? checkSqlite(url.path) : await checkPostgres(url.target, config);
  const [kind, store] = place;
  const ok = faults.length === 0;
  if (options.json) {
    const counts = { plants: plants ?? null, tokens: tokens ?? null };
    const facts = { ok, store, faults, schema: schemaVersion ?? null, ...counts, bytes };
    process.stdout.write(`${formatJson(facts)}\n`);
  } else
    printTable(
      ["CHECK", "RESULT", "FOUND"],
      [
        ...rows,
        ...(plants === undefined ? [] : describePlants(plants)),
        ...(tokens === undefined ? [] : [["tokens", "", describeTokens(tokens)]]),
        ...(size === undefined ? [] : [["size", "", size]]),
        [kind, "", store],
      ],
    );
  if (!ok) throw new CommandError(`${store} is damaged or incomplete; see docs/backup.md.`);
}

function checkSqlite(path: string): Checked {
  const { fileBytes, logBytes, ...inspection } = inspectStore(path, Date.now());
  const { faults, schemaVersion } = inspection;
  const sound = {
    schema: schemaVersion === undefined ? "" : describeSchema(schemaVersion, migrations.length),
    tables: "every table and index exists",
    integrity: "every page, row and index is sound",
  };
  const resultOf = (name: (typeof checks)[number]): string[][] => {
    const wrong = faults.filter((fault) => fault.check === name);
    if (wrong.length > 0)
      return describeFaults(
        name,
        wrong.map(({ message }) => message),
      );
    // The counts themselves show that they can be made.
    if (name === "counts") return [];
    return [schemaVersion === undefined ? [name, "-", "not checked"] : [name, "ok", sound[name]]];
  };
  return {
    ...inspection,
    place: ["file", resolve(path)],
    rows: checks.flatMap(resultOf),
    size: `${formatBytes(fileBytes)}, and ${formatBytes(logBytes)} of log`,
    bytes: { file: fileBytes, log: logBytes },
  };
}

async function checkPostgres(target: Target, config: Config): Promise<Checked> {
  const { inspectPostgres } = await import("../store/postgres/check.ts");
  const { location, durability, newestVersion, bytes, ...inspection } = await inspectPostgres(
    target,
    config,
  );
  const { schemaVersion } = inspection;
  const missing =
    "This database holds no plant store yet. The service creates one when it starts; so does plantstore migrate.";
  const faults = schemaVersion === undefined ? [missing, ...inspection.faults] : inspection.faults;
  const schemaRows =
    schemaVersion === undefined
      ? describeFaults("schema", faults)
      : [
          ["schema", "ok", describeSchema(schemaVersion, newestVersion)],
          ...(faults.length === 0
            ? [["tables", "ok", "every table, column and index exists"]]
            : describeFaults("tables", faults)),
        ];
  const commit = durability.replace(/^every answer is sent after its commit/, "a commit");
  return {
    ...inspection,
    place: ["database", location],
    rows: [...schemaRows, ["durability", "ok", commit]],
    faults: faults.map((message) => ({ check: "tables", message })),
    size:
      schemaVersion === undefined ? undefined : `${formatBytes(Number(bytes))}, the whole database`,
    bytes: { database: bytes },
  };
}

const describePlants = ({ count, tagged, tags, idMin, idMax }: PlantCounts): string[][] => [
  ["plants", "", formatCount(count)],
  ["ids", "", idMin === null ? "none" : `${idMin} to ${idMax}`],
  ["tags", "", `${formatCount(tags)} different, on ${formatCount(tagged)} of the plants`],
];

const describeTokens = ({ active, expired, revoked }: TokenCounts): string =>
  `${formatCount(active)} active, ${formatCount(expired)} expired, ${formatCount(revoked)} revoked`;

/** Wrapped, so the table fits a terminal of 80 columns. */
function describeFaults(name: string, messages: readonly string[]): string[][] {
  return messages
    .flatMap((message) => message.match(/\S.{0,59}(?=\s|$)|\S+/g) ?? [message])
    .map((line, index) => (index === 0 ? [name, "WRONG", line] : ["", "", line]));
}

/** TypeScript does not know it yet. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** Writes ids as exact digits. */
const formatJson = (facts: Readonly<Record<string, unknown>>): string =>
  JSON.stringify(facts, (_, value: unknown) =>
    typeof value === "bigint" ? exactJson.rawJSON(String(value)) : value,
  );

export async function migrate(
  config: Config,
  { dryRun: isDryRun = false }: { readonly dryRun?: boolean },
): Promise<void> {
  const { location, version, newest } = await findSchema(config);
  const before = version ?? 0;
  const url = parseStoreUrl(config.databaseUrl);
  if (before > 0 && before < newest) {
    const warning = describeMigration({ location, from: before, to: newest });
    if (isDryRun) process.stdout.write(`-- ${warning}\n\n`);
    else printError(warning);
  }
  if (url.engine === "sqlite") {
    if (isDryRun) return printStatements(migrations.slice(before).map((step) => step.trim()));
    openDatabase(url.path).close();
  } else {
    const { migratePostgres, planMigration } = await import("../store/postgres/schema.ts");
    if (isDryRun) return printStatements(await planMigration(url.target, config));
    await migratePostgres(url.target, config);
  }
  process.stdout.write(
    before === newest
      ? `${location} is up to date: schema ${newest}.\n`
      : `Migrated ${location} from schema ${before} to ${newest}.\n`,
  );
}

/** A script that runs as it is. */
function printStatements(statements: readonly string[]): void {
  process.stdout.write(
    statements.length === 0
      ? "-- Nothing to do: the schema is up to date.\n"
      : statements.map((statement) => `${statement.replace(/;$/, "")};\n`).join("\n"),
  );
}

const HEALTH_MS_MAX = 5_000;
const HEALTH_RETRY_MS = 100;

/** For container engines and systemd: a minimal image has no other client. */
export async function checkHealth(
  { host, port, basePath }: Config,
  { wait }: { readonly wait: string },
): Promise<void> {
  if (!/^\d{1,4}$/.test(wait))
    throw new UsageError(`--wait: ${JSON.stringify(wait)} is not allowed; expected seconds`);
  const untilMs = performance.now() + Number(wait) * 1000;
  // An address that means every network is none to call.
  const called = { "0.0.0.0": "127.0.0.1", "::": "::1" }[host] ?? host;
  const url = `http://${called.includes(":") ? `[${called}]` : called}:${port}${basePath}/readyz`;
  // Not through HTTP_PROXY: the service is on this machine.
  process.env["no_proxy"] = process.env["NO_PROXY"] = "*";
  for (;;) {
    const asked = fetch(url, { signal: AbortSignal.timeout(HEALTH_MS_MAX) });
    const answer = await asked.then(
      ({ status }) => `answers ${status}`,
      (error: unknown) => `does not answer: ${(error as Error).message}`,
    );
    if (answer === "answers 200") return;
    if (performance.now() >= untilMs) throw new CommandError(`${url} ${answer}`);
    await Bun.sleep(HEALTH_RETRY_MS);
  }
}
