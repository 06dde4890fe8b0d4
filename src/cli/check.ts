/** plantstore check, migrate and health: a store's content, faults and schema, and whether the service is ready. */

import { explainDistrust } from "../../client/errors.ts";
import { type Config, settings } from "../config.ts";
import { parseStoreUrl } from "../store-url.ts";
import { type Inspection, inspectStore, type PlantCounts } from "../store/check.ts";
import { migrations } from "../store/sqlite/database.ts";
import { describeBackups, describeSchema } from "./backup.ts";
import {
  CommandError,
  describeMigration,
  findAuthority,
  findSchema,
  type Flags,
  parseFlag,
  withStore,
} from "./command.ts";
import { formatBytes, formatCount, formatFact, printJson, printTable } from "./terminal.ts";

export async function check(config: Config, { json }: Flags): Promise<void> {
  const inspection = await inspectStore(config.databaseUrl, config);
  const { kind, location, schemaVersion, faults, plants, tokens, bytes } = inspection;
  const ok = faults.length === 0;
  if (json) {
    const counts = { plants: plants ?? null, tokens: tokens ?? null };
    const schema = schemaVersion ?? null;
    printJson({ ok, store: location, faults, schema, ...counts, bytes }, 0);
  } else {
    const sizes = Object.entries(bytes).map(
      ([part, size]) => `${part} ${formatBytes(Number(size))}`,
    );
    const backups = await describeBackups(config);
    printTable(
      ["CHECK", "RESULT", "FOUND"],
      [
        ...describeChecks(inspection),
        ...(plants === undefined ? [] : describePlants(plants)),
        ...(tokens === undefined ? [] : [["tokens", "", formatFact("", tokens)]]),
        ...(sizes.length === 0 ? [] : [["size", "", sizes.join(", ")]]),
        ...(backups === undefined ? [] : [["backups", "", backups]]),
        [kind, "", location],
      ],
    );
  }
  if (ok) return;
  // An unknown schema, or no store at all, is not damage.
  const other = faults.find((fault) => fault.check === "schema");
  if (other !== undefined) throw new CommandError(other.message);
  throw new CommandError(`${location} is damaged or incomplete; see docs/operations.md.`);
}

function describeChecks({ schemaVersion, newestVersion, sound, faults }: Inspection): string[][] {
  const isKnown = schemaVersion !== undefined;
  const schema = isKnown ? describeSchema(schemaVersion, newestVersion) : "";
  const wrong = new Set(faults.map((fault) => fault.check));
  const right = Object.entries({ schema, ...sound }).filter(([name]) => !wrong.has(name));
  return [
    ...faults.map(({ check: name, message }) => [name, "WRONG", message]),
    ...right.map(([name, found]) => (isKnown ? [name, "ok", found] : [name, "-", "not checked"])),
  ];
}

const describePlants = ({ count, tagged, tags, idMin, idMax }: PlantCounts): string[][] => [
  ["plants", "", formatCount(count)],
  ["ids", "", idMin === null ? "none" : `${idMin} to ${idMax}`],
  ["tags", "", `${formatCount(tags)} different, on ${formatCount(tagged)} of the plants`],
];

export async function migrate(config: Config, { dryRun: isDryRun }: Flags): Promise<void> {
  const { location, version, newest } = await findSchema(config);
  const before = version ?? 0;
  if (isDryRun) {
    if (before > 0 && before < newest)
      process.stdout.write(`-- ${describeMigration({ location, from: before, to: newest })}\n\n`);
    const { engine } = parseStoreUrl(config.databaseUrl);
    const statements =
      engine === "sqlite"
        ? migrations.slice(before).map((step) => step.trim())
        : (await import("../store/postgres/schema.ts")).listStatements(version, { isScript: true });
    const script = statements.map((statement) => `${statement.replace(/;$/, "")};\n`).join("\n");
    return void process.stdout.write(script || "-- Nothing to do: the schema is up to date.\n");
  }
  await withStore(config, async () => undefined);
  process.stdout.write(
    before === newest
      ? `${location} is up to date: schema ${newest}.\n`
      : `Migrated ${location} from schema ${before} to ${newest}.\n`,
  );
}

/** The runtime's messages are written for browsers. */
function explainSilence(error: unknown, host: string): string {
  const { name, code } = error as NodeJS.ErrnoException;
  if (name === "TimeoutError") return `it took more than ${HEALTH_MS_MAX / 1000} seconds`;
  if (code === "ECONNRESET")
    return `it closed the connection; if it has TLS, ${settings.tlsCert.env} and ${settings.tlsKey.env} must be set here too`;
  if (code === "ECONNREFUSED") return "nothing is listening there";
  const distrust = explainDistrust(error);
  if (distrust !== undefined) return `its certificate is not trusted: ${distrust}`;
  return code === "ENOTFOUND" ? `there is no host ${host}` : (code ?? "the connection was lost");
}

const HEALTH_MS_MAX = 5_000;

const waitRule = {
  expected: "seconds",
  find: (text: string) => (/^\d{1,4}$/.test(text) ? Number(text) : undefined),
};

/** For container engines and systemd: a minimal image has no other HTTP client. */
export async function checkHealth(config: Config, flags: Flags<"wait">) {
  const { host, port, basePath, tlsCert } = config;
  const waitSeconds = parseFlag("--wait", flags.wait, waitRule) ?? 0;
  const untilMs = performance.now() + waitSeconds * 1000;
  const called = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  const scheme = tlsCert === "" ? "http" : "https";
  const url = `${scheme}://${called.includes(":") ? `[${called}]` : called}:${port}${basePath}/readyz`;
  // Nothing secret is sent, and the certificate need not have the name by which this machine calls itself.
  const trust =
    flags.ca === undefined
      ? { rejectUnauthorized: false }
      : { ...findAuthority(flags, url).tls, checkServerIdentity: () => undefined };
  // Not through HTTP_PROXY: the service is on this machine.
  process.env["no_proxy"] = process.env["NO_PROXY"] = "*";
  for (;;) {
    const response = fetch(url, { tls: trust, signal: AbortSignal.timeout(HEALTH_MS_MAX) });
    const answer = await response.then(
      ({ status }) => `answers ${status}`,
      (error: unknown) => `does not answer: ${explainSilence(error, called)}.`,
    );
    if (answer === "answers 200") return;
    if (performance.now() >= untilMs) throw new CommandError(`${url} ${answer}`);
    await Bun.sleep(100);
  }
}
