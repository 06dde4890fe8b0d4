/** plantstore backup: what a copy holds, what it leaves alone, and how it ends. */

import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { Clients } from "./support/clients.ts";
import { launcher, runCommand, runOnTerminal, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { isReplay, isSamePlant } from "./support/plants.ts";
import { createRandom } from "./support/random.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";
import {
  alter,
  checkIntegrity,
  damage,
  makeCrashedStore,
  makeStore,
  overwrite,
  readFolder,
  readPlants,
} from "./support/stores.ts";
import { until } from "./support/until.ts";

const CLIENTS = 8;

describe("plantstore backup, while plants are being stored", () => {
  test("has every plant acknowledged before it began, stops no writes, and serves them when restored", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db`, PLANTSTORE_TOKEN: TEST_TOKEN };
    const copy = `${folder.path}/copy.db`;
    await using service = await spawnService(env);
    const surroundings = { findUrl: () => service.started.url, createsOnly: true };
    await using load = new Clients(CLIENTS, surroundings, createRandom());
    await load.untilAcknowledged(2_000);

    const before = load.ledger.listCertain();
    const finished = await runCommand(["backup", "--json", copy], env);
    const after = load.acknowledged;
    await load.untilAcknowledged(100);
    await load.stop();
    expect(load.compare(readPlants(`${folder.path}/plants.db`))).toEqual([]);
    expect(load.unsettled).toBe(0);

    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(after).toBeGreaterThan(before.length);
    const rows = new Map(readPlants(copy).map((plant) => [plant.id, plant]));
    const lost = before.filter((plant) => {
      const row = rows.get(plant.id);
      return row === undefined || !isSamePlant(row, plant);
    });
    expect(lost).toEqual([]);
    expect(JSON.parse(finished.stdout)).toMatchObject({ plants: rows.size, tokens: 0 });
    expect(checkIntegrity(copy)).toBe("ok");

    const restoredTo = { ...env, DATABASE_URL: `sqlite:${folder.path}/restored/plants.db` };
    expect(await runCommand(["restore", copy], restoredTo)).toMatchObject({ exitCode: 0 });
    await using restored = await spawnService(restoredTo);
    for (const plant of before.slice(-100)) {
      const response = await sendPlant(restored.started.url, plant);
      expect([response.status, isReplay(response)]).toEqual([200, true]);
    }
  });
});

describe("plantstore backup", () => {
  test("makes one file for its owner alone, says what is in it, and leaves the store as it was", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    makeStore(`${folder.path}/plants.db`, 1234);
    await runCommand(["token", "create", "--name", "till"], env);
    const before = readFolder(folder.path);

    const finished = await runCommand(["backup", `${folder.path}/copy.db`], env);
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toMatch(/^ {2}To {6}\S+\/copy\.db$/m);
    expect(finished.stdout).toMatch(/^ {2}Plants {2}1,234$/m);
    expect(finished.stdout).toMatch(/^ {2}Tokens {2}1$/m);
    expect(readFolder(folder.path)).toEqual({ ...before, "copy.db": expect.any(String) });
    expect(statSync(`${folder.path}/copy.db`).mode & 0o777).toBe(0o600);
    expect(readPlants(`${folder.path}/copy.db`)).toEqual(readPlants(`${folder.path}/plants.db`));
  });

  test("- is standard output, and standard input of restore", async () => {
    using folder = makeTemporaryFolder();
    makeStore(`${folder.path}/plants.db`, 5_000);
    const script = '"$0" backup - --json | (cd away && "$0" restore -)';
    mkdirSync(`${folder.path}/away`);
    const child = Bun.spawn(["sh", "-c", script, launcher], {
      cwd: folder.path,
      env: { PATH: process.env["PATH"] ?? "", DATABASE_URL: "sqlite:plants.db" },
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    expect(await child.exited).toBe(0);
    expect(JSON.parse(stderr)).toMatchObject({ event: "backed_up", to: "-", plants: 5_000 });
    expect(stdout).toMatch(/^ {2}From {4}-$/m);
    expect(stdout).toMatch(/^ {2}Plants {2}5,000$/m);
    const restored = readPlants(`${folder.path}/away/plants.db`);
    expect(Bun.deepEquals(restored, readPlants(`${folder.path}/plants.db`))).toBe(true);
    expect(readdirSync(folder.path).toSorted()).toEqual(["away", "plants.db"]);
  });

  test("- fails if the reader of standard output leaves before the end", async () => {
    using folder = makeTemporaryFolder();
    makeStore(`${folder.path}/plants.db`, 5_000);
    const script = '{ "$0" backup -; echo "exit $?" >&2; } | true';
    const child = Bun.spawn(["sh", "-c", script, launcher], {
      env: { PATH: process.env["PATH"] ?? "", DATABASE_URL: `sqlite:${folder.path}/plants.db` },
      stderr: "pipe",
    });
    expect(await new Response(child.stderr).text()).toBe(
      "plantstore: standard output: broken pipe.\nexit 1\n",
    );
  });

  test("- is refused where standard output is a terminal", async () => {
    using folder = makeTemporaryFolder();
    makeStore(`${folder.path}/plants.db`, 5);
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    const { exitCode, screen } = await runOnTerminal(["backup", "-"], env);
    expect(exitCode).toBe(2);
    expect(screen).toContain("standard output is a terminal");
  });

  test("has what a crashed service left in its log", async () => {
    using folder = makeTemporaryFolder();
    makeCrashedStore(`${folder.path}/plants.db`, 50);
    const { "plants.db": file, "plants.db-wal": log } = readFolder(folder.path);
    const finished = await runCommand(["backup", "--json", `${folder.path}/copy.db`], {
      DATABASE_URL: `sqlite:${folder.path}/plants.db`,
    });
    expect(JSON.parse(finished.stdout)).toMatchObject({ event: "backed_up", plants: 50 });
    expect(readFolder(folder.path)).toMatchObject({ "plants.db": file, "plants.db-wal": log });
  });

  test.each([
    ["none.db", ["copy.db"], 1, "none.db does not exist."],
    ["plants.db", ["none/copy.db"], 1, "none does not exist."],
    ["plants.db", ["folder"], 1, "folder exists, and is not overwritten."],
    ["plants.db", ["plants.db"], 1, "plants.db exists, and is not overwritten."],
    ["plants.db", ["link.db"], 1, "link.db exists, and is not overwritten."],
    ["plants.db", ["newer.db"], 1, "newer.db exists, and is not overwritten."],
    ["plants.db", ["text.txt"], 1, "text.txt exists, and is not overwritten."],
    ["plants.db", ["plants.db-wal"], 1, "is a name that SQLite uses for a part of the store."],
    ["link.db", ["plants.db-wal"], 1, "is a name that SQLite uses for a part of the store."],
    ["plants.db", ["orphan.db"], 1, "orphan.db-wal exists without the file"],
    ["plants.db", ["--force", "copy.db"], 2, "unknown option '--force'"],
    ["foreign.db", ["copy.db"], 1, "foreign.db is not a plant store of version 1.0 or newer."],
    ["newer.db", ["copy.db"], 1, "has schema 99"],
    ["text.txt", ["copy.db"], 1, "file is not a database"],
    ["damaged.db", ["copy.db"], 1, "damaged.db cannot be copied"],
    ["unindexed.db", ["copy.db"], 1, "unindexed.db is damaged: row 1999 missing from index"],
    ["plants.db", [], 2, "missing required argument"],
    ["plants.db", [""], 2, "<file>: expected a path, got nothing"],
  ])("of %s to %j is refused, and nothing is made or changed", async (store, args, code, says) => {
    using folder = makeTemporaryFolder();
    const at = (name: string): string => `${folder.path}/${name}`;
    for (const name of ["plants.db", "newer.db", "damaged.db", "unindexed.db"])
      makeStore(at(name), 2_000);
    alter(at("newer.db"), "PRAGMA user_version = 99");
    damage(at("damaged.db"));
    overwrite(at("unindexed.db"), "plant 1999tag 4", "plant 1999tag 9");
    alter(at("foreign.db"), "CREATE TABLE theirs (x)");
    writeFileSync(at("text.txt"), "not a database".repeat(100));
    writeFileSync(at("orphan.db-wal"), "");
    symlinkSync("plants.db", at("link.db"));
    mkdirSync(at("folder"));
    const before = [readFolder(folder.path), readdirSync(folder.path)];

    const named = args.map((arg) => (/^-|^$/.test(arg) ? arg : at(arg)));
    const finished = await runCommand(["backup", ...named], {
      DATABASE_URL: `sqlite:${at(store)}`,
    });
    expect(finished.stderr).toContain(says);
    expect(finished).toMatchObject({ exitCode: code, stdout: "" });
    expect([readFolder(folder.path), readdirSync(folder.path)]).toEqual(before);
  });

  test.each(["SIGINT", "SIGTERM"] as const)(
    "that is interrupted by %s leaves nothing behind",
    async (signal) => {
      using folder = makeTemporaryFolder();
      // Large enough that the signal comes while it is being copied.
      makeStore(`${folder.path}/plants.db`, 1_000, "long ".repeat(20_000));
      const child = Bun.spawn([launcher, "backup", `${folder.path}/copy.db`], {
        env: { PATH: process.env["PATH"] ?? "", DATABASE_URL: `sqlite:${folder.path}/plants.db` },
        stderr: "pipe",
      });
      const copies = (): string[] =>
        readdirSync(folder.path).filter((name) => name.startsWith("copy.db"));
      await until("a copy is under way", () => copies().length > 0);
      child.kill(signal);
      expect(await child.exited).toBe(signal === "SIGINT" ? 130 : 143);
      expect(await new Response(child.stderr).text()).toBe("");
      expect(copies()).toEqual([]);
    },
  );
});
