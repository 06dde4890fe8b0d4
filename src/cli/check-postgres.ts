/** What there is to say of a PostgreSQL database. */

import type { Config } from "../config.ts";
import type { Target } from "../store/postgres/url.ts";
import { type Checked, describeFaults, describePlants, describeTokens } from "./check-rows.ts";
import { formatBytes } from "./facts.ts";

export async function checkPostgres(target: Target, config: Config): Promise<Checked> {
  const { inspectPostgres } = await import("../store/postgres/check.ts");
  const inspection = await inspectPostgres(target, config);
  const { location, durability, schemaVersion, newestVersion, faults, plants, tokens, bytes } =
    inspection;
  const isHere = schemaVersion !== undefined;
  const missing = isHere
    ? []
    : [
        "There is no plant store in this database yet. The service makes one at its start, or plantstore migrate.",
      ];
  return {
    place: location,
    isSound: isHere && faults.length === 0,
    rows: [
      ...(isHere ? [["schema", "ok", describeVersion(schemaVersion, newestVersion)]] : []),
      ...describeFaults("schema", missing),
      ...(faults.length === 0 && isHere
        ? [["tables", "ok", "every table, column and index is there"]]
        : describeFaults("tables", faults)),
      [
        "durability",
        "ok",
        durability.replace(/^every answer is sent after its commit/, "a commit"),
      ],
      ...describePlants(plants),
      ...describeTokens(tokens),
      ...(isHere ? [["size", "", `${formatBytes(Number(bytes))}, the whole database`]] : []),
      ["database", "", location],
    ],
    facts: {
      store: location,
      faults: [...missing, ...faults].map((message) => ({ check: "tables", message })),
      schema: schemaVersion ?? null,
      plants: plants ?? null,
      tokens: tokens ?? null,
      bytes: { database: bytes },
    },
  };
}

const describeVersion = (version: number, newest: number): string =>
  version === newest
    ? `${version}, the newest`
    : `${version}, will be migrated to ${newest} at the next start`;
