/** plantstore check: what it finds in a store, right and wrong, without changing anything. */

import { describe, expect, test } from "bun:test";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { hashToken } from "../../src/auth/token.ts";
import { resolveConfig } from "../../src/config.ts";
import { INT64_MAX, INT64_MIN } from "../../src/domain/json.ts";
import { scopes } from "../../src/domain/token.ts";
import { migrations, openDatabase } from "../../src/store/sqlite/database.ts";
import { openAlone } from "../../src/store/sqlite/engine.ts";
import { type Finished, runCommand, runForJson, spawnService } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { FURTHER_STEP } from "../support/limits.ts";
import { grantToken, sendPlant, TEST_TOKEN } from "../support/service.ts";
import {
  alter,
  damage,
  makeCrashedStore,
  makeStore,
  overwrite,
  readFolder,
} from "../support/stores.ts";

const check = (path: string, ...args: string[]): Promise<Finished> =>
  runCommand(["check", ...args], { DATABASE_URL: `sqlite:${path}` });

const checkSound = (path: string) => runForJson(["check"], { DATABASE_URL: `sqlite:${path}` });

describe("plantstore check of a sound store", () => {
  test("counts plants, tags and tokens, with ids as exact digits", async () => {
    using at = makeWorkplace();
    const store = openAlone(at.store, resolveConfig({}, {}).config);
    await store.createPlant({ id: INT64_MIN, name: "\uFFFD", tag: "a" });
    await store.createPlant({ id: 0n, name: "", tag: undefined });
    await store.createPlant({ id: INT64_MAX, name: "🌵", tag: "a" });
    const past = Date.now() - 1;
    await grantToken({ store });
    await grantToken({ store }, scopes, { expiresAtMs: Date.now() + 3_600_000 });
    for (let expired = 0; expired < 2; expired++)
      await grantToken({ store }, scopes, { expiresAtMs: past });
    const revoked = await grantToken({ store }, scopes, { expiresAtMs: past });
    await store.revokeToken(hashToken(revoked), 1);
    await store.close();

    const finished = await check(at.store, "--json");
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout).toEndWith("}\n");
    expect(finished.stdout).toContain(
      '"plants":{"count":3,"tagged":2,"tags":1,"idMin":-9223372036854775808,"idMax":9223372036854775807}',
    );
    expect(JSON.parse(finished.stdout)).toMatchObject({
      ok: true,
      faults: [],
      schema: migrations.length,
      tokens: { active: 2, expired: 2, revoked: 1 },
      bytes: { file: statSync(at.store).size, log: 0 },
    });
  });

  test("works while the service runs and writes", async () => {
    using at = makeWorkplace();
    await using service = await spawnService({ ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN });
    await sendPlant(service.started.url, { id: 1n, name: "a", tag: null });
    expect(await checkSound(at.store)).toMatchObject({
      ok: true,
      plants: { count: 1 },
      bytes: { log: statSync(`${at.store}-wal`).size },
    });
    const again = await sendPlant(service.started.url, { id: 2n, name: "b", tag: null });
    expect(again.status).toBe(200);
  });

  test("sees what a crashed service left in its log, and leaves it there", async () => {
    using at = makeWorkplace();
    makeCrashedStore(at.store, 50);
    const before = readFolder(at.path);
    expect(await checkSound(at.store)).toMatchObject({ ok: true, plants: { count: 50 } });
    expect(readFolder(at.path)).toMatchObject(before);
  });

  test("says that an older schema will be migrated, and does not migrate it", async () => {
    using at = makeWorkplace();
    openDatabase(at.store).close();
    const stdout = expect.stringContaining(
      `${migrations.length}, will be migrated to ${migrations.length + 1} at the next start`,
    );
    for (let run = 0; run < 2; run++)
      expect(await runCommand(["check"], { ...at.env, ...FURTHER_STEP })).toEqual({
        exitCode: 0,
        stdout,
        stderr: "",
      });
  });
});

describe("plantstore check of a store with something wrong", () => {
  const text = "not a database".repeat(1_000);
  const unindex = (path: string): void => overwrite(path, "plant 1999tag 4", "plant 1999tag 9");

  /** What is done to it: a statement, or another change. */
  test.each<[string | ((path: string) => void), check: string, says: string]>([
    [damage, "integrity", "page"],
    ["DROP INDEX plants_tag", "tables", "The index plants_tag is missing."],
    ["ALTER TABLE plants ADD x int", "tables", "The table plants has an unexpected definition."],
    [unindex, "integrity", "missing from index plants_tag"],
    ["PRAGMA user_version = 99", "schema", "A newer plantstore wrote it"],
    ["PRAGMA application_id = 1", "schema", "is not a plant store"],
    [(path) => writeFileSync(path, text), "integrity", "file is not a database"],
    [(path) => writeFileSync(path, ""), "schema", "is not a plant store"],
  ])("after %s, fails at %s with %s, and changes nothing", async (spoil, name, says) => {
    using at = makeWorkplace();
    makeStore(at.store, 2_000);
    if (typeof spoil === "string") alter(at.store, spoil);
    else spoil(at.store);
    const files = readFolder(at.path);
    const asJson = await check(at.store, "--json");
    expect(asJson.exitCode).toBe(1);
    const { ok, faults } = JSON.parse(asJson.stdout) as { ok: boolean; faults: unknown[] };
    const fault = { check: name, message: expect.stringContaining(says) };
    expect([ok, faults[0]]).toEqual([false, fault]);

    const { exitCode, stdout, stderr } = await check(at.store);
    expect(exitCode).toBe(1);
    expect(stdout).toMatch(new RegExp(`^${name} +WRONG +\\S`, "m"));
    expect(stderr).toContain(name === "schema" ? says : `${at.store} is damaged or incomplete`);
    expect(readFolder(at.path)).toEqual(files);
  });

  test("that is not there fails, and makes none", async () => {
    using at = makeWorkplace();
    const path = at.file("new/plants.db");
    const stderr = `plantstore: ${path} does not exist.\n`;
    expect(await check(path)).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(existsSync(at.file("new"))).toBe(false);
  });
});
