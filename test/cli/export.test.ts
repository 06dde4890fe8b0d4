/** plantstore export: what its files have, and that they appear only when complete. */

import { describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { runCommand, runScript, startCommand } from "../support/command.ts";
import { makeWorkplace, type Workplace } from "../support/folder.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { makeStore, readPlants, storePlants } from "../support/stores.ts";
import { until } from "../support/until.ts";

function setUp(count: number): Workplace {
  const at = makeWorkplace();
  makeStore(at.store, count);
  return at;
}

/** Whole or not. */
const listExports = ({ path }: Workplace): string[] =>
  readdirSync(path).filter((name) => name.includes("ndjson"));

describe("plantstore export", () => {
  test("writes one plant a line in the frame of each format, which an empty store has too", async () => {
    using at = setUp(0);
    const lines = ['{"id":-1,"name":"a","tag":""}', '{"id":9007199254740993,"name":"=b"}'];
    const ndjson = `${lines.join("\n")}\n`;
    const csv = 'id,name,tag\r\n-1,"a",""\r\n9007199254740993,"\'=b",\r\n';
    const formats: [string[], empty: string, full: string][] = [
      [[], "", ndjson],
      [["--format", "ndjson"], "", ndjson],
      [["--format", "json"], "[\n]\n", `[\n${lines.join(",\n")}\n]\n`],
      [["--format", "csv"], "id,name,tag\r\n", csv],
    ];
    const run = async (flags: string[]) => (await runCommand(["export", ...flags], at.env)).stdout;
    for (const [flags, empty] of formats) expect([flags, await run(flags)]).toEqual([flags, empty]);
    storePlants(at.store, [
      { id: -1n, name: "a", tag: "" },
      { id: 9007199254740993n, name: "=b", tag: null },
    ]);
    for (const [flags, , full] of formats) expect([flags, await run(flags)]).toEqual([flags, full]);
  });

  test("many pages, whole or filtered, are the same from the store and from a service", async () => {
    await using service = await startService();
    const { path } = service.database;
    makeStore(path, 2_500);
    const plants = readPlants(path);
    const direct = { DATABASE_URL: `sqlite:${path}` };
    const token = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const filters: [string[], (plant: StoredPlant) => boolean][] = [
      [[], () => true],
      [
        ["--tag", "tag 2", "--name", "PLANT 99", "--q", "plant tag"],
        ({ tag, name }) => tag === "tag 2" && name.includes("plant 99"),
      ],
      [["--tag", "a&b=c+d e%"], () => false],
      [["--tagged", "false"], ({ tag }) => tag === null],
      [["--tagged", "true", "--q", "99"], ({ tag, name }) => tag !== null && name.includes("99")],
    ];
    for (const [flags, isAsked] of filters) {
      const lines = plants.filter(isAsked).map((plant) => `${toBody(plant)}\n`);
      const expected = lines.join("");
      const [local, remote] = await Promise.all([
        runCommand(["export", ...flags], direct),
        runCommand(["export", ...flags, "--url", service.url], token),
      ]);
      expect(local.stdout).toBe(expected);
      expect(remote).toEqual({ exitCode: 0, stdout: expected, stderr: "" });
    }
  });

  test("is sorted the same from the store and from a service, page after page", async () => {
    await using service = await startService();
    const { path } = service.database;
    makeStore(path, 2_500);
    const byName = readPlants(path).toSorted((one, other) => (one.name < other.name ? -1 : 1));
    for (const [flags, plants] of [
      [["--sort", "name"], byName],
      [
        ["--sort", "-name", "--tag", "tag 2"],
        byName.toReversed().filter(({ tag }) => tag === "tag 2"),
      ],
      [["--sort", "-id"], readPlants(path).toReversed()],
    ] as const) {
      const stdout = plants.map((plant) => `${toBody(plant)}\n`).join("");
      const [local, remote] = await Promise.all([
        runCommand(["export", ...flags], { DATABASE_URL: `sqlite:${path}` }),
        runCommand(["export", ...flags, "--url", service.url], { PLANTSTORE_TOKEN: TEST_TOKEN }),
      ]);
      expect(local.stdout).toBe(stdout);
      expect(remote).toEqual({ exitCode: 0, stdout, stderr: "" });
    }
  });

  test("does not replace a file unasked, and leaves nothing half-written beside it", async () => {
    using at = setUp(3);
    const path = at.file("plants.ndjson");
    writeFileSync(path, "mine");
    const stderr = `plantstore: ${path} exists; --force replaces it.\n`;
    const refused = await runCommand(["export", "--output", path], at.env);
    expect(refused).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(readFileSync(path, "utf8")).toBe("mine");
    // Through a symbolic link, the file that it names is what is replaced.
    symlinkSync(path, at.file("link.ndjson"));
    const forced = ["export", "--output", at.file("link.ndjson"), "--force"];
    expect((await runCommand(forced, at.env)).exitCode).toBe(0);
    expect(readFileSync(path, "utf8").split("\n")).toHaveLength(4);
    mkdirSync(at.file("folder"));
    const folder = await runCommand(["export", "--output", at.file("folder"), "--force"], at.env);
    expect(folder.stderr).toContain("exists and is not a regular file");
    expect(readdirSync(at.path).filter((name) => name.endsWith(".partial"))).toEqual([]);
  });

  test.each([
    ["plants.db", undefined],
    ["plants.db-wal", symlinkSync],
  ])("does not replace the store: %s, even with --force", async (name, link) => {
    using at = setUp(0);
    const db = openDatabase(at.store);
    db.run("INSERT INTO plants (id, name) VALUES (1, 'a')");
    const output = link === undefined ? at.file(name) : at.file("plants.csv");
    link?.(at.file(name), output);
    const before = readdirSync(at.path).toSorted();
    for (const force of [[], ["--force"]]) {
      const finished = await runCommand(["export", "--output", output, ...force], at.env);
      expect(finished).toMatchObject({ exitCode: 2, stdout: "" });
      expect(finished.stderr).toMatch(/^plantstore: --output: .* is the store, or a part of it/);
    }
    expect(readdirSync(at.path).toSorted()).toEqual(before);
    expect(readPlants(at.store)).toEqual([{ id: 1n, name: "a", tag: null }]);
    db.close();
  });

  test("a reader that has seen enough is no failure", async () => {
    using at = setUp(20_000);
    const script = `"$0" export | head -n 1; exit "\${PIPESTATUS[0]}"`;
    expect(await runScript(script, at.env)).toEqual({
      exitCode: 0,
      stdout: '{"id":1,"name":"plant 1","tag":"tag 1"}\n',
      stderr: "",
    });
  });

  test.skipIf(!existsSync("/dev/full"))("a full disk is a failure, in one line", async () => {
    using at = setUp(3);
    expect(await runScript('"$0" export > /dev/full', at.env)).toMatchObject({
      exitCode: 1,
      stderr: "plantstore: standard output: no space left on device.\n",
    });
  });

  test("a stream that breaks off, from a service that then refuses, is a failure, and leaves no file", async () => {
    using at = setUp(0);
    const line = '{"id":1,"name":"a"}\n';
    const broken =
      "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" +
      `${line.length.toString(16)}\r\n${line}\r\n`;
    const refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nGone";
    const asked: string[] = [];
    using server = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        data: (socket, head) => {
          asked.push(/^GET (\S+)/.exec(head.toString())?.[1] ?? "");
          socket.end(asked.length === 1 ? broken : refused);
        },
      },
    });
    const url = `http://127.0.0.1:${server.port}`;
    const path = at.file("plants.ndjson");
    const token = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const args = ["export", "--url", url, "--output", path];
    const { exitCode, stdout, stderr } = await runCommand(args, token);
    expect([exitCode, stdout, stderr.replace(/\d\.\d s/, "… s")]).toEqual([
      1,
      "",
      `The connection to ${url} was lost. Trying again in … s.\n` +
        `plantstore: ${url} does not accept the token: Gone\n`,
    ]);
    // The plant may be lost with the connection that brought it.
    expect(asked[1]).toMatch(/^\/plants(\?after=1)?$/);
    expect(listExports(at)).toEqual([]);
  });

  test("on SIGINT exits 130, and leaves no file", async () => {
    using at = setUp(0);
    const headers = { "content-type": "application/x-ndjson" };
    const endless = () =>
      new ReadableStream({ start: (sender) => sender.enqueue('{"id":1,"name":"a"}\n') });
    using server = Bun.serve({ port: 0, fetch: () => new Response(endless(), { headers }) });
    const args = ["export", "--url", String(server.url), "--output", at.file("plants.ndjson")];
    const command = startCommand(args, { PLANTSTORE_TOKEN: TEST_TOKEN });
    await until("the export is under way", () => listExports(at).length > 0);
    command.kill("SIGINT");
    expect(await command.finished).toEqual({ exitCode: 130, stdout: "", stderr: "" });
    expect(listExports(at)).toEqual([]);
  });

  test.each([
    [["--format", "xml"], 2, "Allowed choices are"],
    [["--output", ""], 2, "expected a path, got nothing"],
    [["--output", "plants.xlsx"], 2, "the console exports workbooks; choose a .csv file"],
    [["--url", "http://127.0.0.1:1"], 2, "PLANTSTORE_TOKEN"],
    [["--url", "http://me:secret@127.0.0.1:1"], 2, '"http://********@127.0.0.1:1" is not allowed'],
    [["--database-url", "sqlite:/nowhere/none.db"], 1, "There is no store at /nowhere/none.db."],
    [["--output", "/nowhere/at/a.csv"], 1, "plantstore: The folder /nowhere/at does not exist.\n"],
    [["--output", "a".repeat(250)], 1, "name too long.\n"],
    [["--q", "word ".repeat(17)], 2, "--q: "],
    [["--sort", "colour"], 2, "colour"],
    [["extra"], 2, "too many arguments"],
  ])("%j is refused: exit %i", async (args, exitCode, says) => {
    using at = setUp(0);
    const stderr = expect.stringContaining(says);
    expect(await runCommand(["export", ...args], at.env)).toEqual({ exitCode, stdout: "", stderr });
  });
});
