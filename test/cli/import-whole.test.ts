/** plantstore import --upsert, --remove-missing and --dry-run: on every kind of store, as people run it. */

import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { type Finished, runCommand, runOnTerminal } from "../support/command.ts";
import type { Job } from "../../src/domain/job.ts";
import { openStoreAt, openTestDatabase } from "../support/database.ts";
import { failure } from "../support/expect.ts";
import { makeJob } from "../support/job.ts";
import { lines, makeWorkplace } from "../support/folder.ts";
import type { StoredPlant } from "../support/plants.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { canMount, mountSmallFolder } from "../support/small-disk.ts";
import { readPlants } from "../support/stores.ts";

const first =
  "id,name,tag\n-5,minus,\n1,same,x\n2,before,\n3,gone,y\n9007199254740993,big,\n4,p,\n5,p,\n6,p,\n7,p,\n8,p,\n";
const second =
  "id,name,tag\n-5,minus,\n1,same,x\n2,after,z\n9007199254740993,big,\n4,p,\n5,p,\n6,p,\n7,p,\n8,p,\n9,new,\n";

interface Place {
  readonly run: (...args: readonly string[]) => Promise<Finished>;
  readonly file: (name: string) => string;
  readonly read: () => Promise<readonly StoredPlant[]>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The same commands on a file, on PostgreSQL, and through a service. */
const kinds: Readonly<Record<string, (files: Record<string, string>) => Promise<Place>>> = {
  "a file": async (files) => {
    const at = makeWorkplace(files);
    const read = async () => readPlants(at.store);
    return { ...at, read, [Symbol.asyncDispose]: async () => at[Symbol.dispose]() };
  },
  PostgreSQL: async (files) => {
    const stack = new AsyncDisposableStack();
    const { url, readPlants: read } = stack.use(await openTestDatabase("postgres"));
    const at = stack.use(makeWorkplace(files));
    const run = (...args: readonly string[]) =>
      runCommand(args, { DATABASE_URL: url }, { cwd: at.path });
    return { run, read, file: at.file, [Symbol.asyncDispose]: () => stack.disposeAsync() };
  },
  "a service": async (files) => {
    const stack = new AsyncDisposableStack();
    const service = stack.use(await startService());
    const at = stack.use(makeWorkplace(files));
    const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const run = (...args: readonly string[]) =>
      runCommand([...args, "--url", service.url], env, { cwd: at.path });
    const read = service.readPlants;
    return { run, read, file: at.file, [Symbol.asyncDispose]: () => stack.disposeAsync() };
  },
};

/** As a file of the tests has it. */
const readCsv = async ({ read }: Place): Promise<string> => {
  const rows = (await read()).map(({ id, name, tag }) => `${id},${name},${tag ?? ""}\n`);
  return ["id,name,tag\n", ...rows].join("");
};

const batchOf = ({ stderr }: Finished): string =>
  /plantstore revert --batch '([^']+)'/.exec(stderr)?.[1] ?? "";

describe.each(Object.keys(kinds))("on %s", (kind) => {
  const open = kinds[kind] as (typeof kinds)[string];

  test("--upsert replaces what differs, says what it did, and is reverted whole", async () => {
    await using place = await open({ "first.csv": first, "second.csv": second });
    await place.run("import", "first.csv");
    const before = await readCsv(place);
    const refused = await place.run("import", "second.csv", "--dry-run");
    expect([refused.exitCode, refused.stdout]).toEqual([
      3,
      '9: none -> "new"\ncreated 1, changed 0, removed 0, same 8, refused 1\n',
    ]);
    expect(refused.stderr).toContain("line 4: A different plant has the id 2");
    expect(await place.run("import", "second.csv", "--upsert", "--dry-run")).toEqual({
      exitCode: 0,
      stdout:
        '2: "before" -> "after" ["z"]\n9: none -> "new"\n' +
        "created 1, changed 1, removed 0, same 8, refused 0\n",
      stderr: "",
    });
    expect(await readCsv(place)).toBe(before);
    const done = await place.run("import", "second.csv", "--upsert");
    expect([done.exitCode, done.stdout]).toEqual([
      0,
      "created 1, changed 1, replayed 8, refused 0\n",
    ]);
    const again = await place.run("import", "second.csv", "--upsert", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({ created: 0, replaced: 0, replayed: 10 });
    expect(again.stderr).toBe("");
    await place.run("revert", "--batch", batchOf(done), "--yes");
    expect(await readCsv(place)).toBe(before);
    const { stdout } = await place.run("export", "--format", "csv");
    expect(stdout.replaceAll(/[\ufeff\r"]/g, "")).toBe(before);
  });

  test("--remove-missing makes the store what the file is, and is reverted whole", async () => {
    await using place = await open({ "first.csv": first, "second.csv": second });
    await place.run("import", "first.csv");
    const before = await readCsv(place);
    const preview = await place.run(
      "import",
      "second.csv",
      "--remove-missing",
      "--dry-run",
      "--json",
    );
    expect([preview.exitCode, preview.stderr]).toEqual([0, ""]);
    expect(JSON.parse(preview.stdout)).toEqual({
      dryRun: true,
      created: 1,
      changed: 1,
      removed: 1,
      same: 8,
      refused: 0,
      sample: [
        { id: 2, now: { name: "before" }, after: { name: "after", tag: "z" } },
        { id: 3, now: { name: "gone", tag: "y" } },
        { id: 9, after: { name: "new" } },
      ],
      seconds: expect.any(Number),
    });
    expect(await readCsv(place)).toBe(before);
    // One of ten is not above a tenth.
    const done = await place.run("import", "second.csv", "--remove-missing");
    expect([done.exitCode, done.stdout]).toEqual([
      0,
      "created 1, changed 1, removed 1, replayed 8, changed since 0, refused 0\n",
    ]);
    expect((await readCsv(place)).split("\n").toSorted()).toEqual(second.split("\n").toSorted());
    const again = await place.run("import", "second.csv", "--remove-missing", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({
      created: 0,
      replaced: 0,
      removed: 0,
      replayed: 10,
    });
    await place.run("revert", "--batch", batchOf(done), "--yes");
    expect(await readCsv(place)).toBe(before);
  });

  test("--remove-missing changes nothing if a record is refused, or too much would go", async () => {
    await using place = await open({
      "first.csv": first,
      "short.csv": "id,name\n1,other\n10,new\n",
      "bad.csv": `${second}x,bad,\n`,
      "twice.csv": `${second}9,different,\n`,
    });
    await place.run("import", "first.csv");
    const before = await readCsv(place);
    const bad = await place.run(
      "import",
      "bad.csv",
      "--remove-missing",
      "--yes",
      "--rejects",
      "rejects.csv",
    );
    expect(bad).toEqual(failure(1, "1 record is refused. Nothing was changed."));
    expect(existsSync(place.file("rejects.csv"))).toBe(true);
    const twice = await place.run("import", "twice.csv", "--remove-missing", "--yes");
    expect(twice).toEqual(
      failure(1, "line 12: An earlier record of the file has a different plant with the id 9."),
    );
    const short = await place.run("import", "short.csv", "--remove-missing");
    expect(short).toEqual(
      failure(1, "The file lacks 9 of 10 plants, more than a tenth of the store."),
    );
    expect(short.stderr).not.toContain("did not finish");
    expect(await readCsv(place)).toBe(before);
    const done = await place.run("import", "short.csv", "--remove-missing", "--yes");
    expect(done.stdout).toStartWith("created 1, changed 1, removed 9, replayed 0");
    expect(await readCsv(place)).toBe("id,name,tag\n1,other,\n10,new,\n");
  });
});

test("a store and a file of many pages are compared by every id", async () => {
  using at = makeWorkplace({
    "odd.ndjson": Array.from(
      { length: 2_500 },
      (_, index) => `{"id":${index * 2 + 1},"name":"p"}\n`,
    )
      .toReversed()
      .join(""),
    "some.ndjson": lines(-1_200, 1_200) + lines(1, 10) + lines(4_990, 3_000),
  });
  await at.run("import", "odd.ndjson");
  const compared = await at.run("import", "some.ndjson", "--remove-missing", "--dry-run", "--json");
  // 1, 3, 5, 7, 9 and 4991, 4993, 4995, 4997, 4999 are in both.
  expect(JSON.parse(compared.stdout)).toMatchObject({ created: 4_200, same: 10, removed: 2_490 });
  const some = await at.run("import", "some.ndjson", "--dry-run", "--json");
  expect(JSON.parse(some.stdout)).toMatchObject({
    created: 4_200,
    same: 10,
    removed: 0,
    refused: 0,
  });
  await at.run("import", "some.ndjson", "--remove-missing", "--yes");
  const ids = readPlants(at.store).map(({ id }) => Number(id));
  expect(ids).toEqual(
    [-1_200, 1, 4_990].flatMap((from, range) =>
      Array.from({ length: [1_200, 10, 3_000][range] as number }, (_, index) => from + index),
    ),
  );
});

test("the least and the largest id are compared", async () => {
  const ends = '{"id":-9223372036854775808,"name":"a"}\n{"id":9223372036854775807,"name":"b"}\n';
  using at = makeWorkplace({ "ends.ndjson": ends, "none.ndjson": "" });
  await at.run("import", "ends.ndjson");
  const same = await at.run("import", "ends.ndjson", "--remove-missing", "--json");
  expect(JSON.parse(same.stdout)).toMatchObject({ replayed: 2, removed: 0 });
  const dry = await at.run("import", "ends.ndjson", "--dry-run", "--json");
  expect(JSON.parse(dry.stdout)).toMatchObject({ same: 2 });
  const emptied = await at.run("import", "none.ndjson", "--remove-missing", "--yes", "--json");
  expect(JSON.parse(emptied.stdout)).toMatchObject({ removed: 2 });
  expect(readPlants(at.store)).toEqual([]);
});

test("a dry run creates no store, and leaves no temporary file", async () => {
  using at = makeWorkplace({ "plants.ndjson": lines(1, 3) });
  const env = { ...at.env, TMPDIR: at.path };
  const { stdout } = await runCommand(["import", at.file("plants.ndjson"), "--dry-run"], env);
  expect(stdout).toEndWith("created 3, changed 0, removed 0, same 0, refused 0\n");
  expect(readdirSync(at.path)).toEqual(["plants.ndjson"]);
});

test.skipIf(!canMount)(
  "a full folder for temporary files is named, and nothing is stored or removed",
  async () => {
    using full = mountSmallFolder();
    // More than the memory of the comparison.
    const long = Array.from({ length: 30 }, (_, id) => ({ id, name: "a".repeat(900_000) }));
    using at = makeWorkplace({
      "old.ndjson": lines(100, 3),
      "new.ndjson": long.map((plant) => `${JSON.stringify(plant)}\n`).join(""),
    });
    await at.run("import", "old.ndjson");
    for (const more of [["--remove-missing", "--yes"], ["--dry-run"]]) {
      const env = { ...at.env, TMPDIR: full.path };
      expect(await runCommand(["import", at.file("new.ndjson"), ...more], env)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr:
          `plantstore: database or disk is full. Temporary files are in ${full.path}: ` +
          "make room there, or name another folder with TMPDIR.\n",
      });
    }
    expect(readPlants(at.store).map(({ id }) => id)).toEqual([100n, 101n, 102n]);
    expect(readdirSync(full.path)).toEqual([]);
  },
);

test("--remove-missing leaves the plants alone if one of the file cannot be stored", async () => {
  await using service = await startService({ PLANTSTORE_PLANTS_MAX: "3" });
  using at = makeWorkplace({ "old.ndjson": lines(1, 3), "new.ndjson": lines(3, 3) });
  const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
  const run = (...args: string[]) =>
    runCommand([...args, "--url", service.url], env, { cwd: at.path });
  await run("import", "old.ndjson");
  const failed = await run("import", "new.ndjson", "--remove-missing", "--yes");
  expect(failed.exitCode).toBe(1);
  expect(failed.stderr).toContain("2 plants could not be stored, so nothing was removed.");
  expect((await service.readPlants()).map(({ id }) => id)).toEqual([1n, 2n, 3n]);
});

test("--remove-missing leaves a plant alone that others changed since the comparison", async () => {
  await using service = await startService();
  const { store } = service;
  using at = makeWorkplace({ "all.ndjson": lines(1, 20), "most.ndjson": lines(1, 19) });
  const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
  const run = (...args: string[]) =>
    runCommand([...args, "--url", service.url], env, { cwd: at.path });
  await run("import", "all.ndjson");
  const writePlants = store.writePlants.bind(store);
  store.writePlants = async (...given) => {
    store.writePlants = writePlants;
    await store.replacePlant({ id: 20n, name: "theirs", tag: undefined }, {});
    return writePlants(...given);
  };
  const { exitCode, stdout, stderr } = await run("import", "most.ndjson", "--remove-missing");
  expect([exitCode, stdout]).toEqual([
    3,
    expect.stringContaining("removed 0, replayed 19, changed since 1"),
  ]);
  expect(stderr).toContain("plant 20: It was changed meanwhile, and left as it is.");
  expect((await store.findPlant(20n))?.name).toBe("theirs");
});

test("on a terminal --remove-missing asks, and without an answer changes nothing", async () => {
  using at = makeWorkplace({ "old.ndjson": lines(1, 3), "new.ndjson": lines(3, 3) });
  await at.run("import", "old.ndjson");
  const args = ["import", at.file("new.ndjson"), "--remove-missing"];
  const { exitCode, screen } = await runOnTerminal(args, at.env, "Remove them? [y/N]");
  expect(screen).toContain("the file lacks 2 of 3 plants.");
  expect(exitCode).toBe(143);
  expect(readPlants(at.store)).toHaveLength(3);
});

test("wrong combinations of flags are named, and nothing is stored", async () => {
  using at = makeWorkplace({ "plants.csv": first });
  for (const [args, says] of [
    [["--yes"], "--yes: only with --remove-missing"],
    [["--upsert", "--yes"], "--yes: only with --remove-missing"],
    [["--dry-run", "--remove-missing", "--yes"], "--dry-run and --yes"],
    [["--dry-run", "--batch", "x"], "--dry-run and --batch"],
    [["--dry-run", "--rejects", "r.csv"], "--dry-run and --rejects"],
  ] as const)
    expect(await at.run("import", "plants.csv", ...args)).toEqual(failure(2, says));
  expect(readdirSync(at.path)).toEqual(["plants.csv"]);
});

describe.each(Object.keys(kinds))("change and remove on %s", (kind) => {
  const open = kinds[kind] as (typeof kinds)[string];

  test("do what the dry run says to all that match, and are reverted whole", async () => {
    await using place = await open({ "first.csv": first });
    await place.run("import", "first.csv");
    const before = await readCsv(place);
    const dry = await place.run(
      "change",
      "--name",
      "P",
      "--set-tag",
      "bulk",
      "--dry-run",
      "--json",
    );
    expect(dry.exitCode).toBe(0);
    expect(JSON.parse(dry.stdout)).toMatchObject({
      plants: 5,
      exact: true,
      sample: [{ id: 4, now: { name: "p" }, after: { name: "p", tag: "bulk" } }, {}, {}, {}, {}],
    });
    expect(await readCsv(place)).toBe(before);
    const changed = await place.run("change", "--name", "P", "--set-tag", "bulk", "--yes");
    expect([changed.exitCode, changed.stdout]).toEqual([
      0,
      expect.stringMatching(/^changed 5, unchanged 0, changed since 0, refused 0; batch "change /),
    ]);
    const again = await place.run(
      "change",
      "--tag",
      "bulk",
      "--set-tag",
      "bulk",
      "--yes",
      "--json",
    );
    expect(JSON.parse(again.stdout)).toMatchObject({ plants: 5, replaced: 0, unchanged: 5 });
    expect(again.stderr).toBe("");
    const asked = await place.run("remove", "--tag", "bulk");
    expect(asked).toEqual(failure(2, "--yes is required without a terminal"));
    const listed = await place.run("remove", "--tag", "bulk", "--dry-run");
    expect(listed.stdout).toEndWith('8: "p" ["bulk"] -> none\n5 plants match\n');
    const removed = await place.run("remove", "--tag", "bulk", "--yes", "--batch", "spring");
    expect(removed.stdout).toBe(
      'removed 5, unchanged 0, changed since 0, refused 0; batch "spring"\n',
    );
    expect((await readCsv(place)).split("\n")).toHaveLength(7);
    await place.run("revert", "--batch", "spring", "--yes");
    await place.run("revert", "--batch", batchOf(changed), "--yes");
    expect(await readCsv(place)).toBe(before);
    const cleared = await place.run(
      "change",
      "--tag",
      "x",
      "--remove-tag",
      "--set-name",
      "n",
      "--yes",
    );
    expect(cleared.stdout).toStartWith("changed 1,");
    expect(await readCsv(place)).toContain("\n1,n,\n");
    const all = ["remove", "--all", "--except", "-5,9007199254740993,77"];
    const nearly = await place.run(...all, "--dry-run");
    expect(nearly.stdout).toEndWith("8 plants match\n");
    expect((await place.run(...all, "--yes")).stdout).toStartWith("removed 8,");
    expect(await readCsv(place)).toBe("id,name,tag\n-5,minus,\n9007199254740993,big,\n");
  });
});

test("import, change and remove are refused under the name of a running job", async () => {
  using at = makeWorkplace({ "plants.csv": first });
  await at.run("import", "plants.csv");
  const setJob = async (last: Job | undefined, state: Job["state"]): Promise<Job> => {
    await using store = await openStoreAt(at.env.DATABASE_URL);
    const job = { ...makeJob(state), state };
    expect(await store.putJob(job, last)).toBe(true);
    return job;
  };
  const running = await setJob(undefined, "running");
  const commands = [
    ["import", "plants.csv", "--upsert", "--batch", "b"],
    ["import", "plants.csv", "--remove-missing", "--batch", "b"],
    ["change", "--all", "--set-tag", "t", "--yes", "--batch", "b"],
    ["remove", "--all", "--yes", "--batch", "b"],
  ] as const;
  for (const args of commands)
    expect([args, await at.run(...args)]).toEqual([args, failure(1, "A job runs under the name")]);
  expect((await at.run("change", "--tag", "none", "--set-tag", "t", "--yes")).exitCode).toBe(0);
  expect(readPlants(at.store)).toHaveLength(10);
  await setJob(running, "ended");
  for (const args of commands) expect((await at.run(...args)).exitCode).toBe(0);
  expect(readPlants(at.store)).toHaveLength(0);
});

test("change and remove name what is wrong with their flags, and change nothing", async () => {
  using at = makeWorkplace({ "plants.csv": first });
  await at.run("import", "plants.csv");
  const tag = ["--tag", "x", "--yes"];
  for (const [args, says] of [
    [["change", "--set-tag", "t", "--yes"], "give a filter that not every plant matches: --tag"],
    [["change", "--name", "", "--set-tag", "t", "--yes"], "give a filter"],
    [["remove", "--q", " ", "--yes"], "give a filter"],
    [["remove", "--q", "\u0301 \u034f", "--yes"], "give a filter"],
    [["remove", "--q", "w ".repeat(17), "--yes"], "--q: "],
    [["change", ...tag], "give --set-name, --set-tag or --remove-tag"],
    [["change", ...tag, "--set-tag", "t", "--remove-tag"], "--set-tag and --remove-tag"],
    [["change", ...tag, "--set-tag", "t", "--dry-run"], "--dry-run and --yes"],
    [["remove", "--tag", "x", "--dry-run", "--batch", "b"], "--dry-run and --batch"],
    [["remove", ...tag, "--batch", "a\nb"], "--batch: "],
    [["remove", ...tag, "--set-tag", "t"], "unknown option"],
    [["remove", ...tag, "--all"], "--all: expected no filter with it"],
    [["remove", "--except", "1", "--yes"], "give a filter"],
    [
      ["remove", "--all", "--except", "1,x", "--yes"],
      '--except: "1,x" is not allowed; expected ids, separated by commas',
    ],
  ] as const)
    expect([args, await at.run(...args)]).toEqual([args, failure(2, says)]);
  expect(readPlants(at.store)).toHaveLength(10);
  using empty = makeWorkplace();
  expect(await empty.run("remove", ...tag)).toEqual(failure(1, "There is no store"));
});

test("import refuses a JSON record that says removed or ifMatch, in every mode, and changes nothing for it", async () => {
  const wrong = [
    '{"id":1,"name":"x","removed":false}',
    '{"id":1,"name":"x","removed":true}',
    '{"id":3,"removed":true}',
    '{"id":1,"name":"x","ifMatch":"abc"}',
    '{"id":1,"name":"x","ifMatch":"*"}',
  ];
  const files = { "wrong.ndjson": wrong.join("\n"), "wrong.json": `[${wrong.join(",")}]` };
  await using service = await startService();
  using at = makeWorkplace({ "plants.csv": first, ...files });
  const remote = ["--url", service.url];
  const run = (...args: readonly string[]) =>
    runCommand(args, { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN }, { cwd: at.path });
  for (const where of [[], remote]) await run("import", "plants.csv", ...where);
  const before = readPlants(at.store);
  for (const [file, mode, where, due] of [
    ["wrong.ndjson", ["--upsert"], [], 3],
    ["wrong.ndjson", ["--upsert"], remote, 3],
    ["wrong.json", ["--upsert", "--dry-run"], [], 3],
    ["wrong.json", ["--remove-missing", "--yes"], [], 1],
    ["wrong.json", [], remote, 3],
  ] as const) {
    const { exitCode, stderr } = await run("import", file, ...mode, ...where);
    expect([file, mode, exitCode]).toEqual([file, mode, due]);
    expect(stderr).toContain("removed: expected nothing in a file, got false");
    expect(stderr).toContain("ifMatch: expected nothing in a file, got");
  }
  expect(readPlants(at.store)).toEqual(before);
  expect(await service.readPlants()).toEqual(before);
});
