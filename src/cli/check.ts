/** plantstore check: what is in the store and what is wrong with it, changing nothing. */

import { resolve } from "node:path";
import type { Config } from "../config.ts";
import { parseSqlitePath } from "../store/open.ts";
import type { PlantCounts, TokenCounts } from "../store/sqlite/counts.ts";
import { type Check, checks, type Inspection, inspectStore } from "../store/sqlite/inspect.ts";
import { formatBytes } from "./facts.ts";
import { CommandError } from "./failure.ts";
import { formatCount } from "./quantity.ts";
import { printTable } from "./table.ts";
import { describeSchema } from "./copying.ts";

export function check(config: Config, asJson: boolean): void {
  const path = parseSqlitePath(config.databaseUrl);
  const inspection = inspectStore(path, Date.now());
  if (asJson) process.stdout.write(`${formatJson(path, inspection)}\n`);
  else printTable(["CHECK", "RESULT", "FOUND"], toRows(path, inspection));
  if (inspection.faults.length > 0)
    throw new CommandError(`Something is wrong with ${path}; see docs/backup.md for what to do.`);
}

function toRows(path: string, inspection: Inspection): string[][] {
  const { plants, tokens, fileBytes, logBytes } = inspection;
  return [
    ...checks.flatMap((name) => judge(name, inspection)),
    ...(plants === undefined ? [] : describePlants(plants)),
    ...(tokens === undefined ? [] : [["tokens", "", describeTokens(tokens)]]),
    ["size", "", `${formatBytes(fileBytes)}, and ${formatBytes(logBytes)} of log`],
    ["file", "", resolve(path)],
  ];
}

function judge(name: Check, { faults, schemaVersion }: Inspection): string[][] {
  const wrong = faults.filter((fault) => fault.check === name);
  if (wrong.length > 0)
    return wrong
      .flatMap(({ message }) => wrap(message))
      .map((line, index) => (index === 0 ? [name, "WRONG", line] : ["", "", line]));
  // That everything can be counted is shown by the counts.
  if (name === "counts") return [];
  if (schemaVersion === undefined) return [[name, "-", "not looked at"]];
  const found = {
    schema: describeSchema(schemaVersion),
    tables: "every table and index is there",
    integrity: "every page, row and index is sound",
    text: "every name and tag is valid text",
  };
  return [[name, "ok", found[name]]];
}

function describePlants({ count, tagged, tags, idMin, idMax }: PlantCounts): string[][] {
  return [
    ["plants", "", show(count)],
    ["ids", "", idMin === null ? "none" : `${idMin} to ${idMax}`],
    ["tags", "", `${show(tags)} different, on ${show(tagged)} of the plants`],
  ];
}

/** So that the table fits a terminal of 80 columns. */
const wrap = (message: string): string[] => message.match(/\S.{0,59}(?=\s|$)|\S+/g) ?? [message];

const describeTokens = ({ active, expired, revoked }: TokenCounts): string =>
  `${show(active)} active, ${show(expired)} expired, ${show(revoked)} revoked`;

const show = (count: bigint): string => formatCount(Number(count));

/** The types of the language do not know it yet. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** Ids as exact digits, as everywhere. */
function formatJson(path: string, inspection: Inspection): string {
  const { faults, schemaVersion, plants, tokens, fileBytes, logBytes } = inspection;
  const facts = {
    ok: faults.length === 0,
    store: resolve(path),
    faults,
    schema: schemaVersion ?? null,
    plants: plants ?? null,
    tokens: tokens ?? null,
    bytes: { file: fileBytes, log: logBytes },
  };
  return JSON.stringify(facts, (_, value: unknown) =>
    typeof value === "bigint" ? exactJson.rawJSON(String(value)) : value,
  );
}
