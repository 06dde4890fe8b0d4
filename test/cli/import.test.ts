/** plantstore import on a store, as its users run it: files, refusals, exit codes, signals, progress. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { formatProgress } from "../../src/cli/terminal.ts";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { runCommand, runOnTerminal, runScript, startCommand } from "../support/command.ts";
import { failure, importPrints } from "../support/expect.ts";
import { lines, makeWorkplace, parseLines, type Workplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { countPlants, readPlants } from "../support/stores.ts";
import { makeWorkbook, rowsOf } from "../support/workbook.ts";
import { until } from "../support/until.ts";

const ANSI =
  "plantstore: The file is not in UTF-8. It seems to be in Windows-1252, as Excel saves plain CSV. Accept that with --encoding windows-1252.\n";

describe("plantstore import", () => {
  const ndjson = '{"id":1,"name":"a","tag":"x"}\n{"id":9007199254740993,"name":"b"}\n';
  const json = '[{"id":1,"name":"a","tag":"x"},\n{"id":9007199254740993,"name":"b"}]';
  const csv = "id,name,tag\n1,a,x\n9007199254740993,b,\n";
  const stored = [
    { id: 1n, name: "a", tag: "x" },
    { id: 9007199254740993n, name: "b", tag: null },
  ];

  test.each([
    ["plants.JSONL", ndjson, []],
    ["plants.json", json, []],
    ["plants.tsv", csv.replaceAll(",", "\t"), []],
    ["plants.txt", csv.replaceAll(",", ";"), ["--format", "csv", "--delimiter", ";"]],
    ["plants.csv", csv.replaceAll(",", ";"), []],
    ["plants.csv", csv.replace("id,name,tag", "Nr,P,T"), ["--map", "id=Nr, name=P,tag=T"]],
    ["plants.csv", ndjson, ["--format", "ndjson"]],
  ])("%s: %j with %j is stored, and recognised the next time", async (name, text, more) => {
    using at = makeWorkplace({ [name]: text });
    expect(await at.run("import", name, ...more)).toEqual({
      exitCode: 0,
      stdout: "created 2, replayed 0, refused 0\n",
      stderr: importPrints(`plantstore: created a new store at ${at.store}\n`),
    });
    expect(readPlants(at.store)).toEqual(stored);
    const again = await at.run("import", name, "--json", ...more);
    expect(again).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(again.stdout)).toEqual({
      finished: true,
      created: 0,
      batch: expect.stringContaining(name),
      replayed: 2,
      refused: 0,
      seconds: expect.any(Number),
    });
  });

  test("refuses bad records alone, keeps them in --rejects in their order, and exits 3", async () => {
    using at = makeWorkplace({
      "plants.ndjson":
        '{"id":1,"name":"a"}\n\n{"id":1,"name":"other"}\nnot json\n{"id":2}\n{"id":1,"name":"a"}\n{"id":3,"name":"c"}',
    });
    openDatabase(at.store).close();
    expect(await at.run("import", "plants.ndjson", "--rejects", "rejects.ndjson")).toEqual({
      exitCode: 3,
      stdout: "created 2, replayed 1, refused 3\n",
      stderr: importPrints(""),
    });
    const taken = "A different plant has the id 1; nothing was changed. (error 3001)";
    expect(parseLines(readFileSync(at.file("rejects.ndjson"), "utf8"))).toEqual([
      { line: 3, reason: taken, id: 1, name: "other" },
      { line: 4, reason: expect.stringContaining("not valid JSON"), text: "not json" },
      { line: 5, reason: "name: expected a string, got nothing (error 1003)", id: 2 },
    ]);
    expect(readPlants(at.store).map((plant) => plant.id)).toEqual([1n, 3n]);
  });

  test.each([
    ["csv", "Nr;Plant\n1;a\n1;b\n4E12;c\n", ["--map", "id=Nr,name=Plant", "--delimiter", ";"]],
    ["csv", "Nr;Plant\n1;a\n1;b\n4E12;c\n", ["--map", "id=Nr,name=Plant"]],
    ["ndjson", '{"id":1,"name":"a"}\n{"id":1,"name":"b"}\n{"id":"4E12","name":"c"}\n', []],
    ["json", '[{"id":1,"name":"a"},{"id":1,"name":"b"},\n{"id":"4E12","name":"c"}]', []],
  ])("rejects of %s can be mended and imported again, twice", async (format, text, more) => {
    using at = makeWorkplace({ [`plants.${format}`]: text });
    const importTo = async (from: string, to: string, refused: number): Promise<void> =>
      expect(await at.run("import", from, ...more, "--rejects", to)).toMatchObject({
        exitCode: refused === 0 ? 0 : 3,
        stdout: `created 1, replayed 0, refused ${refused}\n`,
      });
    const mend = (name: string, wrong: RegExp, right: string): void =>
      writeFileSync(at.file(name), readFileSync(at.file(name), "utf8").replace(wrong, right));
    const [first, second] = [`first.${format}`, `second.${format}`];
    await importTo(`plants.${format}`, first, 2);
    mend(first, /1(?=;b|,"name":"b")/, "2");
    await importTo(first, second, 1);
    // The old line and reason are replaced, and do not pile up.
    expect(readFileSync(at.file(second), "utf8").match(/reason/g)).toHaveLength(1);
    mend(second, /"?4E12"?(?=;c|,"name")/, "4");
    await importTo(second, `third.${format}`, 0);
    const found = readPlants(at.store).map(({ id, name }) => `${id} ${name}`);
    expect(found).toEqual(["1 a", "2 b", "4 c"]);
  });

  test("--rejects does not replace a file without --force, and - is standard output", async () => {
    using at = makeWorkplace({ "plants.csv": "id,name,tag\nx,a,\n", "rejects.csv": "mine" });
    const rejects = at.file("rejects.csv");
    const importTo = (...to: string[]) => at.run("import", "plants.csv", "--rejects", ...to);
    const stderr = "plantstore: rejects.csv exists; --force replaces it.\n";
    expect(await importTo("rejects.csv")).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(readFileSync(rejects, "utf8")).toBe("mine");
    const rows =
      '\ufeffline,reason,id,name,tag\n2,"The id is not a whole number: ""x"". (error 1003)",x,a,\n';
    expect(await importTo("rejects.csv", "--force")).toMatchObject({ exitCode: 3, stderr: "" });
    expect(readFileSync(rejects, "utf8")).toBe(rows);
    // Refused records alone make no store.
    expect(readdirSync(at.path).toSorted()).toEqual(["plants.csv", "rejects.csv"]);
    expect(await importTo("-")).toEqual({
      exitCode: 3,
      stdout: rows.slice(1),
      stderr: "plantstore: created 0, replayed 0, refused 1\n",
    });
    const { stderr: line } = await importTo("-", "--json");
    expect(JSON.parse(line)).toMatchObject({ finished: true, created: 0, refused: 1 });
  });

  test("--rejects into a pipe without a reader fails, and says what is stored", async () => {
    using at = makeWorkplace({ "plants.ndjson": `${lines(1, 2)}not json\n` });
    openDatabase(at.store).close();
    // The fifo has had a reader, which is gone.
    const script =
      'mkfifo pipe; true < pipe & exec > pipe; wait; "$0" import plants.ndjson --rejects -';
    expect(await runScript(script, at.env, at.path)).toMatchObject({
      exitCode: 1,
      stderr: importPrints(
        "",
        "plantstore: standard output: broken pipe.\n" +
          "The import did not finish: 2 plants are known to be stored. Running it again is safe.\n",
      ),
    });
  });

  test("without --rejects prints the first ten, and how many more there are", async () => {
    using at = makeWorkplace({ "plants.csv": `id,name\n${"x,y\n".repeat(12)}1,a\n` });
    openDatabase(at.store).close();
    const finished = await at.run("import", "plants.csv");
    expect(finished).toMatchObject({ exitCode: 3, stdout: "created 1, replayed 0, refused 12\n" });
    const printed = finished.stderr.trimEnd().split("\n");
    expect(printed).toHaveLength(12);
    expect(printed[0]).toBe('line 2: The id is not a whole number: "x". (error 1003)');
    expect(printed[10]).toBe("… and 2 more; --rejects <file> keeps them all.");
  });

  test.each([
    ["plants.ndjson --map name=Plant", "--map: only with CSV"],
    ["plants.ndjson --delimiter ;", "--delimiter: only with CSV"],
    ["plants.csv --map colour=Plant", "the fields are id, name, tag"],
    ["plants.csv --map name", "expected field=heading"],
    ["plants.csv --map name=A,name=B", "name appears twice"],
    ["plants.csv --map name=A --rejects old --force", 'No column is headed "A"; the columns are'],
    ["plants.csv --delimiter x", "Allowed choices are"],
    ["plants.csv --delimiter ;", "or set the --delimiter"],
    ["-", "--format is needed to read standard input"],
    ["plants.db", "give --format ndjson, json, csv or xlsx"],
    ["plants.csv --rejects plants.csv", "is the file to import"],
    ["plants.csv --rejects ", "expected a path, got nothing"],
    ["plants.csv --url ftp://example.org", "--url:"],
    ["plants.csv --url http://127.0.0.1:1", "PLANTSTORE_TOKEN"],
    ["plants.csv --url http://a.example --database-url sqlite:x", "give one of them"],
    ["plants.xlsx --delimiter ;", "--delimiter: only with CSV"],
    ["plants.xlsx --encoding utf-8", "--encoding: a workbook has its own"],
    ["plants.csv --sheet One", "--sheet: only with a workbook"],
    ["- --format xlsx", "a workbook is read from a file, not from a pipe"],
  ])("%j is not understood: exit 2", async (args, says) => {
    using at = makeWorkplace({ "plants.ndjson": ndjson, "plants.csv": csv, old: "mine" });
    expect(await at.run("import", ...args.split(" "))).toEqual(failure(2, says));
    expect(readFileSync(at.file("plants.csv"), "utf8")).toBe(csv);
    expect(readFileSync(at.file("old"), "utf8")).toBe("mine");
  });

  test.each([
    ["plants.ndjson", linkSync],
    ["plants.db-wal", symlinkSync],
  ])(
    "--rejects through a link to %s is not understood, and nothing is changed (%p)",
    async (name, link) => {
      using at = makeWorkplace({ "plants.ndjson": `${lines(2, 1)}not json\n` });
      const db = openDatabase(at.store);
      db.run("INSERT INTO plants (id, name) VALUES (1, 'a')");
      link(at.file(name), at.file("rejects"));
      const before = readFileSync(at.file(name));
      const finished = await at.run("import", "plants.ndjson", "--rejects", "rejects", "--force");
      const says = /^plantstore: --rejects: .* is (the file to import|the store, or a part of it)/;
      expect(finished).toEqual(failure(2, says));
      expect(readFileSync(at.file(name)).equals(before)).toBe(true);
      expect(readPlants(at.store)).toEqual([{ id: 1n, name: "a", tag: null }]);
      db.close();
    },
  );

  describe.skipIf(Bun.which("prlimit") === null)("with no room left", () => {
    const importIn = ({ env }: Workplace, bytes: number, ...args: string[]) =>
      runCommand(["import", ...args], env, { wrapper: ["prlimit", `--fsize=${bytes}`] });

    const refusedRecords = { "plants.json": `[${"{},".repeat(4_999)}{}]` };

    test("a file of --rejects without a whole record is removed", async () => {
      using at = makeWorkplace(refusedRecords);
      const args = [at.file("plants.json"), "--rejects", at.file("rejects.json")];
      expect(await importIn(at, 50_000, ...args)).toMatchObject({ exitCode: 1 });
      expect(readdirSync(at.path)).toEqual(["plants.json"]);
    });

    test("the file of --rejects is named, and ends with a whole record", async () => {
      using at = makeWorkplace(refusedRecords);
      const rejects = at.file("rejects.json");
      const args = [at.file("plants.json"), "--rejects", rejects];
      const { exitCode, stderr } = await importIn(at, 500_000, ...args);
      expect(exitCode).toBe(1);
      expect(stderr).toStartWith(`plantstore: ${rejects}: file too large`);
      const again = await at.run("import", rejects, "--json");
      const whole = JSON.parse(again.stdout) as { finished: boolean; refused: number };
      expect(whole).toMatchObject({ finished: true });
      expect(whole.refused).toBeWithin(1, 5_000);
    });

    test("for a new store, the next import makes it", async () => {
      using at = makeWorkplace({ "plants.ndjson": ndjson });
      expect(await importIn(at, 6_000, at.file("plants.ndjson"))).toMatchObject({ exitCode: 1 });
      expect(statSync(at.store).size).toBe(4096);
      expect(await at.run("import", "plants.ndjson")).toMatchObject({ exitCode: 0 });
      expect(readPlants(at.store)).toEqual(stored);
    });
  });

  test.each([
    ["that isn't here.csv", "", 1, "that isn't here.csv: no such file"],
    ["folder.csv", "", 1, "is a folder"],
    ["plants.json", '{"id":1,"name":"a"}', 1, "does not begin a JSON array"],
    ["plants.csv", "Nr,name\n1,a\n", 2, 'No column is headed "id"'],
    ["plants.csv", "id,name\n1,Gr\xf6\xdfe\n", 1, ANSI],
  ])(
    "%s with %j fails with exit %i and a reason, and makes no store",
    async (name, text, exitCode, says) => {
      using at = makeWorkplace();
      if (text !== "") writeFileSync(at.file(name), text, "latin1");
      if (name === "folder.csv") mkdirSync(at.file(name));
      const finished = await at.run("import", name);
      expect(finished).toEqual(failure(exitCode, says));
      expect(finished.stderr).toMatch(/^plantstore: .+\n(The import did not finish: .+\n)?$/);
      expect(readdirSync(at.path).filter((one) => one !== name)).toEqual([]);
    },
  );

  test("a file in Windows-1252 is imported when that is confirmed", async () => {
    using at = makeWorkplace();
    openDatabase(at.store).close();
    writeFileSync(at.file("plants.csv"), "id,name\n1,Gr\xf6\xdfe\n", "latin1");
    expect(await at.run("import", "plants.csv", "--encoding", "windows-1252")).toMatchObject({
      exitCode: 0,
      stderr: importPrints("Reading the file as WINDOWS-1252.\n"),
    });
    expect(readPlants(at.store)).toEqual([{ id: 1n, name: "Größe", tag: null }]);
  });

  test("a sheet of a workbook is read, and its refused rows are kept as CSV", async () => {
    using at = makeWorkplace();
    const stock = rowsOf([
      ["Nr", "Plant"],
      ["9007199254740993", "=Rose"],
      [1_234_567_890_123_456, "Tulip"],
    ]);
    const bytes = makeWorkbook({ sheets: { Notes: rowsOf([["x"]]), Stock: stock } });
    writeFileSync(at.file("stock.xlsx"), bytes);
    const args = ["--map", "id=Nr,name=Plant", "--sheet", "Stock", "--rejects", "rejects.csv"];
    const finished = await at.run("import", "stock.xlsx", ...args);
    expect(finished).toMatchObject({ exitCode: 3, stdout: "created 1, replayed 0, refused 1\n" });
    expect(readPlants(at.store)).toEqual([{ id: 9007199254740993n, name: "=Rose", tag: null }]);
    expect(readFileSync(at.file("rejects.csv"), "utf8")).toMatch(
      /^\ufeffline,reason,"Nr","Plant"\n3,"The spreadsheet has rounded the id.*","1\.234567890123456E\+15","Tulip"\n$/,
    );
  });

  test("a file that is cut off fails, and says how much of it is stored", async () => {
    using at = makeWorkplace({ "plants.json": '[{"id":1,"name":"a"},{"id":2,"name":"b"},{"id":3' });
    const finished = await at.run("import", "plants.json", "--json");
    expect(finished.exitCode).toBe(1);
    expect(finished.stderr).toContain("in the record that begins on line 1.\n");
    expect(finished.stderr).toContain("2 plants are known to be stored. Running it again is safe.");
    expect(JSON.parse(finished.stdout)).toMatchObject({ finished: false, created: 2 });
    expect(countPlants(at.store)).toBe(2);
  });

  test.skipIf(process.platform !== "linux").each([
    ["ndjson", lines(1, 1), `\n${lines(2, 1)}`, 2],
    ["json", '[{"id":1,"name":"p"},\n"', '",{"id":2,"name":"p"}\n,', 2],
    // Fewer than 12 bytes are not parsed before more of the file comes.
    ["csv", 'id,name\n1,p\n3,"', '"\n2,maidenhair\n', 3],
  ])(
    "%s: a record of 80 MB is refused in constant memory, and the other records are imported",
    async (format, before, after, line) => {
      using at = makeWorkplace();
      openDatabase(at.store).close();
      const command = startCommand(["import", "-", "--format", format], at.env);
      await command.write(before);
      const megabyte = new Uint8Array(1024 * 1024).fill(32);
      for (let written = 0; written < 80; written++) await command.write(megabyte);
      await command.write(after);
      await until("2 plants are stored", () => countPlants(at.store) === 2);
      const status = readFileSync(`/proc/${command.pid}/status`, "utf8");
      await command.write(format === "json" ? "0]" : "");
      await command.end();
      const { exitCode, stderr } = await command.finished;
      expect(exitCode).toBe(3);
      expect(stderr).toMatch(/larger than \d+ bytes\. \(error 4007\)\n/);
      expect(stderr).toStartWith(`line ${line}: `);
      expect(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1])).toBeLessThan(120_000);
    },
  );

  test("waits for a store that someone else is writing to", async () => {
    using at = makeWorkplace();
    openDatabase(at.store).close();
    const command = startCommand(["import", "-", "--format", "ndjson"], {
      ...at.env,
      ...limits({ queueSecondsMax: 1 }),
    });
    await command.write(lines(1, 3));
    await until("3 plants are stored", () => countPlants(at.store) === 3);
    const other = new Database(at.store);
    other.run("BEGIN IMMEDIATE");
    await command.write(lines(4, 3));
    await command.end();
    await until("it tries again", () => command.stderr().includes("Trying again"));
    other.run("COMMIT");
    other.close();
    expect(await command.finished).toEqual({
      exitCode: 0,
      stdout: "created 6, replayed 0, refused 0\n",
      stderr: expect.stringMatching(
        /^(The request timed out in the queue; nothing was stored\. Trying again in \d\.\d s\.\n)+plantstore: to undo this import: [^\n]+\n$/,
      ),
    });
  });

  test("on SIGTERM prints how far it got, exits 143, and simply runs again", async () => {
    using at = makeWorkplace({ "plants.ndjson": lines(1, 20) });
    await at.run("import", "plants.ndjson");
    const command = startCommand(["import", "-", "--format", "ndjson"], at.env);
    await command.write(lines(11, 20));
    await until("30 plants are stored", () => countPlants(at.store) === 30);
    command.kill("SIGTERM");
    expect(await command.finished).toMatchObject({
      exitCode: 143,
      stdout: "created 10, replayed 10, refused 0\n",
      stderr: importPrints(
        "",
        "plantstore: interrupted. 20 plants are known to be stored. Running it again is safe.\n",
      ),
    });
    const again = await at.run("import", "plants.ndjson");
    expect(again).toMatchObject({ exitCode: 0, stdout: "created 0, replayed 20, refused 0\n" });
  });
});

const CLEAR_LINE = "\r\u001b[K";

test("progress shows the stage, percent, count, rate, refusals and time, as far as there is room", () => {
  const reading = { stage: "copying", plants: 481_203, refused: 3, part: 0.48 };
  expect(formatProgress(reading, 65, 80)).toBe(
    "copying  48%  481,203 plants  7,403/s  3 refused  1:05",
  );
  expect(formatProgress({ plants: 5 }, 1, 80)).toBe("5 plants  5/s  0:01");
  // A file may grow while it is read.
  expect(formatProgress({ plants: 5, part: 1.2 }, 1, 80)).toStartWith("100%  ");
  for (let columns = 1; columns < 100; columns++)
    expect(formatProgress(reading, 65, columns).length).toBeLessThan(columns);
});

test("progress is on the terminal while it lasts, and gone at the end", async () => {
  using at = makeWorkplace({ "plants.ndjson": lines(1, 60_000) });
  const { exitCode, screen } = await runOnTerminal(["import", at.file("plants.ndjson")], at.env);
  expect(exitCode).toBe(0);
  const drawn = screen.split(CLEAR_LINE);
  expect(drawn[1]).toMatch(/^\d+%  [\d,]+ plants  [\d,]+\/s/);
  expect(drawn.at(-1)).toMatch(
    /^created 60000, replayed 0, refused 0\r\nplantstore: to undo this import: [^\n]+\n$/,
  );
});
