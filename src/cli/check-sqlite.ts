/** What there is to say of a SQLite file. */

import { resolve } from "node:path";
import { type Check, checks, type Inspection, inspectStore } from "../store/sqlite/check.ts";
import { type Checked, describeFaults, describePlants, describeTokens } from "./check-rows.ts";
import { describeSchema } from "./copying.ts";
import { formatBytes } from "./facts.ts";

export function checkSqlite(path: string): Checked {
  const inspection = inspectStore(path, Date.now());
  const { faults, schemaVersion, plants, tokens, fileBytes, logBytes } = inspection;
  return {
    place: path,
    isSound: faults.length === 0,
    rows: [
      ...checks.flatMap((name) => judge(name, inspection)),
      ...describePlants(plants),
      ...describeTokens(tokens),
      ["size", "", `${formatBytes(fileBytes)}, and ${formatBytes(logBytes)} of log`],
      ["file", "", resolve(path)],
    ],
    facts: {
      store: resolve(path),
      faults,
      schema: schemaVersion ?? null,
      plants: plants ?? null,
      tokens: tokens ?? null,
      bytes: { file: fileBytes, log: logBytes },
    },
  };
}

function judge(name: Check, { faults, schemaVersion }: Inspection): string[][] {
  const wrong = faults.filter((fault) => fault.check === name);
  if (wrong.length > 0)
    return describeFaults(
      name,
      wrong.map(({ message }) => message),
    );
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
