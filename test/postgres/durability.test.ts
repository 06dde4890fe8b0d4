/** What a commit waits for, what is refused because it waits for less, and settings that change under open connections. */

import { afterAll, describe, expect, test } from "bun:test";
import { openErrorOf } from "../support/expect.ts";
import { runCommand } from "../support/command.ts";
import { openStoreAt } from "../support/database.ts";
import { readRefusal, type StoredPlant } from "../support/plants.ts";
import { createTestDatabase, startPair, startPostgres } from "../support/postgres-server.ts";
import { sendPlant, startService } from "../support/service.ts";
import { until } from "../support/until.ts";

const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());
const pair = opened.use(await startPair({ synchronous: true }));
const single = opened.use(await startPostgres());

const fern = (id: bigint): StoredPlant => ({ id, name: "fern", tag: null });

describe("a server with a synchronous standby", () => {
  test.each([
    ["local", "does not wait for the synchronous standby"],
    ["remote_write", "does not wait until the synchronous standby has it on disk"],
    ["off", "runs with synchronous_commit=off"],
  ])("and synchronous_commit=%s is refused, in words", async (level, says) => {
    await using database = await createTestDatabase(pair.primary);
    await database.run(`ALTER DATABASE ${database.name} SET synchronous_commit = ${level}`);
    const { message } = await openErrorOf(database.url);
    expect(message).toContain(says);
    expect(message).toEndWith("Set synchronous_commit to on.");
  });

  test.each([
    ["on", "synced on the server and on its synchronous standby (synchronous_standby_names=*)"],
    ["remote_apply", "and on its synchronous standby, and applied there"],
  ])("and synchronous_commit=%s says what is waited for", async (level, says) => {
    await using database = await createTestDatabase(pair.primary);
    await database.run(`ALTER DATABASE ${database.name} SET synchronous_commit = ${level}`);
    await using store = await openStoreAt(database.url);
    expect(store.description.durability).toContain(says);
    expect(store.description.durability).toEndWith(`(synchronous_commit=${level})`);
  });
});

describe("a server without a synchronous standby", () => {
  test.each(["local", "remote_write", "on", "remote_apply"])(
    "and synchronous_commit=%s syncs on its own disk, and the service claims no more",
    async (level) => {
      await using database = await createTestDatabase(single);
      await database.run(`ALTER DATABASE ${database.name} SET synchronous_commit = ${level}`);
      await using store = await openStoreAt(database.url);
      expect(store.description.durability).toBe(
        `every answer is sent after its commit is synced on the server, which has no synchronous standby (synchronous_commit=${level})`,
      );
      const checked = await runCommand(["check"], { DATABASE_URL: database.url });
      expect(checked.stdout).toContain("a commit is synced on the server, which has no");
    },
  );

  test.each([
    ["local", "on"],
    ["remote_apply", "remote_apply"],
  ])(
    "every statement that changes a plant raises %s to %s for its own commit",
    async (set, used) => {
      await using database = await createTestDatabase(single);
      await database.run(`ALTER DATABASE ${database.name} SET synchronous_commit = ${set}`);
      await using store = await openStoreAt(database.url);
      await database.run(`CREATE TABLE seen (level text);
      CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO seen VALUES (TG_OP || ' ' || current_setting('synchronous_commit')); RETURN NULL; END $$;
      CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON plants EXECUTE FUNCTION see()`);
      const plants = [1n, 2n, 3n].map((id) => ({ id, name: "fern", tag: undefined }));
      await store.createPlant({ id: 9n, name: "alone" });
      await store.createPlants(plants);
      await store.replacePlant({ id: 1n, name: "moss" }, {});
      await store.removePlant(2n, {});
      const seen = await database.run<{ level: string }>("SELECT level FROM seen");
      expect(new Set(seen.map(({ level }) => level))).toEqual(
        new Set(["INSERT", "UPDATE", "DELETE"].map((kind) => `${kind} ${used}`)),
      );
    },
  );
});

test.each(["synchronous_commit", "fsync"])(
  "%s that becomes off under open connections is noticed: writes are refused until it is mended",
  async (name) => {
    await using database = await createTestDatabase(single);
    await using service = await startService({ DATABASE_URL: database.url });
    const { url } = service;
    let id = 0n;
    const create = async (): Promise<unknown> => readRefusal(await sendPlant(url, fern(++id)));
    expect(await create()).toBe(200);
    const set = async (assignment: string): Promise<void> => {
      await single.run(`ALTER SYSTEM ${assignment}`);
      await single.run("SELECT pg_reload_conf()");
    };
    await set(`SET ${name} = off`);
    try {
      await until("creates are refused", async () => (await create()) === "store_refused");
      expect(service.logLines.join("")).toContain(`runs with ${name}=off: it would lose plants`);
    } finally {
      await set(`RESET ${name}`);
    }
    await until("creates succeed", async () => (await create()) === 200);
  },
);
