/** Commands without a usable folder for temporary files: they name it, and call no sound store damaged. */

import { afterAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { runCommand } from "../support/command.ts";
import { makeTemporaryFolder, makeWorkplace } from "../support/folder.ts";
import { canMount, mountSmallFolder } from "../support/small-disk.ts";
import { alter } from "../support/stores.ts";
import { until } from "../support/until.ts";

/** More different tags than SQLite counts in memory. */
const PLANTS = `INSERT INTO plants (id, name, tag)
  WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT 30000)
  SELECT id, 'p', hex(randomblob(100)) FROM ids`;

const space = makeWorkplace();
afterAll(() => space[Symbol.dispose]());
const { store, file } = space;
openDatabase(store).close();
alter(store, PLANTS);
mkdirSync(file("backups"));
cpSync(store, file("backups/plants-20260131T181500Z.db"));

/** Each of them, with this folder for temporary files. */
async function expectNamed(folder: string): Promise<void> {
  const env = { TMPDIR: folder, DATABASE_URL: `sqlite:${file("new.db")}` };
  for (const [args, more, stdin] of [
    [["backup", "-"], space.env],
    [["restore", "-"], {}, Bun.file(store)],
    [["backup", "verify", file("backups")]],
  ] as [string[], Record<string, string>?, Blob?][]) {
    const how = stdin === undefined ? {} : { stdin };
    const { exitCode, stdout, stderr } = await runCommand(args, { ...env, ...more }, how);
    expect([args, exitCode, stdout]).toEqual([args, 1, ""]);
    expect(stderr).toStartWith("plantstore: ");
    expect(stderr).toContain(folder);
    expect(stderr).toContain("TMPDIR");
    expect(stderr).not.toMatch(/damaged|incomplete|\n./);
    expect(readdirSync(space.path).toSorted()).toEqual(["backups", "plants.db"]);
  }
}

test("a folder for temporary files that is missing is named, and so is TMPDIR", async () => {
  await expectNamed(file("missing"));
});

test.skipIf(!canMount)("so is one that is full, but check needs no room there", async () => {
  using full = mountSmallFolder("64k");
  expect(() => writeFileSync(`${full.path}/rest`, Buffer.alloc(1_000_000))).toThrow("ENOSPC");
  await expectNamed(full.path);
  expect(readdirSync(full.path)).toEqual(["rest"]);
  const finished = await runCommand(["check"], { ...space.env, TMPDIR: full.path });
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  expect(finished.stdout).toMatch(/^tags +30,000 different/m);
});

test.skipIf(!canMount)(
  "a full folder for a backup is named, and no other folder is blamed",
  async () => {
    using full = mountSmallFolder("64k");
    const { exitCode, stderr } = await runCommand(["backup", `${full.path}/copy.db`], space.env);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`cannot be copied into ${full.path}: database or disk is full.`);
    expect(stderr).toMatch(/\d+ bytes are free there/);
    expect(stderr).not.toContain("TMPDIR");
    expect(readdirSync(full.path)).toEqual([]);
  },
);

test("backup verify that is interrupted leaves nothing in the folder for temporary files", async () => {
  using at = makeTemporaryFolder();
  const verify = Bun.spawn([process.execPath, "src/main.ts", "backup", "verify", file("backups")], {
    env: { ...process.env, TMPDIR: at.path },
    stdio: ["ignore", "ignore", "ignore"],
  });
  await until("it has begun", () => readdirSync(at.path).length > 0);
  verify.kill("SIGINT");
  // It may have been faster.
  expect([0, 130]).toContain(await verify.exited);
  expect(readdirSync(at.path)).toEqual([]);
});
