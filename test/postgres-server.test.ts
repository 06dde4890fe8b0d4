/** The PostgreSQL servers that other tests rely on do what they are told. */

import { SQL } from "bun";
import { describe, expect, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { rejectionOf } from "./support/expect.ts";
import {
  createTestDatabase,
  createTestSchema,
  sharedPostgres,
  startPair,
  startPostgres,
} from "./support/postgres-server.ts";
import { listChildren, listProcesses } from "./support/processes.ts";

/** Long for a server that answers, and short for a test that waits for one that does not. */
const SILENCE_MS = 200;

describe("a server of the test's own", () => {
  test("is killed, and starts again with what was committed", async () => {
    await using server = await startPostgres();
    await server.run("CREATE TABLE plants (id int8)");
    await server.run("INSERT INTO plants VALUES (9223372036854775807)");
    const firstPid = server.pid;
    await server.kill();
    await rejectionOf(server.run("SELECT 1"));
    await server.start();
    expect(server.pid).not.toBe(firstPid);
    expect(await server.run("SELECT id FROM plants")).toEqual([{ id: 2n ** 63n - 1n }]);
    await server.restart();
    expect(await server.run("SELECT id FROM plants")).toEqual([{ id: 2n ** 63n - 1n }]);
  });

  test("answers nothing while it is paused, and leaves nothing behind", async () => {
    const server = await startPostgres({ settings: { application_name: "paused" } });
    await server.pause();
    const pending = server.run("SHOW application_name");
    expect(await Promise.race([pending, Bun.sleep(SILENCE_MS)])).toBeUndefined();
    server.resume();
    expect(await pending).toEqual([{ application_name: "paused" }]);
    const pids = [server.pid, ...listChildren(server.pid).map(({ pid }) => pid)];
    expect(pids.length).toBeGreaterThan(3);
    await server.pause();
    await server[Symbol.asyncDispose]();
    expect(listProcesses().filter(({ pid }) => pids.includes(pid))).toEqual([]);
    expect(existsSync(server.dataFolder)).toBe(false);
  });

  test("says what it has logged when it does not start", async () => {
    const prepare = (dataFolder: string): void => writeFileSync(join(dataFolder, "PG_VERSION"), "");
    expect(String(await rejectionOf(startPostgres({ prepare })))).toContain("PG_VERSION");
  });
});

test("a synchronous pair acknowledges what both have, and has it after a failover", async () => {
  await using pair = await startPair({ synchronous: true });
  await pair.primary.run("CREATE TABLE plants (id int8)");
  await pair.standby.pause();
  const pending = pair.primary.run("INSERT INTO plants VALUES (1)");
  expect(await Promise.race([pending, Bun.sleep(SILENCE_MS)])).toBeUndefined();
  pair.standby.resume();
  await pending;
  await pair.primary.kill();
  const refusal = await rejectionOf(pair.standby.run("INSERT INTO plants VALUES (2)"));
  expect(refusal).toHaveProperty("errno", "25006");
  await pair.promote();
  await pair.standby.run("INSERT INTO plants VALUES (2)");
  expect(await pair.standby.run("SELECT id FROM plants")).toEqual([{ id: 1n }, { id: 2n }]);
});

describe("of the shared server", () => {
  test("a database is empty, and removed afterwards", async () => {
    const server = await sharedPostgres();
    let databases: string;
    {
      await using one = await createTestDatabase(server);
      databases = `SELECT FROM pg_database WHERE datname = '${one.name}'`;
      expect(one.url).toBe(server.urlOf(one.name));
      expect(
        await server.run("SELECT FROM pg_tables WHERE schemaname = 'public'", one.name),
      ).toEqual([]);
      expect(await server.run(databases)).toHaveLength(1);
    }
    expect(await server.run(databases)).toEqual([]);
  });

  test("a schema is empty, has its isolation, and is removed with its connections", async () => {
    const server = await sharedPostgres();
    const one = await createTestSchema(server);
    await using other = await createTestSchema(server, { serializable: true });
    const connect = (url: string): SQL => new SQL(url, { max: 1 });
    const [first, second] = [connect(one.url), connect(other.url)];
    await first`CREATE TABLE plants (id int8)`;
    const look =
      "SELECT to_regclass('plants')::text AS found, current_setting('transaction_isolation') AS isolation";
    expect([...(await first.unsafe(look))]).toEqual([
      { found: "plants", isolation: "read committed" },
    ]);
    expect([...(await second.unsafe(look))]).toEqual([{ found: null, isolation: "serializable" }]);
    await one[Symbol.asyncDispose]();
    expect(await rejectionOf(first`SELECT 1`)).toBeInstanceOf(Error);
    expect(await rejectionOf(connect(one.url)`SELECT 1`)).toHaveProperty("errno", "28000");
    await second.close();
  });
});
