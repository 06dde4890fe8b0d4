/** How a database becomes a plant store, and when it is left alone. */

import { describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { makeFirstToken } from "../../src/auth/first-token.ts";
import { mintToken, readTokens, toRecord } from "../../src/auth/token.ts";
import { steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { openStoreAt } from "../support/database.ts";
import { failure, openErrorOf, rejectionOf } from "../support/expect.ts";
import { FURTHER_STEP } from "../support/limits.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { until } from "../support/until.ts";

async function openAndClose(url: string): Promise<void> {
  await (await openStoreAt(url)).close();
}

async function expectNotOpened(url: string, says: string): Promise<void> {
  expect((await openErrorOf(url)).message).toContain(says);
}

const tables = `SELECT table_name AS name FROM information_schema.tables
  WHERE table_schema = current_schema() ORDER BY 1`;

describe("the schema", () => {
  test("that a newer plantstore has made is not touched", async () => {
    await using database = await createTestDatabase();
    await openAndClose(database.url);
    await database.run(`UPDATE plantstore_version SET version = ${steps.length + 1}`);
    await expectNotOpened(database.url, "A newer plantstore wrote it");
    for (const command of [["migrate"], ["migrate", "--dry-run"], ["check"]])
      expect(await runCommand(command, { DATABASE_URL: database.url })).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining("A newer plantstore wrote it") as string,
      });
  });

  test("is not made beside a table of somebody else's with our name", async () => {
    await using database = await createTestDatabase();
    await database.run("CREATE TABLE plants (colour text)");
    const says = "a table plants that plantstore 1.0 or newer did not make";
    await expectNotOpened(database.url, says);
    expect(await database.run(tables)).toEqual([{ name: "plants" }]);
  });

  test("is finished by the next instance if one died during the migration", async () => {
    await using database = await createTestDatabase();
    await openAndClose(database.url);
    await database.run("DROP TABLE plantstore_webhooks");
    await database.run("UPDATE plantstore_version SET version = 0");
    await openAndClose(database.url);
    const checked = await runCommand(["check"], { DATABASE_URL: database.url });
    expect(checked.exitCode).toBe(0);
  });

  test.each(["plants", "plantstore_changes", "plantstore_marks"])(
    "without its table %s is not opened, and the table is named",
    async (name) => {
      await using database = await createTestDatabase();
      await openAndClose(database.url);
      await database.run(`ALTER TABLE ${name} RENAME TO elsewhere`);
      await expectNotOpened(database.url, `lacks the table ${name}. Another program removed`);
      const env = { DATABASE_URL: database.url, PORT: "0" };
      expect(await runCommand(["serve"], env)).toEqual(failure(1, `lacks the table ${name}`));
      const checked = await runCommand(["check"], env);
      expect(checked.exitCode).toBe(1);
      expect(checked.stdout + checked.stderr).toContain(`The table ${name} is missing`);
      await database.run(`ALTER TABLE elsewhere RENAME TO ${name}`);
      await openAndClose(database.url);
    },
  );

  test("without an index is opened, and a check names it", async () => {
    await using database = await createTestDatabase();
    await openAndClose(database.url);
    await database.run("DROP INDEX plants_tag");
    await openAndClose(database.url);
    const checked = await runCommand(["check"], { DATABASE_URL: database.url });
    expect(checked.stdout + checked.stderr).toContain("The index plants_tag is missing");
  });

  test("is waited for while another instance migrates it, however long a statement may take", async () => {
    await using database = await createTestDatabase();
    await openAndClose(database.url);
    await database.run("UPDATE plantstore_version SET version = 0");
    await using other = new SQL(database.url, { max: 1, tls: false });
    await other.unsafe("BEGIN; SELECT FROM plantstore_version FOR UPDATE");
    const opening = openStoreAt(database.url, { statementSecondsMax: 0.2, queueSecondsMax: 240 });
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database()
      AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '0.4 s'`;
    await until("it waits", async () => (await database.run(waiting)).length > 0);
    await other.unsafe("ROLLBACK");
    await (await opening).close();
  });

  test("is migrated by its own command, once, and the change is announced first", async () => {
    await using database = await createTestDatabase();
    const made = await runCommand(["migrate"], { DATABASE_URL: database.url });
    expect(made.stdout).toStartWith("Migrated postgres://");
    expect(made.stdout).toEndWith(` from schema 0 to ${steps.length}.\n`);
    const env = { DATABASE_URL: database.url, ...FURTHER_STEP };
    const [plan, first, second] = [
      await runCommand(["migrate", "--dry-run"], env),
      await runCommand(["migrate"], env),
      await runCommand(["migrate"], env),
    ];
    expect(plan.stdout).toStartWith("-- The schema of ");
    expect(first.stderr).toContain(
      `changes from ${steps.length} to ${steps.length + 1}. The previous version of plantstore cannot`,
    );
    expect(second).toMatchObject({ exitCode: 0, stderr: "" });
    expect(await database.run("SELECT version FROM plantstore_version")).toEqual([
      { version: steps.length + 1 },
    ]);
  });

  test("can be made for a user who may not, with each grant that is missing named", async () => {
    await using database = await createTestDatabase();
    const clerk = `clerk_of_${database.name}`;
    await database.run(`CREATE ROLE ${clerk} LOGIN`);
    const url = database.url.replace("//postgres@", `//${clerk}@`);
    await expectNotOpened(url, "Run plantstore migrate as a user with the CREATE privilege");

    const env = { DATABASE_URL: database.url };
    const plan = await runCommand(["migrate", "--dry-run"], env);
    expect(plan.exitCode).toBe(0);
    expect(await database.run(tables)).toEqual([]);
    await database.run(plan.stdout);
    expect((await runCommand(["migrate", "--dry-run"], env)).stdout).toContain("Nothing to do");
    expect((await runCommand(["migrate"], env)).stdout).toContain("is up to date");

    const grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON";
    await database.run(`${grant} plants, plantstore_changes, plantstore_marks TO ${clerk}`);
    await database.run(`GRANT SELECT ON plantstore_version TO ${clerk}`);
    await expectNotOpened(url, "plantstore_journal_marks");
    await database.run(`${grant} plantstore_journal_marks TO ${clerk}`);
    const served = await runCommand(["serve"], { DATABASE_URL: url, PORT: "0" });
    expect(served).toEqual(failure(1, "plantstore_tokens"));

    await database.run(`${grant} plantstore_tokens TO ${clerk}`);
    await using store = await openStoreAt(url);
    expect(await store.createPlant({ id: 1n, name: "Fern" })).toBe("created");
    await store.replacePlant({ id: 1n, name: "other" }, {});
    await store.removePlant(1n, {});
    const all = { after: 0, limit: 9, id: undefined, types: undefined };
    expect((await store.readChanges(all)).changes).toHaveLength(3);
    await store.probe();
    expect(await makeFirstToken(store)).toStartWith("pst_");

    await database.run(`REVOKE SELECT ON plants FROM ${clerk}`);
    const refused = await runCommand(["export"], { DATABASE_URL: url });
    expect(refused).toEqual(failure(1, "permission denied for table plants."));
  });
});

describe("a server is refused", () => {
  test("that does not sync its commits: it would lose what it has acknowledged", async () => {
    await using database = await createTestDatabase();
    await database.run(`ALTER DATABASE ${database.name} SET synchronous_commit = off`);
    await expectNotOpened(database.url, "synchronous_commit=off");
  });

  test.each(["disable", "prefer", "require"])(
    "that is none: a port at which something else answers is named (sslmode=%s)",
    async (mode) => {
      using http = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
      const url = `postgres://a@127.0.0.1:${http.port}/plants?sslmode=${mode}`;
      const refused = await rejectionOf(openStoreAt(url, { queueSecondsMax: 1 }));
      expect(refused).toMatchObject({
        message: `postgres://a@127.0.0.1:${http.port}/plants cannot be opened: 127.0.0.1:${http.port} answers, but not as a PostgreSQL server: this is not its port.`,
      });
    },
  );

  test("whose database cannot hold every name, or is not there", async () => {
    const server = await sharedPostgres();
    await server.run(`CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    await expectNotOpened(server.urlOf("latin"), "LATIN1");
    await expectNotOpened(server.urlOf("nowhere"), 'database "nowhere" does not exist');
  });
});

test("tokens, however many, are stored by one statement and touched by one: a health check waits for it", async () => {
  await using database = await createTestDatabase();
  await using store = await openStoreAt(database.url);
  const writesOf = (): Promise<{ rows: number; writes: number }[]> =>
    database.run(`SELECT count(*)::int AS rows, count(DISTINCT xmin::text)::int AS writes
      FROM plantstore_tokens WHERE last_used_at_ms IS NOT NULL`);
  const grant = { scopes: ["plants:read"], createdAtMs: 1 } as const;
  const tokens = Array.from({ length: 50 }, (_, at) => ({
    ...toRecord(mintToken(), { ...grant, name: `t${at}` }),
    lastUsedAtMs: 1,
  }));
  expect(await store.adoptTokens(tokens)).toEqual([]);
  expect(await writesOf()).toEqual([{ rows: 50, writes: 1 }]);
  await store.touchTokens(new Map(tokens.map(({ hash }) => [hash, 2])));
  expect(await writesOf()).toEqual([{ rows: 50, writes: 1 }]);
  const used = (await readTokens(store)).map(({ lastUsedAtMs }) => lastUsedAtMs);
  expect(used).toEqual(tokens.map(() => 2));
});
