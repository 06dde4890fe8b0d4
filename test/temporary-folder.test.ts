/** Commands without a usable folder for temporary files: they name it, and call no sound store damaged. */

import { describe, expect, test } from "bun:test";
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

function mountFullFolder() {
  const folder = mountSmallFolder("64k");
  try {
    writeFileSync(`${folder.path}/rest`, Buffer.alloc(1_000_000));
  } catch {
    // Full, as it should be.
  }
  return folder;
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

function expectNamed({ exitCode, stdout, stderr }: Finished, folder: string): void {
  expect([exitCode, stdout]).toEqual([1, ""]);
  expect(stderr).toStartWith("plantstore: ");
  expect(stderr).toContain(folder);
  expect(stderr).toContain("TMPDIR");
  expect(stderr).not.toMatch(/damaged|incomplete|\n./);
}

describe.each(Object.entries(commands))(
  "plantstore %s names the folder for temporary files and TMPDIR",
  (_name, run) => {
    test("if the folder is missing", async () => {
      using space = makeSpace();
      const missing = space.file("missing");
      expectNamed(await run(space, missing), missing);
      expect(readdirSync(space.path).toSorted()).toEqual(["backups", "plants.db"]);
    });

    test.skipIf(!canMount)("if it is full", async () => {
      using space = makeSpace();
      using full = mountFullFolder();
      expectNamed(await run(space, full.path), full.path);
      expect(readdirSync(full.path)).toEqual(["rest"]);
      expect(readdirSync(space.path).toSorted()).toEqual(["backups", "plants.db"]);
    });
  },
);

test.skipIf(!canMount)("plantstore check needs no room for temporary files", async () => {
  using space = makeSpace();
  using full = mountFullFolder();
  const finished = await runCommand(["check"], { ...space.env, TMPDIR: full.path });
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  expect(finished.stdout).toMatch(/^tags +30,000 different/m);
});
