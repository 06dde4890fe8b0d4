/** The command line as its users run it: processes, output, exit codes, signals. */

import { describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import packageJson from "../../package.json";
import { formatForPeople, formatLogLine } from "../../src/cli/serve.ts";
import {
  runCommand,
  runOnTerminal,
  runScript,
  type ServiceProcess,
  spawnService,
} from "../support/command.ts";
import { expectError, failure, rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder, makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { readMetric, send, TEST_TOKEN } from "../support/service.ts";
import { makeStore, readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";

async function create({ started }: ServiceProcess, token: string): Promise<number> {
  const sent = { headers: { authorization: `Bearer ${token}` }, body: '{"id":1,"name":"a"}' };
  return (await send(started, "POST", "/plants", sent)).status;
}

describe("plantstore", () => {
  test("version prints it, from any folder and through a symbolic link", async () => {
    using at = makeWorkplace();
    const stdout = `${packageJson.version}\n`;
    expect(await runCommand(["version"])).toEqual({ exitCode: 0, stdout, stderr: "" });
    symlinkSync(`${import.meta.dir}/../../bin/plantstore.cjs`, at.file("linked"));
    expect(await runScript("./linked --version", {}, at.path)).toMatchObject({ stdout });
  });

  test.each([
    [["srve"], "Did you mean serve?"],
    [["serve", "--prot", "1"], "Did you mean --port?"],
    [["token", "crate"], "Did you mean create?"],
    [["token", "list", "--jsno"], "Did you mean --json?"],
    [["serve", "extra"], "too many arguments"],
    [["token", "revoke"], "missing required argument"],
    [["token", "create"], "--name"],
    [["serve", "--port"], "argument missing"],
    [["health", "--wait=-1"], "--wait"],
    [["health", "--wait=soon"], "--wait"],
    [["health", "--wait=99999"], "--wait"],
    [[], "Usage: plantstore"],
  ])("%j is not understood: exit 2, and the nearest is named", async (args, says) => {
    expect(await runCommand(args)).toEqual(failure(2, says));
  });
});

test.each(["import", "change", "copy", "serve", ""])(
  "the help of %p fits 80 columns where standard output is no terminal",
  async (command) => {
    const { stdout } = await runCommand([...command.split(" ").filter(Boolean), "--help"]);
    const lines = stdout.split("\n");
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.filter((line) => line.length > 80)).toEqual([]);
  },
);

test("help whose reader has left, as head does, is no failure", async () => {
  using folder = makeTemporaryFolder();
  const script = 'mkfifo fifo && { : <fifo & } && exec 3>fifo && wait && exec "$@" >&3';
  const wrapper = ["sh", "-c", script, "sh"];
  const finished = await runCommand(["serve", "--help"], {}, { wrapper, cwd: folder.path });
  expect(finished).toEqual({ exitCode: 0, stdout: "", stderr: "" });
});

describe("plantstore config", () => {
  test("prints effective values and where they come from, secrets masked", async () => {
    const { stdout, exitCode } = await runCommand(["config", "--json", "--port", "1234"], {
      HOST: "0.0.0.0",
      PLANTSTORE_TOKEN: "a-secret-of-20-chars",
    });
    expect(exitCode).toBe(0);
    const rows = JSON.parse(stdout) as Record<string, string>[];
    for (const [setting, value, source] of [
      ["PORT", "1234", "flag"],
      ["HOST", "0.0.0.0", "environment"],
      ["PLANTSTORE_TOKEN", "********", "environment"],
      ["PLANTSTORE_LOG_LEVEL", "info", "default"],
    ] as const)
      expect(rows).toContainEqual({ setting, value, source });
    expect(stdout).not.toContain("a-secret");
  });

  test("prints a table for people, and does not read a .env file that happens to be there", async () => {
    using at = makeWorkplace({ ".env": "PORT=4321\n" });
    const script = `${import.meta.dir}/../../bin/plantstore.cjs config`;
    const { stdout } = await runScript(script, {}, at.path);
    expect(stdout).toMatch(/^PORT +8080 +default$/m);
  });
});

describe("plantstore serve", () => {
  test("where standard output is no terminal, keeps the first token in a file for its owner alone, and prints it nowhere", async () => {
    using at = makeWorkplace();
    // Left by a store that was here before.
    writeFileSync(`${at.store}.token`, "old", { mode: 0o644 });
    {
      await using first = await spawnService(at.env);
      const { tokenFile = "" } = first.started;
      expect(first.started).toMatchObject({
        event: "listening",
        version: packageJson.version,
        store: { engine: "SQLite", location: at.store },
        tokenFile: `${at.store}.token`,
      });
      expect(JSON.stringify(first.started)).not.toContain("pst_");
      expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
      const token = readFileSync(tokenFile, "utf8");
      expect(token).toMatch(/^pst_\w+\n$/);
      expect(await create(first, token.trim())).toBe(200);
      first.kill("SIGTERM");
      await first.exited;
      expect(await first.stderr).not.toContain("pst_");
    }
    rmSync(`${at.store}.token`);
    await using second = await spawnService(at.env);
    expect(second.started.tokenFile).toBeUndefined();
    expect(existsSync(`${at.store}.token`)).toBe(false);
  });

  test("where the file of the first token cannot be written, makes no token and does not start, and no thread stays", async () => {
    using at = makeWorkplace();
    mkdirSync(`${at.store}.token`);
    for (const workers of process.platform === "linux" ? ["1", "2"] : ["1"]) {
      const finished = await at.run("serve", "--port", "0", "--workers", workers);
      expect(finished).toEqual(failure(1, new RegExp(`^plantstore: ${at.store}\\.token: `)));
    }
    const listed = await runCommand(["token", "list", "--json"], at.env);
    expect(JSON.parse(listed.stdout)).toEqual([]);
  });

  test("on a terminal shows the first token once, with a curl that works, and keeps no file", async () => {
    using at = makeWorkplace();
    const env = { ...at.env, PORT: "0", PLANTSTORE_COLOUR: "green" };
    const { exitCode, screen } = await runOnTerminal(["serve"], env, "Ctrl-C stops it.");
    expect(exitCode).toBe(0);
    // The log is for people as well.
    expect(screen).toMatch(/^\d\d:\d\d:\d\d warn  ignored_variable warning="/m);
    expect(screen).not.toContain('{"time"');
    const [, token = ""] = /^ {4}(pst_\w+)\r?$/m.exec(screen) ?? [];
    expect(screen).toContain(`-H 'Authorization: Bearer ${token}'`);
    expect(readdirSync(at.path)).toEqual(["plants.db"]);
    await using service = await spawnService(at.env);
    expect(await create(service, token)).toBe(200);
  });

  test("on SIGTERM cuts off a client that never finishes, closes the store and exits 0", async () => {
    using at = makeWorkplace();
    await using service = await spawnService({
      ...at.env,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      ...limits({ drainSecondsMax: 5 }),
    });
    expect(await create(service, TEST_TOKEN)).toBe(200);
    // A search opens the file once more, on a thread of its own.
    expect((await send(service.started, "GET", "/plants?name=a")).status).toBe(200);
    const batch = await send(service.started, "POST", "/plants/batch", {
      headers: { "content-type": "application/x-ndjson" },
      // One line, and no end.
      body: new ReadableStream({
        start: (controller) => controller.enqueue(Buffer.from('{"id":1,"name":"a"}\n')),
      }),
    });
    expect(batch.status).toBe(200);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    expect(await service.stderr).toContain('"event":"stopped"');
    // The last connection to close folds the log into the file and removes it.
    expect(existsSync(`${at.store}-wal`)).toBe(false);
    expect(readPlants(at.store)).toEqual([{ id: 1n, name: "a", tag: null }]);
  });

  test("on a second signal exits at once, with what is in flight unanswered", async () => {
    using at = makeWorkplace();
    await using service = await spawnService({ ...at.env, PLANTSTORE_DRAIN_DELAY_SECONDS: "60" });
    service.kill("SIGTERM");
    // One that comes soon after the first is taken for the same.
    await until("the service is gone", () => {
      service.kill("SIGTERM");
      return Bun.peek.status(service.exited) === "fulfilled";
    });
    expect(await service.exited).toBe(1);
  });
});

test("a signal that comes twice at once, as npm passes it on, is one", async () => {
  using at = makeWorkplace();
  await using service = await spawnService(at.env);
  service.kill("SIGINT");
  service.kill("SIGINT");
  expect(await service.exited).toBe(0);
});

describe("plantstore health", () => {
  test("waits until the service is ready, whatever proxy is set", async () => {
    using at = makeWorkplace();
    const place = { HOST: "0.0.0.0", PLANTSTORE_BASE_PATH: "/shop" };
    await using service = await spawnService({ ...at.env, ...place });
    const { port } = new URL(service.started.url);
    const env = { ...place, PORT: port, HTTP_PROXY: "http://127.0.0.1:1" };
    const finished = await runCommand(["health", "--wait", "10"], env);
    expect(finished).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  });

  test("fails while the service answers that it is not ready", async () => {
    using unready = Bun.serve({ port: 0, fetch: () => new Response(null, { status: 503 }) });
    const finished = await runCommand(["health"], { PORT: String(unready.port) });
    expect(finished).toEqual(failure(1, "/readyz answers 503"));
  });

  test.each([
    ["0.0.0.0", "127.0.0.1", "nothing is listening there"],
    ["plants.invalid", "plants.invalid", "there is no host plants.invalid"],
  ])("says why %s does not answer", async (host, asked, why) => {
    const finished = await runCommand(["health", "--host", host, "--port", "1"]);
    const stderr = `plantstore: http://${asked}:1/readyz does not answer: ${why}.\n`;
    expect(finished).toEqual({ exitCode: 1, stdout: "", stderr });
  });
});

const notHere = (host: string): string =>
  `plantstore: ${host} is not an address of this machine. Choose another with --host or HOST.\n`;
const me = "postgres://me@";

test.each([
  [["serve", "--host", "nonexistent.invalid"], undefined, notHere("nonexistent.invalid")],
  [["serve", "--host", "192.0.2.1"], undefined, notHere("192.0.2.1")],
  [["serve"], `sqlite:${import.meta.dir}`, import.meta.dir],
  [["check"], `${me}plants.invalid/a`, " cannot be opened: there is no host plants.invalid"],
  [["check"], `${me}127.0.0.1:1/a`, " cannot be opened: 127.0.0.1:1 does not accept connections"],
  [["check"], `${me}/a?host=/at`, " cannot be opened: there is no socket /at/.s.PGSQL.5432"],
])("%j with %j fails, in one line that says why", async (args, url, says) => {
  using at = makeWorkplace();
  const env = { DATABASE_URL: url ?? at.env["DATABASE_URL"] ?? "", PORT: "0" };
  const short = url?.startsWith(me) ? limits({ queueSecondsMax: 0.1 }) : {};
  const finished = await runCommand(args, { ...env, ...short });
  expect(finished).toEqual(failure(1, says));
  expect(finished.stderr).toMatch(/^plantstore: .*\n$/);
});

test.skipIf(Bun.which("prlimit") === null)(
  "backup with too few descriptors says so in one line",
  async () => {
    using at = makeWorkplace();
    makeStore(at.store, 3);
    const wrapper = ["prlimit", "--nofile=30"];
    const finished = await runCommand(["backup", at.file("copy.db")], at.env, { wrapper });
    expect(finished).toEqual(failure(1, /^plantstore: .*descriptors.*ulimit -n.*\n$/));
  },
);

test.skipIf(process.platform !== "linux").each([
  ["on a full disk", 'exec "$@" 2>/dev/full'],
  ["in a pipe without a reader", 'mkfifo "$FIFO" && exec 3<>"$FIFO" && exec "$@" 2>"$FIFO"'],
])(
  "a log %s: refusals are answered as ever, and the service stops as ever",
  async (where, script) => {
    using at = makeWorkplace();
    const env = { ...at.env, FIFO: at.file("fifo"), PLANTSTORE_TOKEN: TEST_TOKEN };
    await using service = await spawnService(env, ["sh", "-c", script, "sh"]);
    const { started } = service;
    const refuse = async (_: unknown, index: number): Promise<void> => {
      const refused = await send(started, "GET", `/${"x".repeat(150)}${index}`);
      await expectError(refused, "path_not_found");
    };
    // More than a pipe holds.
    for (let group = 0; group < 12; group++) await Promise.all(Array.from({ length: 50 }, refuse));
    expect((await send(started, "GET", "/readyz")).status).toBe(200);
    const countDropped = () => readMetric(started, "plantstore_log_lines_dropped_total");
    // Every refusal is a line, and several are written at once.
    if (where === "on a full disk")
      await until("the lines are counted", async () => (await countDropped()) >= 600);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  },
);

test("npm start passes SIGTERM on, and exits as the service does", async () => {
  using at = makeWorkplace();
  const child = Bun.spawn(["npm", "start", "--silent", "--", "--port", "0"], {
    cwd: `${import.meta.dir}/../..`,
    env: { ...process.env, ...at.env, PLANTSTORE_TOKEN: "sixteen-letters-x" },
    stdout: "pipe",
    stderr: "ignore",
  });
  const { value } = await child.stdout.getReader().read();
  const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
  expect(await rejectionOf(fetch(`${url}/livez`))).toBeInstanceOf(Error);
});

test("a person sees version, address, store and durability, and on the first start a command to paste", () => {
  const url = "http://127.0.0.1:8080";
  const store = { engine: "SQLite", location: "./data/plants.db", durability: "synced" };
  const started = { url, store, workers: 1 };
  const lines = formatForPeople({ ...started, token: "pst_x" });
  const facts = [packageJson.version, url, store.location, store.durability, "shown only now"];
  for (const fact of facts) expect(lines).toContain(fact);
  expect(lines).toMatch(/^ +pst_x$/m);
  expect(lines).toMatch(/^ +http:\/\/127\.0\.0\.1:8080\/#token=pst_x$/m);
  expect(lines).toContain("-H 'Authorization: Bearer pst_x' \\\n");
  expect(formatForPeople(started)).not.toMatch(/curl|Threads/);
  expect(formatForPeople({ ...started, workers: 3 })).toContain("3 for HTTP");
});

test("the log on a terminal is one readable line an event, with the stack of an error below", () => {
  const format = (fields: object): string =>
    formatLogLine(JSON.stringify({ time: "2026-01-31T18:00:30.123Z", ...fields }));
  expect(format({ level: "info", event: "stopping", reason: "SIGTERM", ms: 3 })).toBe(
    "18:00:30 info  stopping reason=SIGTERM ms=3\n",
  );
  const cause = { name: "Error", message: "disk full", stack: "Error: disk full\n    at x" };
  expect(format({ level: "warn", event: "write_failed", path: "/a b", cause })).toBe(
    '18:00:30 warn  write_failed path="/a b" cause="disk full"\n' +
      "    Error: disk full\n        at x\n",
  );
});
