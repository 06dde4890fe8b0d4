/** Commands without a usable folder for temporary files: they name it, and call no sound store damaged. */

import { expect, test } from "bun:test";
import { cpSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { openDatabase } from "../src/store/sqlite/database.ts";
import { type Finished, runCommand } from "./support/command.ts";
import { makeWorkplace, type Workplace } from "./support/folder.ts";
import { canMount, mountSmallFolder } from "./support/small-disk.ts";
import { alter } from "./support/stores.ts";

/** More different tags than SQLite counts in memory. */
const PLANTS = `INSERT INTO plants
  WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT 30000)
  SELECT id, 'p', hex(randomblob(100)) FROM ids`;

function makeSpace(): Workplace {
  const space = makeWorkplace();
  openDatabase(space.store).close();
  alter(space.store, PLANTS);
  mkdirSync(space.file("backups"));
  cpSync(space.store, space.file("backups/plants-20260131T181500Z.db"));
  return space;
}

const commands: Record<string, (space: Workplace, TMPDIR: string) => Promise<Finished>> = {
  "backup -": ({ env }, TMPDIR) => runCommand(["backup", "-"], { ...env, TMPDIR }),
  "restore -": ({ store, file }, TMPDIR) => {
    const env = { DATABASE_URL: `sqlite:${file("new.db")}`, TMPDIR };
    return runCommand(["restore", "-"], env, { stdin: Bun.file(store) });
  },
  "backup verify": ({ file }, TMPDIR) =>
    runCommand(["backup", "verify", file("backups")], { TMPDIR }),
};

/** Each of them, with this folder for temporary files. */
async function expectNamed(space: Workplace, folder: string): Promise<void> {
  for (const [name, run] of Object.entries(commands)) {
    const { exitCode, stdout, stderr } = await run(space, folder);
    expect([name, exitCode, stdout]).toEqual([name, 1, ""]);
    expect(stderr).toStartWith("plantstore: ");
    expect(stderr).toContain(folder);
    expect(stderr).toContain("TMPDIR");
    expect(stderr).not.toMatch(/damaged|incomplete|\n./);
    expect(readdirSync(space.path).toSorted()).toEqual(["backups", "plants.db"]);
  }
}

test("a folder for temporary files that is missing is named, and so is TMPDIR", async () => {
  using space = makeSpace();
  await expectNamed(space, space.file("missing"));
});

test.skipIf(!canMount)("so is one that is full, but check needs no room there", async () => {
  using space = makeSpace();
  using full = mountSmallFolder("64k");
  expect(() => writeFileSync(`${full.path}/rest`, Buffer.alloc(1_000_000))).toThrow("ENOSPC");
  await expectNamed(space, full.path);
  expect(readdirSync(full.path)).toEqual(["rest"]);
  const finished = await runCommand(["check"], { ...space.env, TMPDIR: full.path });
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  expect(finished.stdout).toMatch(/^tags +30,000 different/m);
});
