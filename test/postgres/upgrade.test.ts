/** Databases that earlier versions made, schema by schema: each is opened, keeps what it holds, and takes more. */

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob, SQL } from "bun";
import type { SchemaChange } from "../../src/domain/store.ts";
import { listStatements, steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { openStoreAt } from "../support/database.ts";
import { everything } from "../support/plants.ts";
import { createTestDatabase } from "../support/postgres-server.ts";
import { until } from "../support/until.ts";

const frozen = join(import.meta.dir, "../frozen");
const files = [...new Glob("postgres-schema-*.sql").scanSync(frozen)].toSorted();
const versions = files.map((file) => Number(/\d+/.exec(file)?.[0]));

/** As `plantstore migrate --dry-run` printed it for an empty database. */
const readStatements = (version: number): string =>
  readFileSync(join(frozen, `postgres-schema-${version}.sql`), "utf8");

const HASH = "9f43b56b27e6df9d08b3ba0368ddcb5c0e3dc39a4f6e8bed145043a000599a4b";

const STORED = `INSERT INTO plants VALUES (-9223372036854775808, '', ''), (9223372036854775807, 'Größte 🌱', NULL);
INSERT INTO plantstore_tokens (hash, prefix, name, scopes, created_at_ms)
  VALUES ('${HASH}', 'pst_bRap8O', 'till', 'plants:read plants:write', 1);`;

test("there are the statements of every schema, but perhaps the newest: a release keeps those", () => {
  const all = steps.map((_, index) => index + 1);
  expect([all, all.slice(0, -1)]).toContainEqual(versions);
});

test("the statements of every released schema have not changed since", () => {
  const script = listStatements(undefined).map((statement) => `${statement};\n`);
  for (const version of versions) {
    const end = script.findIndex((line) => line.includes(`SET version = ${version} `));
    expect(readStatements(version)).toBe(script.slice(0, end + 1).join("\n"));
  }
});

test("a migration behind a dump lets older instances read and write, and ends after the dump", async () => {
  await using database = await createTestDatabase();
  await database.run(readStatements(1) + STORED);
  await using dump = new SQL(database.url, { max: 1, tls: false });
  await dump.unsafe("BEGIN; SELECT count(*) FROM plants");
  const opening = openStoreAt(database.url);
  const waiting = `SELECT FROM pg_locks WHERE relation = 'plants'::regclass AND NOT granted
    AND mode = 'AccessExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
  await until("it waits", async () => (await database.run(waiting)).length > 0);
  // Answered while the dump runs.
  await database.run("INSERT INTO plants (id, name) VALUES (5, 'old')");
  await dump.unsafe("ROLLBACK");
  await using store = await opening;
  expect((await store.listPlants({ ...everything, hasTimes: true })).plants).toHaveLength(3);
});

test("the script of migrate --dry-run, statement by statement behind a dump, gives up and leaves the schema", async () => {
  await using database = await createTestDatabase();
  await database.run(readStatements(1));
  const plan = await runCommand(["migrate", "--dry-run"], { DATABASE_URL: database.url });
  const statements = plan.stdout.split(/;\n+/).filter((statement) => statement !== "");
  await using dump = new SQL(database.url, { max: 1, tls: false });
  await using client = new SQL(database.url, { max: 1, tls: false });
  /** Continues after an error, as psql does. */
  const runScript = async (): Promise<unknown[]> => {
    const states: unknown[] = [];
    for (const statement of statements)
      await client.unsafe(statement).catch((error: { errno: unknown }) => states.push(error.errno));
    return states;
  };
  const readVersion = () => database.run("SELECT version FROM plantstore_version");

  await dump.unsafe("BEGIN; SELECT count(*) FROM plants");
  expect((await runScript())[0]).toBe("55P03");
  expect(await readVersion()).toEqual([{ version: 1 }]);
  await dump.unsafe("ROLLBACK");
  expect(await runScript()).toEqual([]);
  expect(await readVersion()).toEqual([{ version: steps.length }]);
});

describe.each(versions)("a database of schema %d", (version) => {
  test("announces the change of its schema", async () => {
    await using database = await createTestDatabase();
    await database.run(readStatements(version));
    const changes: SchemaChange[] = [];
    const onMigrate = (change: SchemaChange): unknown => changes.push(change);
    await (await openStoreAt(database.url, { onMigrate })).close();
    expect(changes.map(({ from, to }) => [from, to])).toEqual(
      version === steps.length ? [] : [[version, steps.length]],
    );
  });

  test("keeps its plants and tokens, and accepts more", async () => {
    await using database = await createTestDatabase();
    await database.run(readStatements(version) + STORED);
    await using store = await openStoreAt(database.url);
    expect(await store.createPlant({ id: 2n, name: "Fern", tag: "shade" })).toBe("created");
    const { plants } = await store.listPlants(everything);
    expect(plants.map(({ id, name, tag }) => [id, name, tag])).toEqual([
      [-(2n ** 63n), "", ""],
      [2n, "Fern", "shade"],
      [2n ** 63n - 1n, "Größte 🌱", undefined],
    ]);
    expect((await store.findToken(HASH))?.name).toBe("till");
    const checked = await runCommand(["check"], { DATABASE_URL: database.url });
    expect(checked.exitCode).toBe(0);
  });
});
