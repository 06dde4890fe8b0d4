/** /readyz on PostgreSQL: whether a plant could be created, and nothing else. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { rmSync } from "node:fs";
import { expectError, rejectionOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { isReplay, readRefusal, type StoredPlant } from "../support/plants.ts";
import { giveToServer } from "../support/postgres-files.ts";
import {
  createTestDatabase,
  type PostgresServer,
  startPostgres,
} from "../support/postgres-server.ts";
import { openStoreAt } from "../support/database.ts";
import { runSync } from "../support/processes.ts";
import { sendPlant, startService } from "../support/service.ts";
import { canMount, mountSmallFolder } from "../support/small-disk.ts";
import { until } from "../support/until.ts";

/** Longer than a test may take: what waits that long runs into its time-out. */
const patience = limits({ queueSecondsMax: 240, statementSecondsMax: 240, idleSecondsMax: 255 });

const fern = (id: bigint, name = "fern"): StoredPlant => ({ id, name, tag: null });

const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());
let server: PostgresServer;
let small: string | undefined;
beforeAll(async () => {
  // Before the server, which has to be gone when it is unmounted.
  if (canMount) small = opened.use(mountSmallFolder("24M")).path;
  server = opened.use(await startPostgres({ settings: { shared_buffers: "16MB" } }));
  await server.run("CREATE ROLE owner LOGIN; CREATE ROLE clerk LOGIN");
});

/** A service whose user, unlike a superuser, needs every privilege. */
async function startAsOwner(database: { readonly url: string; readonly name: string }) {
  await server.run(`ALTER DATABASE ${database.name} OWNER TO owner`);
  const url = database.url.replace("//postgres@", "//owner@");
  return startService({ DATABASE_URL: url, ...patience });
}

const turns = (url: string, status: 200 | 503): Promise<void> =>
  until(`/readyz answers ${status}`, async () => (await fetch(`${url}/readyz`)).status === status);

const readTraces = `SELECT (SELECT count(*) FROM plants) AS plants,
  (SELECT count(*) FROM plantstore_changes) AS blocks, (SELECT max(last) FROM plantstore_changes) AS last`;

describe("/readyz", () => {
  const ADD = "ALTER TABLE plants ADD CONSTRAINT closed CHECK (false) NOT VALID";
  test.each([
    [
      "a privilege on plants is revoked",
      "REVOKE INSERT ON plants FROM owner",
      "GRANT INSERT ON plants TO owner",
    ],
    [
      "a privilege on the journal is revoked",
      "REVOKE INSERT ON plantstore_changes FROM owner",
      "GRANT INSERT ON plantstore_changes TO owner",
    ],
    [
      "a column is renamed",
      "ALTER TABLE plants RENAME COLUMN tag TO kind",
      "ALTER TABLE plants RENAME COLUMN kind TO tag",
    ],
    [
      "the table is gone",
      "ALTER TABLE plants RENAME TO elsewhere",
      "ALTER TABLE elsewhere RENAME TO plants",
    ],
    [
      "its key is gone",
      "ALTER TABLE plants DROP CONSTRAINT plants_pkey",
      "ALTER TABLE plants ADD PRIMARY KEY (id)",
    ],
  ])(
    "answers 503 while %s, and a create is refused at once and stores nothing",
    async (_, spoil, mend) => {
      await using database = await createTestDatabase(server);
      await using service = await startAsOwner(database);
      await turns(service.url, 200);
      await database.run(spoil);
      await turns(service.url, 503);
      await expectError(
        await sendPlant(service.url, fern(1n)),
        "store_refused",
        "nothing was stored",
      );
      expect((await fetch(`${service.url}/readyz`)).status).toBe(503);
      await database.run(mend);
      await turns(service.url, 200);
      const created = await sendPlant(service.url, fern(1n));
      expect([created.status, isReplay(created)]).toEqual([200, false]);
    },
  );

  test("answers 503 while plants is locked, and leaves no session that waits", async () => {
    await using database = await createTestDatabase(server);
    await using service = await startAsOwner(database);
    await turns(service.url, 200);
    await using other = new SQL(server.urlOf(database.name), { max: 1, tls: false });
    await other.unsafe("BEGIN; LOCK TABLE plants");
    await turns(service.url, 503);
    const waiting = `SELECT pid FROM pg_stat_activity WHERE usename = 'owner' AND wait_event_type = 'Lock'`;
    await until("no probe waits", async () => (await server.run(waiting)).length === 0);
    await other.unsafe("ROLLBACK");
    await turns(service.url, 200);
  });

  test("answers 503 while a constraint refuses every plant", async () => {
    await using database = await createTestDatabase(server);
    await using service = await startAsOwner(database);
    await database.run(ADD);
    await turns(service.url, 503);
    await database.run("ALTER TABLE plants DROP CONSTRAINT closed");
    await turns(service.url, 200);
  });

  test("needs no journal if none is kept", async () => {
    await using database = await createTestDatabase(server);
    await using store = await openStoreAt(database.url, { changesDays: 0 });
    await store.probe();
    await database.run("DROP TABLE plantstore_changes");
    await store.probe();
    await database.run("ALTER TABLE plants RENAME TO elsewhere");
    expect(await rejectionOf(store.probe())).toMatchObject({ reason: "store_refused" });
  });

  test("leaves no plant and no change behind, and removes none", async () => {
    await using database = await createTestDatabase(server);
    await using store = await openStoreAt(database.url);
    const before = await database.run(readTraces);
    await store.probe();
    await store.probe();
    expect(await database.run(readTraces)).toEqual(before);
    const smallest = fern(-(2n ** 63n));
    await store.createPlant({ id: smallest.id, name: "first" });
    await using another = await openStoreAt(database.url);
    await another.probe();
    expect(await database.run("SELECT id, name, tag FROM plants")).toEqual([
      { ...smallest, name: "first" },
    ]);
    const all = { after: 0, limit: 9, id: undefined, types: undefined };
    expect((await another.readChanges(all)).changes).toHaveLength(1);
  });
});

describe("a server that takes no further connection", () => {
  test("is ready as long as those for writes are open, and a write waits for one of them", async () => {
    await using database = await createTestDatabase(server);
    await server.run(`ALTER DATABASE ${database.name} OWNER TO clerk`);
    const url = database.url.replace("//postgres@", "//clerk@");
    const patient = { queueSecondsMax: 240, statementSecondsMax: 240 };
    await using store = await openStoreAt(url, patient);
    const plant = { id: 1n, name: "fern" };
    await database.run("INSERT INTO plants VALUES (1, 'fern')");
    expect(await store.createPlant(plant)).toBe("replayed");
    await server.run("ALTER ROLE clerk CONNECTION LIMIT 0");
    try {
      await store.probe();
      await using other = new SQL(server.urlOf(database.name), { max: 1, tls: false });
      await other.unsafe("BEGIN; INSERT INTO plants VALUES (2, 'held')");
      const waiting = `SELECT pid FROM pg_stat_activity WHERE usename = 'clerk' AND wait_event_type = 'Lock'`;
      const first = store.createPlant({ id: 2n, name: "moss" });
      await until("the first waits", async () => (await server.run(waiting)).length === 1);
      const second = store.createPlant({ id: 3n, name: "moss" });
      await until("the second finds no connection", () =>
        /too many connections for role "clerk"/.test(server.log()),
      );
      await other.unsafe("ROLLBACK");
      expect(await Promise.all([first, second])).toEqual(["created", "created"]);
    } finally {
      await server.run("ALTER ROLE clerk CONNECTION LIMIT -1");
    }
  });
});

describe.skipIf(!canMount)("a server whose disk is full", () => {
  const fill = (): string => `${small}/fill`;
  /** Until nothing more fits. */
  function fillDisk(): void {
    runSync(["dd", "if=/dev/zero", `of=${fill()}`, "bs=4096"], { stderr: "ignore" });
  }

  test("stores exactly the creates that were not refused, and is not ready until there is space again", async () => {
    giveToServer(small as string);
    await server.run(`CREATE TABLESPACE small LOCATION '${small}'`);
    await server.run("CREATE DATABASE tiny TEMPLATE template0 STRATEGY wal_log TABLESPACE small");
    const database = { url: server.urlOf("tiny"), name: "tiny" };
    await using service = await startAsOwner(database);
    const { url } = service;
    await using idle = await openStoreAt(database.url);
    await turns(url, 200);
    expect((await sendPlant(url, fern(1n))).status).toBe(200);
    fillDisk();
    const refused: StoredPlant[] = [];
    const stored = [fern(1n)];
    for (let id = 2n; refused.length === 0; id++) {
      const plant = fern(id, "long ".repeat(400) + id);
      const answer = await readRefusal(await sendPlant(url, plant));
      expect([200, "disk_low"]).toContain(answer as string);
      (answer === 200 ? stored : refused).push(plant);
    }
    await turns(url, 503);
    const again = await sendPlant(url, fern(1n));
    expect([again.status, isReplay(again)]).toEqual([200, true]);
    expect(
      await server.run<StoredPlant>("SELECT id, name, tag FROM plants ORDER BY id", "tiny"),
    ).toEqual(stored);
    // Without a write that failed, the probe itself has to find it.
    expect(await rejectionOf(idle.probe())).toMatchObject({
      reason: "disk_low",
    });
    rmSync(fill());
    await turns(url, 200);
    for (const plant of refused) expect((await sendPlant(url, plant)).status).toBe(200);
  });
});
