/** plantstore check: what it finds in a store, right and wrong, without changing anything. */

import { describe, expect, test } from "bun:test";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { mintToken, readTokens, toRecord } from "../src/auth/token.ts";
import { INT64_MAX, INT64_MIN } from "../src/domain/plant.ts";
import { migrations, openDatabase } from "../src/store/sqlite/database.ts";
import { openAlone } from "../src/store/sqlite/store.ts";
import { type Finished, runCommand, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { FURTHER_STEP } from "./support/limits.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";
import {
  alter,
  damage,
  makeCrashedStore,
  makeStore,
  overwrite,
  readFolder,
} from "./support/stores.ts";

const limits = {
  queueLengthMax: 1000,
  queueSecondsMax: 5,
  batchLengthMax: 100,
  scanRowsMax: 1000,
  changesDays: 7,
  trimSeconds: 60,
  bodyBytesTotalMax: 1_000_000,
};

const check = (path: string, ...args: string[]): Promise<Finished> =>
  runCommand(["check", ...args], { DATABASE_URL: `sqlite:${path}` });

interface Found {
  readonly ok: boolean;
  readonly faults: readonly { check: string; message: string }[];
}

const readJson = ({ stdout }: Finished): Found => JSON.parse(stdout) as Found;

describe("plantstore check of a sound store", () => {
  test("counts plants, tags and tokens, with ids as exact digits", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    const store = openAlone(path, limits);
    await store.createPlant({ id: INT64_MIN, name: "\uFFFD", tag: "a" });
    await store.createPlant({ id: 0n, name: "", tag: undefined });
    await store.createPlant({ id: INT64_MAX, name: "🌵", tag: "a" });
    for (const [name, expiresAtMs] of [
      ["one", undefined],
      ["two", Date.now() + 60_000],
      ["three", Date.now() - 1],
      ["four", Date.now() - 1],
      ["five", Date.now() - 1],
    ] as const)
      await store.createToken(
        toRecord(mintToken(), { name, scopes: ["plants:read"], createdAtMs: 1, expiresAtMs }),
      );
    const four = (await readTokens(store)).find((token) => token.name === "four");
    await store.revokeToken(four?.hash ?? "", 1);
    await store.close();

    const finished = await check(path, "--json");
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toEndWith("}\n");
    expect(finished.stdout).toContain(
      '"plants":{"count":3,"tagged":2,"tags":1,"idMin":-9223372036854775808,"idMax":9223372036854775807}',
    );
    expect(readJson(finished)).toMatchObject({
      ok: true,
      faults: [],
      schema: migrations.length,
      tokens: { active: 2, expired: 2, revoked: 1 },
      bytes: { file: statSync(path).size, log: 0 },
    });
  });

  test("works while the service runs and writes", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    await using service = await spawnService({
      DATABASE_URL: `sqlite:${path}`,
      PLANTSTORE_TOKEN: TEST_TOKEN,
    });
    await sendPlant(service.started.url, { id: 1n, name: "a", tag: null });
    const finished = await check(path, "--json");
    expect(readJson(finished)).toMatchObject({
      ok: true,
      plants: { count: 1 },
      bytes: { log: statSync(`${path}-wal`).size },
    });
    const again = await sendPlant(service.started.url, { id: 2n, name: "b", tag: null });
    expect(again.status).toBe(200);
  });

  test("sees what a crashed service left in its log, and leaves it there", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    makeCrashedStore(path, 50);
    const before = readFolder(folder.path);
    expect(readJson(await check(path, "--json"))).toMatchObject({
      ok: true,
      plants: { count: 50 },
    });
    expect(readFolder(folder.path)).toMatchObject(before);
  });

  test("says that an older schema will be migrated, and does not migrate it", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    openDatabase(path).close();
    const env = { DATABASE_URL: `sqlite:${path}`, ...FURTHER_STEP };
    for (let run = 0; run < 2; run++)
      expect(await runCommand(["check"], env)).toMatchObject({
        exitCode: 0,
        stderr: "",
        stdout: expect.stringContaining(
          `${migrations.length}, will be migrated to ${migrations.length + 1} at the next start`,
        ) as string,
      });
  });
});

describe("plantstore check of a store with something wrong", () => {
  const spoil: Record<string, [(path: string) => void, check: string, says: string]> = {
    "a page overwritten": [damage, "integrity", "page"],
    "the index on tags gone": [
      (path) => alter(path, "DROP INDEX plants_tag"),
      "tables",
      "The index plants_tag is missing.",
    ],
    "a table altered": [
      (path) => alter(path, "ALTER TABLE plants ADD COLUMN extra TEXT"),
      "tables",
      "The table plants is not as plantstore makes it.",
    ],
    "an index that lacks a plant": [
      (path) => overwrite(path, "plant 1999tag 4", "plant 1999tag 9"),
      "integrity",
      "missing from index plants_tag",
    ],
    "a newer schema": [
      (path) => alter(path, "PRAGMA user_version = 99"),
      "schema",
      "A newer plantstore wrote it",
    ],
    "another application's mark": [
      (path) => alter(path, "PRAGMA application_id = 1"),
      "schema",
      "is not a plant store",
    ],
    "no database in it": [
      (path) => writeFileSync(path, "not a database".repeat(1000)),
      "integrity",
      "file is not a database",
    ],
    "nothing in it": [(path) => writeFileSync(path, ""), "schema", "is not a plant store"],
  };

  test.each(Object.entries(spoil))(
    "%s: says so, exits 1, and changes nothing",
    async (_, [spoilStore, name, says]) => {
      using folder = makeTemporaryFolder();
      const path = `${folder.path}/plants.db`;
      makeStore(path, 2_000);
      spoilStore(path);
      const before = readFolder(folder.path);

      const asJson = await check(path, "--json");
      expect(asJson.exitCode).toBe(1);
      const { ok, faults } = readJson(asJson);
      expect(ok).toBe(false);
      expect(faults[0]).toEqual({ check: name, message: expect.stringContaining(says) });

      const { exitCode, stdout, stderr } = await check(path);
      expect(exitCode).toBe(1);
      expect(stdout).toMatch(new RegExp(`^${name} +WRONG +\\S`, "m"));
      expect(stderr).toContain(name === "schema" ? says : `${path} is damaged or incomplete`);
      expect(readFolder(folder.path)).toEqual(before);
    },
  );

  test("that is not there fails, and makes none", async () => {
    using folder = makeTemporaryFolder();
    const finished = await check(`${folder.path}/new/plants.db`);
    expect(finished).toMatchObject({
      exitCode: 1,
      stdout: "",
      stderr: `plantstore: ${folder.path}/new/plants.db does not exist.\n`,
    });
    expect(existsSync(`${folder.path}/new`)).toBe(false);
  });
});
