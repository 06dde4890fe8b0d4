/** Stores that earlier versions wrote: each is opened by this one, keeps what it holds, and takes more. */

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { FROZEN_TOKEN } from "../../scripts/release.ts";
import { migrations } from "../../src/store/sqlite/database.ts";
import { runCommand, spawnService } from "../support/command.ts";
import { makeWorkplace, type Workplace } from "../support/folder.ts";
import { FURTHER_STEP } from "../support/limits.ts";
import { sendPlant } from "../support/service.ts";

const frozen = join(import.meta.dir, "../frozen");
const files = [...new Glob("sqlite-schema-*.db.gz").scanSync(frozen)].toSorted();
const schemaOf = (file: string): number => Number(/\d+/.exec(file)?.[0]);

async function openFrozen(file: string): Promise<Workplace> {
  const at = makeWorkplace();
  writeFileSync(at.store, Bun.gunzipSync(await Bun.file(join(frozen, file)).bytes()));
  return at;
}

test("there is a store of every schema, but perhaps the newest: a release keeps that one", () => {
  const all = migrations.map((_, index) => index + 1);
  expect([all, all.slice(0, -1)]).toContainEqual(files.map(schemaOf));
});

test.each(files)("%s is served with its plants and its token", async (file) => {
  using at = await openFrozen(file);
  await using service = await spawnService(at.env);
  const { url } = service.started;
  const read = async (path: string, accept = "application/json"): Promise<string> => {
    const headers = { authorization: `Bearer ${FROZEN_TOKEN}`, accept };
    return (await fetch(url + path, { headers })).text();
  };
  expect(await read("/plants")).toBe(
    '[{"id":-9223372036854775808,"name":"","tag":""},' +
      '{"id":1,"name":"Monstera deliciosa","tag":"tropical"},' +
      '{"id":9223372036854775807,"name":"Größte 🌱"}]',
  );
  expect(await read("/plants?tag=tropical")).toContain('"id":1,');
  // A page of a search may end early, a stream does not.
  const found = await read("/plants?name=gr%C3%B6%C3%9F", "application/x-ndjson");
  expect(found).toContain('"id":9223372036854775807');
  const fern = { id: 2n, name: "Fern", tag: null };
  expect((await sendPlant(url, fern, FROZEN_TOKEN)).status).toBe(200);
  const listed = await read("/plants?include=changed&sort=-changed");
  expect(listed).toMatch(/^\[\{"id":2,"name":"Fern","changed":"[^"]+Z"\},/);
  // Plants of the first schema have no time until they change.
  expect(listed.split('"changed"')).toHaveLength(schemaOf(file) === 1 ? 2 : 5);
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  expect(await at.run("check")).toMatchObject({ exitCode: 0 });
});

describe("a migration", () => {
  const warning = new RegExp(
    `changes from 1 to ${migrations.length + 1}\\. The previous version of plantstore cannot open`,
  );

  test.each([[["migrate"]], [["token", "create", "--name", "me"]]])(
    "is announced before it begins: %p",
    async (command) => {
      using at = await openFrozen("sqlite-schema-1.db.gz");
      const env = { ...at.env, ...FURTHER_STEP };
      const { exitCode, stderr } = await runCommand(command, env);
      expect([exitCode, stderr]).toEqual([0, expect.stringMatching(warning)]);
      // Once: the schema is the newest now.
      expect((await runCommand(["migrate"], env)).stderr).toBe("");
      expect((await at.run("check")).stderr).toContain("A newer plantstore wrote it");
    },
  );

  test("is announced by a dry run", async () => {
    using at = await openFrozen("sqlite-schema-1.db.gz");
    for (let run = 0; run < 2; run++) {
      const { stdout } = await runCommand(["migrate", "--dry-run"], { ...at.env, ...FURTHER_STEP });
      expect(stdout).toStartWith("-- The schema of ");
      expect(stdout).toMatch(warning);
    }
    using empty = makeWorkplace();
    expect((await empty.run("migrate")).stderr).toBe("");
  });
});
