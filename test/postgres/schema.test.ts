/** How a database becomes a plant store, and when it is left alone. */

import { describe, expect, test } from "bun:test";
import { makeFirstToken, mintToken, readTokens, toRecord } from "../../src/auth/token.ts";
import { resolveConfig } from "../../src/config.ts";
import { StoreOpenError } from "../../src/domain/errors.ts";
import type { Store } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import { steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { rejectionOf } from "../support/expect.ts";
import { FURTHER_STEP } from "../support/limits.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";

const { config } = resolveConfig({}, {});

interface Opened extends AsyncDisposable {
  readonly url: string;
  readonly run: <Row>(statement: string) => Promise<Row[]>;
}

async function openDatabase(): Promise<Opened> {
  const server = await sharedPostgres();
  const database = await createTestDatabase(server);
  return {
    url: database.url,
    run: (statement) => server.run(statement, database.name),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

async function openAndClose(url: string): Promise<void> {
  await (await openStore(url, config)).close();
}

const tables = `SELECT table_name AS name FROM information_schema.tables
  WHERE table_schema = current_schema() ORDER BY 1`;

describe("the schema", () => {
  test("is made by the first of many stores that are opened at once, and once", async () => {
    await using database = await openDatabase();
    const stores: Store[] = await Promise.all(
      Array.from({ length: 8 }, () => openStore(database.url, config)),
    );
    await Promise.all(stores.map((store, id) => store.createPlant(plant(BigInt(id)))));
    await Promise.all(stores.map((store) => store.close()));
    expect(await database.run("SELECT version FROM plantstore_version")).toEqual([
      { version: steps.length },
    ]);
    expect(await database.run("SELECT count(*)::int AS count FROM plants")).toEqual([{ count: 8 }]);
  });

  test("that a newer plantstore has made is not touched", async () => {
    await using database = await openDatabase();
    await openAndClose(database.url);
    await database.run(`UPDATE plantstore_version SET version = ${steps.length + 1}`);
    const error = await rejectionOf(openStore(database.url, config));
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as Error).message).toContain("A newer plantstore wrote it");
    for (const command of [["migrate"], ["migrate", "--dry-run"], ["check"]])
      expect(await runCommand(command, { DATABASE_URL: database.url })).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining("A newer plantstore wrote it") as string,
      });
  });

  test("is not made beside a table of somebody else's with our name", async () => {
    await using database = await openDatabase();
    await database.run("CREATE TABLE plants (colour text)");
    const error = await rejectionOf(openStore(database.url, config));
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as Error).message).toContain(
      "a table plants that plantstore 1.0 or newer did not make",
    );
    expect(await database.run(tables)).toEqual([{ name: "plants" }]);
  });

  test("is finished by the next instance if one died during the migration", async () => {
    await using database = await openDatabase();
    await openAndClose(database.url);
    await database.run("DROP TABLE plantstore_webhooks");
    await database.run("UPDATE plantstore_version SET version = 0");
    await openAndClose(database.url);
    expect(await runCommand(["check"], { DATABASE_URL: database.url })).toMatchObject({
      exitCode: 0,
    });
  });

  test("is migrated once, and the change is announced first", async () => {
    await using database = await openDatabase();
    await openAndClose(database.url);
    const env = { DATABASE_URL: database.url, ...FURTHER_STEP };
    const [plan, first, second] = [
      await runCommand(["migrate", "--dry-run"], env),
      await runCommand(["migrate"], env),
      await runCommand(["migrate"], env),
    ];
    expect(plan.stdout).toStartWith("-- The schema of ");
    expect(first.stderr).toMatch(/changes from 1 to 2\. The previous version of plantstore cannot/);
    expect(second).toMatchObject({ exitCode: 0, stderr: "" });
    expect(await database.run("SELECT version FROM plantstore_version")).toEqual([
      { version: steps.length + 1 },
    ]);
  });

  test("without a grant on the tokens, the service ends with the reason", async () => {
    await using database = await openDatabase();
    const name = `clerk_${Date.now()}`;
    await openAndClose(database.url);
    await database.run(`CREATE ROLE ${name} LOGIN`);
    try {
      await database.run(
        `GRANT SELECT, INSERT, UPDATE, DELETE ON plants, plantstore_changes, plantstore_marks TO ${name}`,
      );
      await database.run(`GRANT SELECT ON plantstore_version TO ${name}`);
      const DATABASE_URL = database.url.replace("//postgres@", `//${name}@`);
      const { exitCode, stdout, stderr } = await runCommand(["serve"], { DATABASE_URL, PORT: "0" });
      expect([exitCode, stdout]).toEqual([1, ""]);
      expect(stderr).toContain("plantstore_tokens");
    } finally {
      await database.run(`DROP OWNED BY ${name}`);
      await database.run(`DROP ROLE ${name}`);
    }
  });

  test("can be made apart, for a user who may not", async () => {
    await using database = await openDatabase();
    const name = `clerk_${Date.now()}`;
    await database.run(`CREATE ROLE ${name} LOGIN`);
    try {
      const clerkUrl = database.url.replace("//postgres@", `//${name}@`);
      const refused = await rejectionOf(openStore(clerkUrl, config));
      expect((refused as Error).message).toContain(
        "Run plantstore migrate as a user with the CREATE privilege",
      );

      const env = { DATABASE_URL: database.url };
      const plan = await runCommand(["migrate", "--dry-run"], env);
      expect(plan.exitCode).toBe(0);
      expect(await database.run(tables)).toEqual([]);
      await database.run(plan.stdout);
      expect((await runCommand(["migrate", "--dry-run"], env)).stdout).toContain("Nothing to do");
      expect((await runCommand(["migrate"], env)).stdout).toContain("is up to date");

      await database.run(
        `GRANT SELECT, INSERT, UPDATE, DELETE ON plants, plantstore_changes, plantstore_tokens, plantstore_marks TO ${name}`,
      );
      await database.run(`GRANT SELECT ON plantstore_version TO ${name}`);
      const store = await openStore(clerkUrl, config);
      try {
        expect(await store.createPlant(plant(1n))).toBe("created");
        await store.replacePlant({ ...plant(1n), name: "other" }, {});
        await store.removePlant(1n, {});
        const all = { after: 0, limit: 9, id: undefined, types: undefined };
        expect((await store.readChanges(all)).changes).toHaveLength(3);
        await store.probe();
        expect(await makeFirstToken(store)).toStartWith("pst_");
      } finally {
        await store.close();
      }
    } finally {
      await database.run(`DROP OWNED BY ${name}`);
      await database.run(`DROP ROLE ${name}`);
    }
  });

  test("is migrated by its own command, which says from where to where", async () => {
    await using database = await openDatabase();
    const env = { DATABASE_URL: database.url };
    expect(await runCommand(["migrate"], env)).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(
        new RegExp(`^Migrated postgres://.* from schema 0 to ${steps.length}\\.\n$`),
      ) as string,
    });
    await openAndClose(database.url);
  });
});

describe("a server", () => {
  test("that does not sync its commits is refused: it would lose what it has acknowledged", async () => {
    await using database = await openDatabase();
    const name = new URL(database.url).pathname.slice(1);
    await database.run(`ALTER DATABASE ${name} SET synchronous_commit = off`);
    const error = await rejectionOf(openStore(database.url, config));
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as Error).message).toContain("synchronous_commit=off");
  });

  test("whose database cannot hold every name is refused", async () => {
    const server = await sharedPostgres();
    await server.run(`CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    try {
      const error = await rejectionOf(openStore(server.urlOf("latin"), config));
      expect((error as Error).message).toContain("LATIN1");
    } finally {
      await server.run("DROP DATABASE latin WITH (FORCE)");
    }
  });

  test("that is not there is waited for no longer than a request would be, and told in a sentence", async () => {
    const patience = { ...config, queueSecondsMax: 1 };
    const error = await rejectionOf(openStore("postgres://clerk:secret@127.0.0.1:1/x", patience));
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as Error).message).toMatch(/^postgres:\/\/clerk@127\.0\.0\.1:1\/x cannot be/);
  });

  test("without the database is told at once", async () => {
    const server = await sharedPostgres();
    // Otherwise this would run into its time-out.
    const patience = { ...config, queueSecondsMax: 3_600 };
    const error = await rejectionOf(openStore(server.urlOf("nowhere"), patience));
    expect((error as Error).message).toContain('database "nowhere" does not exist');
  });
});

test("tokens, however many, are stored by one statement and touched by one: a health check waits for it", async () => {
  await using database = await openDatabase();
  const store = await openStore(database.url, config);
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
  await store.close();
});

const plant = (id: bigint) => ({ id, name: "Fern", tag: undefined });
