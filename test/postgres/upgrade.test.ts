/** Databases that earlier versions made, schema by schema: each is opened, keeps what it holds, and takes more. */

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { resolveConfig } from "../../src/config.ts";
import type { SchemaChange } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import { steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";

const { config } = resolveConfig({}, {});

/** As `plantstore migrate --dry-run` printed it for an empty database. */
const statements = readFileSync(join(import.meta.dir, "../frozen/postgres-schema.sql"), "utf8");
const versions = [...statements.matchAll(/SET version = (\d+)/g)].map(([, version]) =>
  Number(version),
);

const HASH = "9f43b56b27e6df9d08b3ba0368ddcb5c0e3dc39a4f6e8bed145043a000599a4b";

/** The statements up to this version, with what could be stored by then. */
function dumpOf(version: number): string {
  const end = statements.indexOf(`SET version = ${version} `);
  const dump = statements.slice(0, statements.indexOf("\n", end));
  const plants = `INSERT INTO plants VALUES (-9223372036854775808, '', ''), (9223372036854775807, 'Größte 🌱', NULL);`;
  const token = `INSERT INTO plantstore_tokens VALUES ('${HASH}', 'pst_bRap8O', 'till', 'plants:read plants:write', 1);`;
  return [dump, plants, ...(version > 2 ? [token] : [])].join("\n");
}

test("the statements of every released schema are kept, and have not changed since", () => {
  expect(versions).toEqual(versions.map((_, index) => index + 1));
  expect(versions.length).toBeWithin(11, steps.length + 1);
  for (const [index, version] of versions.entries())
    expect(statements).toContain(
      `\n${steps[index]};\n\nUPDATE plantstore_schema SET version = ${version} `,
    );
});

describe.each(versions)("a database of schema %d", (version) => {
  test("keeps its plants and tokens, takes more, and is sound; the change is announced first", async () => {
    const server = await sharedPostgres();
    await using database = await createTestDatabase(server);
    await server.run(dumpOf(version), database.name);
    const changes: SchemaChange[] = [];
    const store = await openStore(database.url, config, (change) => changes.push(change));
    try {
      expect(changes.map(({ from, to }) => [from, to])).toEqual(
        version === steps.length ? [] : [[version, steps.length]],
      );
      expect(await store.createPlant({ id: 2n, name: "Fern", tag: "shade" })).toBe("created");
      const { plants } = await store.listPlants({
        after: undefined,
        limit: 10,
        tag: undefined,
        name: undefined,
        order: "asc",
      });
      expect(plants.map(({ id, name, tag }) => [id, name, tag])).toEqual([
        [-(2n ** 63n), "", ""],
        [2n, "Fern", "shade"],
        [2n ** 63n - 1n, "Größte 🌱", undefined],
      ]);
      const token = await store.findToken(HASH);
      expect(token?.name).toBe(version > 2 ? "till" : undefined);
    } finally {
      await store.close();
    }
    expect(await runCommand(["check"], { DATABASE_URL: database.url })).toMatchObject({
      exitCode: 0,
    });
  });
});
