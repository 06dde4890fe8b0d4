/** plantstore restore: it makes a store, or nothing, and never overwrites one. */

import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { resolveConfig } from "../src/config.ts";
import { backUpStore, restoreStore } from "../src/store/sqlite/backup.ts";
import { openAlone, type SqliteStore } from "../src/store/sqlite/store.ts";
import { changesIn } from "./support/plants.ts";
import { launcher, runCommand } from "./support/command.ts";
import { rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./support/folder.ts";
import {
  checkIntegrity,
  damage,
  makeCrashedStore,
  makeSpoiltStores,
  makeStore,
  readFolder,
  readPlants,
} from "./support/stores.ts";

interface Scene extends TemporaryFolder {
  readonly store: string;
  readonly backup: string;
  readonly env: Record<string, string>;
}

/** A folder with a backup of 10 plants, and a name for the store. */
function setScene(): Scene {
  const folder = makeTemporaryFolder();
  const store = `${folder.path}/plants.db`;
  const backup = `${folder.path}/backup.db`;
  makeStore(backup, 10);
  return { ...folder, store, backup, env: { DATABASE_URL: `sqlite:${store}` } };
}

const restore = (scene: Scene, ...args: string[]): ReturnType<typeof runCommand> =>
  runCommand(["restore", ...args, scene.backup], scene.env);

describe("plantstore restore", () => {
  test("makes the store and its folder, and says what is in it", async () => {
    using scene = setScene();
    const finished = await runCommand(["restore", scene.backup], {
      DATABASE_URL: `sqlite:${scene.path}/new/folder/plants.db`,
    });
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toMatch(/^ {2}Plants {2}10$/m);
    expect(Object.keys(readFolder(`${scene.path}/new/folder`))).toEqual(["plants.db"]);
    expect(readPlants(`${scene.path}/new/folder/plants.db`)).toEqual(readPlants(scene.backup));
  });

  test.each([
    ["a store with a log", (path: string) => makeCrashedStore(path, 500)],
    ["a damaged store", (path: string) => (makeStore(path, 2_000), damage(path))],
    ["a link that leads nowhere", (path: string) => symlinkSync("missing.db", path)],
    ["text", (path: string) => writeFileSync(path, "not a database".repeat(100))],
    ["a folder", (path: string) => mkdirSync(path)],
  ])("%s that exists is not overwritten", async (_, make) => {
    using scene = setScene();
    make(scene.store);
    const before = [readdirSync(scene.path), readFolder(scene.path)];
    const finished = await restore(scene);
    expect(finished).toMatchObject({ exitCode: 1, stdout: "" });
    expect(finished.stderr).toContain(
      "plants.db exists, and is not overwritten. Stop the service and move it away first, or restore to another file with --database-url.",
    );
    expect([readdirSync(scene.path), readFolder(scene.path)]).toEqual(before);
  });

  test("does not make a store beside a log that SQLite would replay into it", async () => {
    using scene = setScene();
    writeFileSync(`${scene.store}-wal`, "of a store that is gone");
    const before = readFolder(scene.path);
    const finished = await restore(scene);
    expect(finished).toMatchObject({ exitCode: 1, stdout: "" });
    expect(finished.stderr).toContain("plants.db-wal exists without the file that it belongs to.");
    expect(readFolder(scene.path)).toEqual(before);
  });

  test("takes a backup with a log of its own, as files that were copied have it", async () => {
    using scene = setScene();
    makeCrashedStore(`${scene.path}/copied.db`, 30);
    const finished = await runCommand(["restore", `${scene.path}/copied.db`], scene.env);
    expect(finished).toMatchObject({ exitCode: 0 });
    expect(readPlants(scene.store)).toHaveLength(30);
  });

  test("of what is no sound store is refused, and nothing is made", async () => {
    using scene = setScene();
    makeSpoiltStores(scene.path);
    writeFileSync(`${scene.path}/empty.db`, "");
    const before = readFolder(scene.path);
    for (const name of [
      "missing.db",
      ...Object.keys(before).filter((one) => one !== "backup.db"),
    ]) {
      const file = `${scene.path}/${name}`;
      expect(await runCommand(["restore", file], scene.env)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: expect.stringContaining(`plantstore: ${file} `),
      });
    }
    expect(readFolder(scene.path)).toEqual(before);
  });
});

/** Kills the process when it makes that system call on a file of the folder for the n-th time. */
async function killAt(call: string, count: number, scene: Scene): Promise<boolean> {
  const files = ["", "/plants.db", "/plants.db-wal", "/plants.db-shm", "/plants.db-journal"];
  const injection = ["-e", `trace=${call}`, "-e", `inject=${call}:signal=KILL:when=${count}`];
  const options = ["-qq", "-f", "-o", "/dev/null", ...injection];
  const paths = files.flatMap((file) => ["-P", scene.path + file]);
  const child = Bun.spawn(["strace", ...options, ...paths, launcher, "restore", scene.backup], {
    env: { PATH: process.env["PATH"] ?? "", ...scene.env },
    stdout: "ignore",
    stderr: "ignore",
  });
  await child.exited;
  return child.exitCode !== 0;
}

const canTrace =
  process.platform === "linux" &&
  Bun.which("strace") !== null &&
  Bun.spawnSync(["strace", "-qq", "-o", "/dev/null", "true"]).exitCode === 0;

describe.skipIf(!canTrace)("plantstore restore, killed", () => {
  test.each(["fsync", "linkat,link"])("at any %s leaves no store, or a whole one", async (call) => {
    const found = new Set<number>();
    for (let count = 1, killed = true; killed; count++) {
      using scene = setScene();
      killed = await killAt(call, count, scene);
      const exists = existsSync(scene.store);
      found.add(exists ? readPlants(scene.store).length : 0);
      if (exists) expect(checkIntegrity(scene.store)).toBe("ok");
    }
    expect(found).toEqual(new Set([0, 10]));
  });
});

test("a restored store never gives the number of a change again", async () => {
  using folder = makeTemporaryFolder();
  const [original, backup, restored] = ["a.db", "backup.db", "b.db"].map((name) =>
    join(folder.path, name),
  ) as [string, string, string];
  const { signal } = new AbortController();
  const open = (path: string): SqliteStore => openAlone(path, resolveConfig({}, {}).config);
  const all = { after: 0, limit: 9, id: undefined, types: undefined };
  const plant = (id: bigint) => ({ id, name: "n", tag: undefined });
  const before = open(original);
  await before.createPlant(plant(1n));
  await backUpStore({ from: original, to: backup, signal });
  await before.createPlants([plant(2n), plant(3n)]);
  const { newest: seen } = await before.readChanges(all);
  await before.close();
  await restoreStore({ from: backup, to: restored, signal });
  const after = open(restored);
  const readOn = () => rejectionOf(after.readChanges({ ...all, after: seen }));
  expect(await readOn()).toMatchObject({ reason: "changes_gone" });
  await after.createPlant(plant(4n));
  expect(await readOn()).toMatchObject({ reason: "changes_gone" });
  const changes = changesIn(await after.readChanges(all));
  await after.close();
  expect(changes.map(({ id }) => id)).toEqual([1n, 4n]);
  expect(changes[1]?.seq).toBeGreaterThan(seen);
});
