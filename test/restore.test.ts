/** plantstore restore: what becomes of the store, whatever it was and whenever it ends. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { APPLICATION_ID } from "../src/store/sqlite/database.ts";
import { migrations } from "../src/store/sqlite/migrations.ts";
import { reservePlace } from "../src/store/sqlite/replace.ts";
import { runCommand, spawnService } from "./support/child.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./support/folder.ts";
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

const launcher = `${import.meta.dir}/../bin/plantstore`;

interface Scene extends TemporaryFolder {
  readonly store: string;
  readonly backup: string;
  readonly env: Record<string, string>;
}

/** A folder, with a backup of 10 plants in it, and a name for the store that it is to become. */
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

  test("replaces a store only with --force, keeping its mode", async () => {
    using scene = setScene();
    makeStore(scene.store, 20);
    chmodSync(scene.store, 0o640);
    const before = readFolder(scene.path);
    const refused = await restore(scene);
    expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
    expect(refused.stderr).toContain("plants.db exists; it is replaced only with --force.");
    expect(readFolder(scene.path)).toEqual(before);

    const finished = await restore(scene, "--force", "--json");
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(finished.stdout)).toMatchObject({
      event: "restored",
      to: realpathSync(scene.store),
      plants: 10,
      tokens: 0,
    });
    expect(statSync(scene.store).mode & 0o777).toBe(0o640);
    expect(readPlants(scene.store)).toHaveLength(10);
  });

  test("does not let the log of the replaced store run into the new one", async () => {
    using scene = setScene();
    makeCrashedStore(scene.store, 500);
    expect(await restore(scene, "--force")).toMatchObject({ exitCode: 0 });
    expect(Object.keys(readFolder(scene.path))).toEqual(["backup.db", "plants.db"]);
    expect(readPlants(scene.store)).toEqual(readPlants(scene.backup));
  });

  test("replaces a damaged store", async () => {
    using scene = setScene();
    makeStore(scene.store, 2_000);
    damage(scene.store);
    expect(await restore(scene, "--force")).toMatchObject({ exitCode: 0 });
    expect(checkIntegrity(scene.store)).toBe("ok");
  });

  test("follows a link to the store, and leaves the link as it is", async () => {
    using scene = setScene();
    makeStore(`${scene.path}/elsewhere.db`, 20);
    symlinkSync("elsewhere.db", scene.store);
    expect(await restore(scene, "--force")).toMatchObject({ exitCode: 0 });
    expect(readlinkSync(scene.store)).toBe("elsewhere.db");
    expect(readPlants(`${scene.path}/elsewhere.db`)).toHaveLength(10);
  });

  test("takes a backup with a log of its own, as files that were copied have it", async () => {
    using scene = setScene();
    makeCrashedStore(`${scene.path}/copied.db`, 30);
    const finished = await runCommand(["restore", `${scene.path}/copied.db`], scene.env);
    expect(finished).toMatchObject({ exitCode: 0 });
    expect(readPlants(scene.store)).toHaveLength(30);
  });

  test("takes a backup of an older schema, which the next start migrates", async () => {
    using scene = setScene();
    const db = new Database(`${scene.path}/older.db`);
    db.run(migrations[0] as string);
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
    db.run("PRAGMA user_version = 1");
    db.run("INSERT INTO plants VALUES (1, 'old', 'oak')");
    db.close();
    const finished = await runCommand(["restore", `${scene.path}/older.db`], scene.env);
    expect(finished.stdout).toContain(`will be migrated to ${migrations.length} at the next start`);
    const service = await spawnService(scene.env);
    await service[Symbol.asyncDispose]();
    expect(readPlants(scene.store)).toEqual([{ id: 1n, name: "old", tag: "oak" }]);
    const checked = await runCommand(["check", "--json"], scene.env);
    expect(JSON.parse(checked.stdout)).toMatchObject({ ok: true, schema: migrations.length });
  });

  test.each([
    "missing.db",
    "text.txt",
    "empty.db",
    "foreign.db",
    "newer.db",
    "damaged.db",
    "unindexed.db",
    "plants.db",
  ])("of %s is refused, and the store is left alone", async (file) => {
    using scene = setScene();
    const at = (name: string): string => `${scene.path}/${name}`;
    for (const name of ["plants.db", "newer.db", "damaged.db", "unindexed.db"])
      makeStore(at(name), 2_000);
    writeFileSync(at("text.txt"), "not a database".repeat(100));
    writeFileSync(at("empty.db"), "");
    alter(at("foreign.db"), "CREATE TABLE theirs (x)");
    alter(at("newer.db"), "PRAGMA user_version = 99");
    damage(at("damaged.db"));
    overwrite(at("unindexed.db"), "plant 1999tag 4", "plant 1999tag 9");
    const before = readFolder(scene.path);
    const finished = await runCommand(["restore", "--force", at(file)], scene.env);
    expect(finished).toMatchObject({ exitCode: 1, stdout: "" });
    expect(finished.stderr).toStartWith(`plantstore: ${at(file)} `);
    expect(readFolder(scene.path)).toEqual(before);
  });

  test("does not destroy what is not a store, nor fill a place where a log lies about", async () => {
    using scene = setScene();
    for (const prepare of [
      () => writeFileSync(scene.store, "not a database".repeat(100)),
      () => alter(scene.store, "CREATE TABLE theirs (x)"),
      () => writeFileSync(`${scene.store}-wal`, "of a store that is gone"),
    ]) {
      prepare();
      const before = readFolder(scene.path);
      const finished = await restore(scene, "--force");
      expect(finished).toMatchObject({ exitCode: 1, stdout: "" });
      expect(readFolder(scene.path)).toEqual(before);
      await Bun.$`rm ${scene.store}`.quiet().nothrow();
    }
  });
});

describe("plantstore restore, and a service", () => {
  test("is refused while the service runs, which goes on as if nothing had been", async () => {
    using scene = setScene();
    await using service = await spawnService({ ...scene.env, PLANTSTORE_TOKEN: TEST_TOKEN });
    const plant = { id: 1n, name: "mine", tag: null };
    expect((await sendPlant(service.started.url, plant)).status).toBe(200);
    const finished = await restore(scene, "--force");
    expect(finished).toMatchObject({ exitCode: 1, stdout: "" });
    expect(finished.stderr).toContain("plants.db is in use. Stop the service");
    expect((await sendPlant(service.started.url, { ...plant, id: 2n })).status).toBe(200);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    expect(readPlants(scene.store).map(({ id }) => id)).toEqual([1n, 2n]);
  });

  test.skipIf(!existsSync("/proc/self/fd"))(
    "a service that was waiting for the replaced store does not go on with it",
    async () => {
      using scene = setScene();
      makeCrashedStore(scene.store, 50);
      const child = Bun.spawn([launcher, "serve"], {
        env: { PATH: process.env["PATH"] ?? "", PORT: "0", ...scene.env },
        stdout: "pipe",
        stderr: "pipe",
      });
      {
        using place = reservePlace(scene.store, { replace: true });
        while (!hasOpen(child.pid, scene.store)) await Bun.sleep(1);
        place.put(scene.backup);
      }
      expect(await child.exited).toBe(1);
      expect(await new Response(child.stderr).text()).toContain("plants.db cannot be opened");
      expect(Object.keys(readFolder(scene.path))).toEqual(["plants.db"]);
      expect(readPlants(scene.store)).toHaveLength(10);
    },
  );
});

function hasOpen(pid: number, path: string): boolean {
  return readdirSync(`/proc/${pid}/fd`).some((descriptor) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${descriptor}`) === realpathSync(path);
    } catch {
      return false;
    }
  });
}

/** Kills the process when it makes that system call on a file of the folder for the n-th time. */
async function killAt(call: string, count: number, scene: Scene): Promise<boolean> {
  const files = ["", "/plants.db", "/plants.db-wal", "/plants.db-shm", "/plants.db-journal"];
  const injection = ["-e", `trace=${call}`, "-e", `inject=${call}:signal=KILL:when=${count}`];
  const options = ["-qq", "-f", "-o", "/dev/null", ...injection];
  const paths = files.flatMap((file) => ["-P", scene.path + file]);
  const child = Bun.spawn(
    ["strace", ...options, ...paths, launcher, "restore", "--force", scene.backup],
    { env: { PATH: process.env["PATH"] ?? "", ...scene.env }, stdout: "ignore", stderr: "ignore" },
  );
  await child.exited;
  return child.exitCode !== 0;
}

const canTrace =
  process.platform === "linux" &&
  Bun.which("strace") !== null &&
  Bun.spawnSync(["strace", "-qq", "-o", "/dev/null", "true"]).exitCode === 0;

describe.skipIf(!canTrace)("plantstore restore, killed", () => {
  test.each(["fsync", "unlinkat,unlink", "renameat,rename"])(
    "at any %s leaves either store, whole",
    async (call) => {
      const found = new Set<number>();
      for (let count = 1, killed = true; killed; count++) {
        using scene = setScene();
        makeCrashedStore(scene.store, 500);
        killed = await killAt(call, count, scene);
        found.add(readPlants(scene.store).length);
        expect(checkIntegrity(scene.store)).toBe("ok");
      }
      expect(found).toEqual(new Set([10, 500]));
    },
    20_000,
  );
});
