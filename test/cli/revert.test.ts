/** plantstore revert: changes taken back on the command line, in a store and through a service. */

import { expect, test } from "bun:test";
import { type Finished, runCommand, runOnTerminal } from "../support/command.ts";
import { lines, makeWorkplace } from "../support/folder.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { readPlants } from "../support/stores.ts";

const files = {
  "first.csv": "id,name\n1,kept\n2,replaced later\n",
  "wrong.csv": "id,name,tag\n3,a,x\n9007199254740993,b,\n",
};

/** The batch of the second import, which it prints. */
async function importBoth(run: (...args: string[]) => Promise<Finished>): Promise<string> {
  await run("import", "first.csv");
  const { stderr } = await run("import", "wrong.csv");
  const [, batch = ""] = /plantstore revert --batch '(wrong\.csv [^']+)'\n$/.exec(stderr) ?? [];
  expect(batch).toMatch(/^wrong\.csv \d{4}-\d\d-\d\dT[\d:.]+Z$/);
  return batch;
}

test("revert shows what it would do, and takes an import back in the store", async () => {
  using at = makeWorkplace(files);
  const batch = await importBoth(at.run);
  expect(await at.run("revert", "--batch", batch, "--dry-run")).toEqual({
    exitCode: 0,
    stdout:
      '3: "a" ["x"] -> none\n9007199254740993: "b" -> none\n' +
      "2 plants: to undo 2, unchanged 0, changed since 0\n",
    stderr: "",
  });
  const asJson = await at.run("revert", "--batch", batch, "--dry-run", "--json");
  expect(asJson.stdout).toContain('{"id":9007199254740993,"now":{"name":"b"}}');
  const refused = await at.run("revert", "--batch", batch);
  expect([refused.exitCode, refused.stderr]).toEqual([2, expect.stringContaining("--yes")]);
  expect(readPlants(at.store)).toHaveLength(4);
  const done = await at.run("revert", "--batch", batch, "--yes");
  expect(done.stdout).toMatch(
    /^undone 2, unchanged 0, changed since 0, refused 0; batch "revert [^"]+"\n$/,
  );
  expect([done.exitCode, done.stderr]).toEqual([0, ""]);
  expect(readPlants(at.store).map(({ id }) => id)).toEqual([1n, 2n]);
});

test("revert takes changes back through a service, and lists what was changed since", async () => {
  await using service = await startService();
  using at = makeWorkplace(files);
  const run = (...args: string[]): Promise<Finished> =>
    runCommand([...args, "--url", service.url], { PLANTSTORE_TOKEN: TEST_TOKEN }, { cwd: at.path });
  const batch = await importBoth(run);
  await service.store.replacePlant({ id: 3n, name: "since", tag: undefined }, {});
  const done = await run("revert", "--batch", batch, "--yes", "--json");
  expect(JSON.parse(done.stdout)).toMatchObject({ plants: 2, reverted: 1, changedSince: 1 });
  expect([done.exitCode, done.stderr]).toEqual([
    3,
    "plantstore: plant 3: The plant was changed since; it was left as it is.\n",
  ]);
  expect((await service.readPlants()).map(({ id }) => id)).toEqual([1n, 2n, 3n]);
});

test("revert lists the first ten plants that were changed since, and how many more there are", async () => {
  using at = makeWorkplace({ "many.ndjson": lines(1, 12) });
  const { stderr } = await at.run("import", "many.ndjson");
  const [, batch = ""] = /--batch '([^']+)'/.exec(stderr) ?? [];
  await at.run("change", "--all", "--set-tag", "since", "--yes");
  const done = await at.run("revert", "--batch", batch, "--yes");
  const left = (id: number): string =>
    `plantstore: plant ${id}: The plant was changed since; it was left as it is.\n`;
  const ids = Array.from({ length: 10 }, (_, index) => index + 1);
  expect([done.exitCode, done.stderr]).toEqual([
    3,
    `${ids.map(left).join("")}plantstore: … and 2 more\n`,
  ]);
});

test("revert refuses flags that it does not understand", async () => {
  using at = makeWorkplace(files);
  await at.run("import", "first.csv");
  for (const args of [
    [],
    ["--from", "yesterday"],
    ["--from", "0"],
    ["--from", "2", "--to", "1"],
    ["--batch", ""],
  ])
    expect([args, (await at.run("revert", ...args, "--yes")).exitCode]).toEqual([args, 2]);
  expect((await at.run("import", "wrong.csv", "--batch", "a\nb")).exitCode).toBe(2);
  expect(readPlants(at.store)).toHaveLength(2);
});

test("revert asks on a terminal, and without an answer changes nothing", async () => {
  using at = makeWorkplace(files);
  const args = ["revert", "--batch", await importBoth(at.run)];
  const { exitCode, screen } = await runOnTerminal(args, at.env, "Undo them? [y/N]");
  expect([exitCode, screen]).toEqual([143, expect.stringContaining("to undo 2")]);
  expect(readPlants(at.store)).toHaveLength(4);
});
