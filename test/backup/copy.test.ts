/** plantstore backup and restore: what a copy holds, what it leaves alone, and how it ends. */

import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { Clients } from "../support/clients.ts";
import {
  runCommand,
  runForJson,
  runOnTerminal,
  runScript,
  spawnService,
  startCommand,
} from "../support/command.ts";
import { failure } from "../support/expect.ts";
import { makeWorkplace, type Workplace } from "../support/folder.ts";
import type { StoredPlant } from "../support/plants.ts";
import { runSync } from "../support/processes.ts";
import { createRandom } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import {
  checkIntegrity,
  damage,
  makeCrashedStore,
  makeSpoiltStores,
  makeStore,
  readFolder,
  readPlants,
} from "../support/stores.ts";
import { until } from "../support/until.ts";

test("a backup while plants are being stored has every plant acknowledged before it began, and stops no writes", async () => {
  using at = makeWorkplace();
  const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN };
  const copy = at.file("copy.db");
  await using service = await spawnService(env);
  const surroundings = { findUrl: () => service.started.url, createsOnly: true };
  await using load = new Clients(8, surroundings, createRandom());
  await load.untilAcknowledged(500);

  const before = load.ledger.listCertain();
  const printed = await runForJson(["backup", copy], env);
  const after = load.acknowledged;
  await load.untilAcknowledged(100);
  await load.stop();
  expect(load.compare(readPlants(at.store))).toEqual([]);
  expect(load.unsettled).toBe(0);

  expect(after).toBeGreaterThan(before.length);
  const rows = new Map(readPlants(copy).map((plant) => [plant.id, plant]));
  expect(before.map(({ id }) => rows.get(id) as StoredPlant)).toEqual(before);
  expect(printed).toMatchObject({ plants: rows.size, tokens: 0 });
  expect(checkIntegrity(copy)).toBe("ok");
});

describe("plantstore backup", () => {
  test("makes one file for its owner alone, says what is in it, and leaves the store as it was", async () => {
    using at = makeWorkplace();
    makeStore(at.store, 1234);
    await runCommand(["token", "create", "--name", "till"], at.env);
    const before = readFolder(at.path);

    const finished = await runCommand(["backup", `${at.path}/copy.db`], at.env);
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toMatch(/^ {2}To {6}\S+\/copy\.db$/m);
    expect(finished.stdout).toMatch(/^ {2}Plants {2}1,234$/m);
    expect(finished.stdout).toMatch(/^ {2}Tokens {2}1$/m);
    expect(readFolder(at.path)).toEqual({ ...before, "copy.db": expect.any(String) });
    expect(statSync(`${at.path}/copy.db`).mode & 0o777).toBe(0o600);
    expect(readPlants(`${at.path}/copy.db`)).toEqual(readPlants(at.store));
  });

  test("- is standard output, and standard input of restore", async () => {
    using at = makeWorkplace();
    makeStore(at.store, 5_000);
    mkdirSync(at.file("away"));
    const script = '"$0" backup - --json | (cd away && "$0" restore -)';
    const env = { DATABASE_URL: "sqlite:plants.db" };
    const { exitCode, stdout, stderr } = await runScript(script, env, at.path);
    expect(exitCode).toBe(0);
    expect(JSON.parse(stderr)).toMatchObject({ event: "backed_up", to: "-", plants: 5_000 });
    expect(stdout).toMatch(/^ {2}From {4}-$/m);
    expect(stdout).toMatch(/^ {2}Plants {2}5,000$/m);
    const restored = readPlants(at.file("away/plants.db"));
    expect(Bun.deepEquals(restored, readPlants(at.store))).toBe(true);
    expect(readdirSync(at.path).toSorted()).toEqual(["away", "plants.db"]);
  });

  test("- fails if the reader of standard output leaves before the end, and is refused on a terminal", async () => {
    using at = makeWorkplace();
    makeStore(at.store, 5_000);
    const script = `"$0" backup - | true; exit "\${PIPESTATUS[0]}"`;
    const finished = await runScript(script, at.env);
    const stderr = "plantstore: standard output: broken pipe.\n";
    expect(finished).toEqual({ exitCode: 1, stdout: "", stderr });
    const { exitCode, screen } = await runOnTerminal(["backup", "-"], at.env);
    expect(exitCode).toBe(2);
    expect(screen).toContain("standard output is a terminal");
  });

  test("has what a crashed service left in its log", async () => {
    using at = makeWorkplace();
    makeCrashedStore(at.store, 50);
    const { "plants.db": file, "plants.db-wal": log } = readFolder(at.path);
    const printed = await runForJson(["backup", at.file("copy.db")], at.env);
    expect(printed).toMatchObject({ event: "backed_up", plants: 50 });
    expect(readFolder(at.path)).toMatchObject({ "plants.db": file, "plants.db-wal": log });
  });

  test("is refused where it cannot be made, and nothing is made or changed", async () => {
    using at = makeWorkplace();
    makeStore(at.store, 2_000);
    makeSpoiltStores(at.path);
    writeFileSync(at.file("orphan.db-wal"), "");
    symlinkSync("plants.db", at.file("link.db"));
    mkdirSync(at.file("folder"));
    const before = [readFolder(at.path), readdirSync(at.path)];
    const exists = ["folder", "plants.db", "link.db", "newer.db", "text.txt"];
    for (const [store, args, exitCode, says] of [
      ["none.db", ["copy.db"], 1, "none.db does not exist."],
      ["plants.db", ["none/copy.db"], 1, "none does not exist."],
      ...exists.map(
        (to) => ["plants.db", [to], 1, `${to} exists, and is not overwritten.`] as const,
      ),
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
    ] as const) {
      const named = args.map((arg) => (/^-|^$/.test(arg) ? arg : at.file(arg)));
      const env = { DATABASE_URL: `sqlite:${at.file(store)}` };
      expect([store, args, await runCommand(["backup", ...named], env)]).toEqual([
        store,
        args,
        failure(exitCode, says),
      ]);
    }
    expect([readFolder(at.path), readdirSync(at.path)]).toEqual(before);
  });

  test("that is interrupted by SIGINT leaves nothing behind", async () => {
    using at = makeWorkplace();
    // Large enough that the signal comes while it is being copied.
    makeStore(at.store, 1_000, "long ".repeat(20_000));
    const command = startCommand(["backup", at.file("copy.db")], at.env);
    const copies = (): string[] =>
      readdirSync(at.path).filter((name) => name.startsWith("copy.db"));
    await until("a copy is under way", () => copies().length > 0);
    command.kill("SIGINT");
    expect(await command.finished).toEqual({ exitCode: 130, stdout: "", stderr: "" });
    expect(copies()).toEqual([]);
  });
});

/** With a backup of 10 plants, and no store. */
function makeBackup(): Workplace {
  const at = makeWorkplace();
  makeStore(at.file("backup.db"), 10);
  return at;
}

describe("plantstore restore", () => {
  test("makes the store and its folder, and says what is in it", async () => {
    using at = makeBackup();
    const store = at.file("new/folder/plants.db");
    const env = { DATABASE_URL: `sqlite:${store}` };
    const finished = await runCommand(["restore", at.file("backup.db")], env);
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toMatch(/^ {2}Plants {2}10$/m);
    expect(readdirSync(at.file("new/folder"))).toEqual(["plants.db"]);
    expect(readPlants(store)).toEqual(readPlants(at.file("backup.db")));
  });

  test.each([
    ["a store with a log", (path: string) => makeCrashedStore(path, 500)],
    ["a damaged store", (path: string) => (makeStore(path, 2_000), damage(path))],
    ["a link that leads nowhere", (path: string) => symlinkSync("missing.db", path)],
  ])("%s that exists is not overwritten", async (_, make) => {
    using at = makeBackup();
    make(at.store);
    const before = [readdirSync(at.path), readFolder(at.path)];
    const says =
      "plants.db exists, and is not overwritten. Stop the service and move it away first, or restore to another file with --database-url.";
    expect(await at.run("restore", "backup.db")).toEqual(failure(1, says));
    expect([readdirSync(at.path), readFolder(at.path)]).toEqual(before);
  });

  test("of what is no sound store is refused, and nothing is made", async () => {
    using at = makeWorkplace({ "empty.db": "" });
    makeSpoiltStores(at.path);
    const before = readFolder(at.path);
    for (const name of ["missing.db", ...Object.keys(before)])
      expect(await runCommand(["restore", at.file(name)], at.env)).toEqual(
        failure(1, `plantstore: ${at.file(name)} `),
      );
    expect(readFolder(at.path)).toEqual(before);
  });
});

/** Kills the process when it makes that system call on a file of the folder for the n-th time. */
async function killAt(call: string, count: number, at: Workplace): Promise<boolean> {
  const files = ["", "/plants.db", "/plants.db-wal", "/plants.db-shm", "/plants.db-journal"];
  const injection = ["-e", `trace=${call}`, "-e", `inject=${call}:signal=KILL:when=${count}`];
  const paths = files.flatMap((file) => ["-P", at.path + file]);
  const wrapper = ["strace", "-qq", "-f", "-o", "/dev/null", ...injection, ...paths];
  const finished = await runCommand(["restore", at.file("backup.db")], at.env, { wrapper });
  return finished.exitCode !== 0;
}

const canTrace =
  process.platform === "linux" &&
  Bun.which("strace") !== null &&
  runSync(["strace", "-qq", "-o", "/dev/null", "true"]).exitCode === 0;

describe.skipIf(!canTrace)("plantstore restore, killed", () => {
  test.each(["fsync", "linkat,link"])("at any %s leaves no store, or a whole one", async (call) => {
    const found = new Set<number>();
    for (let count = 1, killed = true; killed; count++) {
      using at = makeBackup();
      killed = await killAt(call, count, at);
      const exists = existsSync(at.store);
      found.add(exists ? readPlants(at.store).length : 0);
      if (exists) expect(checkIntegrity(at.store)).toBe("ok");
    }
    expect(found).toEqual(new Set([0, 10]));
  });
});
