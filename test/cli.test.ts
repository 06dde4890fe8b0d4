/** The command line as its users run it: processes, output, exit codes, signals. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync } from "node:fs";
import packageJson from "../package.json";
import { mintToken, toRecord } from "../src/auth/token.ts";
import { formatForPeople, formatLogLine } from "../src/cli/serve.ts";
import { plantScopes } from "../src/domain/token.ts";
import { openDatabase } from "../src/store/sqlite/database.ts";
import { runCommand, runOnTerminal, spawnService } from "./support/command.ts";
import { rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder, makeWorkplace } from "./support/folder.ts";
import { startService, TEST_TOKEN, type TestService } from "./support/service.ts";

const create = (url: string, token: string, plant: object): Promise<Response> =>
  fetch(`${url}/plants`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(plant),
  });

describe("plantstore", () => {
  test("--help names every command, and each command's --help every flag", async () => {
    const help = await runCommand(["--help"]);
    expect(help.exitCode).toBe(0);
    for (const word of ["serve", "config", "token", "Exit codes"])
      expect(help.stdout).toContain(word);
    const serve = await runCommand(["serve", "--help"]);
    expect(serve.exitCode).toBe(0);
    for (const flag of ["--host", "--port", "--database-url", "--base-path", "--write-connections"])
      expect(serve.stdout).toContain(flag);
    expect(serve.stdout).toContain("PLANTSTORE_TOKEN");
    const token = await runCommand(["token", "create", "--help"]);
    for (const flag of ["--name", "--scopes", "--expires", "--database-url"])
      expect(token.stdout).toContain(flag);
  });

  test.each(["--version", "version"])("%s prints the version", async (arg) => {
    expect(await runCommand([arg])).toMatchObject({
      exitCode: 0,
      stdout: `${packageJson.version}\n`,
    });
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
  ])("%j is not understood: exit 2, and the nearest is named", async (args, says) => {
    const finished = await runCommand(args);
    expect(finished.stderr).toContain(says);
    expect(finished.exitCode).toBe(2);
    expect(finished.stdout).toBe("");
  });

  test("without a command prints the help and exits 2", async () => {
    const finished = await runCommand([]);
    expect(finished.exitCode).toBe(2);
    expect(finished.stderr).toContain("Usage: plantstore");
  });

  test("runs from any folder and through a symbolic link", async () => {
    using folder = makeTemporaryFolder();
    const link = `${folder.path}/linked`;
    const target = `${import.meta.dir}/../bin/plantstore`;
    expect(await Bun.spawn(["ln", "-s", target, link]).exited).toBe(0);
    const child = Bun.spawn([link, "--version"], { cwd: folder.path, stdout: "pipe" });
    expect(await new Response(child.stdout).text()).toBe(`${packageJson.version}\n`);
  });
});

describe("plantstore config", () => {
  test("prints effective values and where they come from, secrets masked", async () => {
    const { stdout, exitCode } = await runCommand(["config", "--json", "--port", "1234"], {
      HOST: "0.0.0.0",
      PLANTSTORE_TOKEN: "a-secret-of-20-chars",
    });
    expect(exitCode).toBe(0);
    const rows = JSON.parse(stdout) as Record<string, string>[];
    expect(rows).toContainEqual({ setting: "PORT", value: "1234", source: "flag" });
    expect(rows).toContainEqual({ setting: "HOST", value: "0.0.0.0", source: "environment" });
    expect(rows).toContainEqual({
      setting: "PLANTSTORE_TOKEN",
      value: "********",
      source: "environment",
    });
    expect(rows).toContainEqual({
      setting: "PLANTSTORE_LOG_LEVEL",
      value: "info",
      source: "default",
    });
    expect(stdout).not.toContain("a-secret");
    const table = await runCommand(["config"]);
    expect(table.stdout).toMatch(/^PORT +8080 +default$/m);
  });

  test("names a wrong setting, its value and what is allowed, and exits 2", async () => {
    const finished = await runCommand(["config"], { PORT: "eighty" });
    expect(finished).toMatchObject({
      exitCode: 2,
      stderr: 'plantstore: PORT: "eighty" is not allowed; expected an integer from 0 to 65535\n',
    });
  });

  test("does not read a .env file that happens to be there", async () => {
    using folder = makeTemporaryFolder();
    await Bun.write(`${folder.path}/.env`, "PORT=4321\n");
    const child = Bun.spawn([`${import.meta.dir}/../bin/plantstore`, "config"], {
      cwd: folder.path,
      env: { PATH: process.env["PATH"] ?? "" },
      stdout: "pipe",
    });
    expect(await new Response(child.stdout).text()).toMatch(/^PORT +8080 +default$/m);
  });
});

describe("plantstore serve", () => {
  test("makes a token on the very first start, shows it once, and its curl works when pasted", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    {
      await using first = await spawnService(env);
      expect(first.started).toMatchObject({
        event: "listening",
        version: packageJson.version,
        store: { engine: "SQLite", location: `${folder.path}/plants.db` },
        token: expect.stringMatching(/^pst_/),
      });
      const pasted = Bun.spawn(["sh", "-c", `${String(first.started["try"])} -s`], {
        stdout: "pipe",
      });
      expect(await new Response(pasted.stdout).json()).toEqual({
        name: "Monstera deliciosa",
        tag: "tropical",
      });
      first.kill("SIGTERM");
      await first.exited;
      expect(await first.stderr).not.toContain("pst_");
    }
    await using second = await spawnService(env);
    expect(second.started.token).toBeUndefined();
    expect(second.started["try"]).toBeUndefined();
  });

  test("makes no token where PLANTSTORE_TOKEN is set, which has all scopes", async () => {
    using folder = makeTemporaryFolder();
    const token = "sixteen-letters!".replace("!", "s");
    await using service = await spawnService({
      DATABASE_URL: `sqlite:${folder.path}/plants.db`,
      PLANTSTORE_TOKEN: token,
    });
    expect(service.started.token).toBeUndefined();
    expect((await create(service.started.url, token, { id: 1, name: "a" })).status).toBe(200);
  });

  test("refuses to start with a PLANTSTORE_TOKEN under 16 characters", async () => {
    const finished = await runCommand(["serve"], { PLANTSTORE_TOKEN: "fifteen-letters" });
    expect(finished.exitCode).toBe(2);
    expect(finished.stderr).toContain("PLANTSTORE_TOKEN: its 15 characters are not allowed");
    expect(finished.stderr).not.toContain("fifteen-letters");
  });

  test("says in one line that a port is taken, and exits 1", async () => {
    using folder = makeTemporaryFolder();
    await using service = await spawnService({ DATABASE_URL: `sqlite:${folder.path}/a.db` });
    const finished = await runCommand(["serve"], {
      DATABASE_URL: `sqlite:${folder.path}/b.db`,
      PORT: new URL(service.started.url).port,
    });
    expect(finished.exitCode).toBe(1);
    expect(finished.stderr).toMatch(/^plantstore: .*in use.*\n$/);
    expect(finished.stdout).toBe("");
  });

  test.each(["nonexistent.invalid", "192.0.2.1"])(
    "says in one line that %s is not an address of this machine, and exits 1",
    async (host) => {
      using at = makeWorkplace();
      expect(await runCommand(["serve", "--host", host, "--port", "0"], at.env)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: `plantstore: ${host} is not an address of this machine. Choose another with --host or HOST.\n`,
      });
    },
  );

  test("says in one line that a store cannot be opened, and exits 1", async () => {
    using folder = makeTemporaryFolder();
    mkdirSync(`${folder.path}/plants.db`);
    const finished = await runCommand(["serve"], {
      DATABASE_URL: `sqlite:${folder.path}/plants.db`,
      PORT: "0",
    });
    expect(finished.exitCode).toBe(1);
    expect(finished.stderr).toMatch(/^plantstore: .*plants\.db.*\n$/);
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "on %s finishes, closes the store and exits 0",
    async (signal) => {
      using folder = makeTemporaryFolder();
      const path = `${folder.path}/plants.db`;
      await using service = await spawnService({ DATABASE_URL: `sqlite:${path}` });
      const { url, token = "" } = service.started;
      expect((await create(url, token, { id: 1, name: "a" })).status).toBe(200);
      // A search opens the file once more, on a thread of its own.
      const headers = { authorization: `Bearer ${token}` };
      expect((await fetch(`${url}/plants?name=a`, { headers })).status).toBe(200);
      service.kill(signal);
      expect(await service.exited).toBe(0);
      const log = await service.stderr;
      expect(log).toContain('"event":"stopped"');
      // The last connection to close folds the log into the file and removes it.
      expect(await Bun.file(`${path}-wal`).exists()).toBe(false);
      const db = new Database(path, { readonly: true });
      expect(db.query("SELECT id, name, tag FROM plants").all()).toEqual([
        { id: 1, name: "a", tag: null },
      ]);
      db.close();
    },
  );

  test("takes a signal that comes twice at once, as npm passes it on, for one", async () => {
    using folder = makeTemporaryFolder();
    await using service = await spawnService({ DATABASE_URL: `sqlite:${folder.path}/plants.db` });
    service.kill("SIGINT");
    service.kill("SIGINT");
    expect(await service.exited).toBe(0);
  });

  test("on a second signal exits at once, with what is in flight unanswered", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    await using service = await spawnService({
      DATABASE_URL: `sqlite:${path}`,
      PLANTSTORE_DRAIN_DELAY_SECONDS: "60",
    });
    service.kill("SIGTERM");
    while ((await fetch(`${service.started.url}/readyz`)).status !== 503) await Bun.sleep(10);
    await Bun.sleep(600);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(1);
  });
});

describe.skipIf(process.platform !== "linux")("a log that cannot be written", () => {
  const sinks = {
    "on a full disk": 'exec "$@" 2>/dev/full',
    "in a pipe without a reader": 'mkfifo "$FIFO" && exec 3<>"$FIFO" && exec "$@" 2>"$FIFO"',
  };
  for (const [where, script] of Object.entries(sinks))
    test(`${where}: refusals are answered as ever, and the service stops as ever`, async () => {
      using folder = makeTemporaryFolder();
      const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db`, FIFO: `${folder.path}/fifo` };
      await using service = await spawnService(env, ["sh", "-c", script, "sh"]);
      const { url } = service.started;
      for (let i = 0; i < 600; i++) {
        const refused = await fetch(`${url}/${"x".repeat(150)}${i}`);
        expect([refused.status, refused.headers.get("content-type")]).toEqual([
          404,
          "application/json",
        ]);
        await refused.json();
      }
      expect((await fetch(`${url}/readyz`)).status).toBe(200);
      service.kill("SIGTERM");
      expect(await service.exited).toBe(0);
    }, 20_000);
});

describe("npm start", () => {
  test.each(["SIGTERM", "SIGINT"] as const)(
    "passes %s on, and exits as the service does",
    async (signal) => {
      using folder = makeTemporaryFolder();
      const child = Bun.spawn(["npm", "start", "--silent", "--", "--port", "0"], {
        cwd: `${import.meta.dir}/..`,
        env: {
          ...process.env,
          DATABASE_URL: `sqlite:${folder.path}/plants.db`,
          PLANTSTORE_TOKEN: "sixteen-letters-x",
        },
        stdout: "pipe",
        stderr: "ignore",
      });
      const { value } = await child.stdout.getReader().read();
      const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
      expect((await fetch(`${url}/readyz`)).status).toBe(200);
      child.kill(signal);
      expect(await child.exited).toBe(0);
      expect(await rejectionOf(fetch(`${url}/livez`))).toBeInstanceOf(Error);
    },
    20_000,
  );
});

describe("what a person sees when the service has started", () => {
  const started = {
    url: "http://127.0.0.1:8080",
    store: { engine: "SQLite", location: "./data/plants.db", durability: "synced" },
    workers: 1,
  };

  test("is version, address, store and durability, and on the first start a command to paste", () => {
    const lines = formatForPeople({ ...started, firstToken: "pst_x" });
    for (const part of [
      packageJson.version,
      started.url,
      "./data/plants.db",
      "synced",
      "shown only now",
    ])
      expect(lines).toContain(part);
    expect(lines).toContain("-H 'Authorization: Bearer pst_x' \\\n");
    const later = formatForPeople({ ...started, firstToken: undefined });
    expect(later).not.toContain("curl");
    expect(later).not.toContain("accept");
    expect(formatForPeople({ ...started, workers: 3, firstToken: undefined })).toContain(
      "3 accept",
    );
  });
});

describe("the log on a terminal", () => {
  test("is one readable line an event, with the stack of an error below", () => {
    const line = (fields: object): string =>
      `${JSON.stringify({ time: "2026-01-31T18:00:30.123Z", ...fields })}\n`;
    expect(
      formatLogLine(line({ level: "info", event: "stopping", reason: "SIGTERM", ms: 3 }), false),
    ).toBe("18:00:30 info  stopping reason=SIGTERM ms=3\n");
    const cause = { name: "Error", message: "disk full", stack: "Error: disk full\n    at x" };
    expect(
      formatLogLine(line({ level: "warn", event: "write_failed", path: "/a b", cause }), true),
    ).toBe(
      '18:00:30 \u001b[33mwarn \u001b[0m write_failed path="/a b" cause="disk full"\n' +
        "    Error: disk full\n        at x\n",
    );
  });

  test("is not JSON there, and JSON elsewhere", async () => {
    using folder = makeTemporaryFolder();
    const env = {
      DATABASE_URL: `sqlite:${folder.path}/plants.db`,
      PORT: "0",
      PLANTSTORE_COLOUR: "green",
      NO_COLOR: "1",
    };
    const { exitCode, screen } = await runOnTerminal(["serve"], env, "Ctrl-C stops it.");
    expect(exitCode).toBe(0);
    expect(screen).toMatch(/^\d\d:\d\d:\d\d warn  ignored_variable warning="/m);
    expect(screen).not.toContain('{"time"');
  });
});

describe("plantstore token", () => {
  test("create, list and revoke work on the store while the service runs", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    await using service = await spawnService(env);
    const { url } = service.started;

    const made = await runCommand(
      ["token", "create", "--name", "till", "--scopes", "plants:write", "--expires", "90d"],
      env,
    );
    expect(made.exitCode).toBe(0);
    const token = made.stdout.trim();
    expect(token).toMatch(/^pst_[0-9A-Za-z]{36}_[0-9A-Za-z]{6}$/);
    expect((await create(url, token, { id: 1, name: "a" })).status).toBe(200);

    const listed = await runCommand(["token", "list", "--json"], env);
    const rows = JSON.parse(listed.stdout) as Record<string, unknown>[];
    expect(rows.map((row) => row["name"])).toEqual(["first", "till"]);
    expect(rows[1]).toMatchObject({
      prefix: token.slice(0, 10),
      scopes: ["plants:write"],
      revoked: null,
    });
    expect(listed.stdout).not.toContain(token);

    const revoked = await runCommand(["token", "revoke", token.slice(0, 10)], env);
    expect(revoked.stdout).toStartWith("Revoked till ");
    const revokedAtMs = performance.now();
    while ((await create(url, token, { id: 1, name: "a" })).status === 200)
      expect(performance.now() - revokedAtMs).toBeLessThan(5_000);
  }, 15_000);

  test("create, list and revoke work through a service, on a machine without the store", async () => {
    await using service = await startService();
    const manage = (...args: string[]): ReturnType<typeof runCommand> =>
      runCommand(["token", ...args, "--url", service.url], { PLANTSTORE_TOKEN: TEST_TOKEN });
    const made = await manage("create", "--name", "till", "--expires", "90d");
    expect(made).toMatchObject({ exitCode: 0, stderr: "" });
    const token = made.stdout.trim();
    expect((await create(service.url, token, { id: 1, name: "a" })).status).toBe(200);
    expect(await manage("create", "--name", "till")).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('A token named "till" is in use'),
    });
    expect((await manage("list")).stdout).toMatch(/^till +pst_\w{6}… +plants:read,plants:write /m);
    expect((await manage("revoke", "till")).stdout).toStartWith("Revoked till ");
    expect(JSON.parse((await manage("list", "--json")).stdout)).toMatchObject([
      { name: "till", revoked: expect.any(String) },
    ]);
    const asTill = { PLANTSTORE_TOKEN: await grantPlain(service) };
    expect(await runCommand(["token", "list", "--url", service.url], asTill)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("lacks the scope tokens:manage"),
    });
  });

  async function grantPlain({ store }: TestService): Promise<string> {
    const token = mintToken();
    const grant = { name: "plain", scopes: plantScopes, createdAtMs: 1 };
    await store.createToken(toRecord(token, grant));
    return token;
  }

  test("list shows when a token was last used, once the service has written it down", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    {
      await using service = await spawnService(env);
      await create(service.started.url, service.started.token ?? "", { id: 1, name: "a" });
      service.kill("SIGTERM");
      await service.exited;
    }
    const [first] = JSON.parse(
      (await runCommand(["token", "list", "--json"], env)).stdout,
    ) as Record<string, unknown>[];
    expect(Date.now() - Date.parse(String(first?.["lastUsed"]))).toBeLessThan(60_000);
    const table = await runCommand(["token", "list"], env);
    expect(table.stdout).toMatch(/^NAME +PREFIX +SCOPES +CREATED +EXPIRES +LAST USED +STATE$/m);
    expect(table.stdout).toMatch(/^first +pst_\w{6}… .* never .* active$/m);
  });

  test.each([
    [["create", "--name", ""], 2, "--name"],
    [["create", "--name", "a b"], 2, "--name"],
    [["create", "--name", "a", "--scopes", "plants:eat"], 2, '"plants:eat" is not allowed'],
    [["create", "--name", "a", "--scopes", ""], 2, "--scopes"],
    [["create", "--name", "a", "--expires", "90"], 2, '"90" is not allowed'],
    [["create", "--name", "a", "--expires", "0d"], 2, '"0d" is not allowed'],
    [["create", "--name", "a", "--expires", "99999999d"], 2, "at most 36500d"],
    [["create", "--name", "a", "--expires", "2020-01-31"], 2, "2020-01-31 is in the past"],
    [["create", "--name", "a", "--expires", "2030-13-31"], 2, '"2030-13-31" is not allowed'],
    [["create", "--name", "a", "--expires", "9999-01-31"], 2, "at most 36500d"],
    [["create", "--name", "a", "--expires", "2030-01-31T12:00"], 2, "is not allowed"],
    [["revoke", "nobody"], 1, "No token in use has the name or prefix"],
    [["revoke", ""], 1, "No token in use has the name or prefix"],
    [["revoke", "pst_"], 1, "No token in use has the name or prefix"],
  ])("%j is refused and changes nothing", async (args, exitCode, says) => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    await runCommand(["token", "create", "--name", "till"], env);
    const finished = await runCommand(["token", ...args], env);
    expect(finished.stderr).toContain(says);
    expect(finished.exitCode).toBe(exitCode);
    const rows = JSON.parse((await runCommand(["token", "list", "--json"], env)).stdout) as Record<
      string,
      unknown
    >[];
    expect(rows).toMatchObject([{ name: "till", revoked: null }]);
  });

  test.each([[["list"]], [["revoke", "till"]]])(
    "%s refuses a store that is not there, and makes none",
    async (args) => {
      using folder = makeTemporaryFolder();
      const path = `${folder.path}/none/plants.db`;
      const finished = await runCommand(["token", ...args], { DATABASE_URL: `sqlite:${path}` });
      expect(finished).toMatchObject({
        exitCode: 1,
        stderr: `plantstore: There is no store at ${path}.\n`,
      });
      expect(existsSync(path)).toBe(false);
    },
  );

  test("create says that it made a new store, and only then", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/data/plants.db`;
    const createNamed = (name: string): ReturnType<typeof runCommand> =>
      runCommand(["token", "create", "--name", name], { DATABASE_URL: `sqlite:${path}` });
    expect((await createNamed("one")).stderr).toBe(`plantstore: created a new store at ${path}\n`);
    expect((await createNamed("two")).stderr).toBe("");
  });

  test.each([
    ["2090-01-31", "2090-01-31T00:00:00.000Z"],
    ["2090-01-31T18:00Z", "2090-01-31T18:00:00.000Z"],
    ["2090-01-31T18:00:30+02:00", "2090-01-31T16:00:30.000Z"],
  ])("create --json --expires %s prints the token and its facts", async (expires, expected) => {
    using folder = makeTemporaryFolder();
    const made = await runCommand(
      ["token", "create", "--name", "till", "--expires", expires, "--json"],
      { DATABASE_URL: `sqlite:${folder.path}/plants.db` },
    );
    const { token, ...facts } = JSON.parse(made.stdout) as Record<string, unknown>;
    expect(token).toMatch(/^pst_/);
    expect(facts).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{16}$/),
      name: "till",
      prefix: String(token).slice(0, 10),
      scopes: ["plants:read", "plants:write"],
      created: expect.any(String),
      expires: expected,
      lastUsed: null,
      rate: null,
      revoked: null,
    });
  });

  test("create refuses a name that is in use", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    await runCommand(["token", "create", "--name", "till"], env);
    const again = await runCommand(["token", "create", "--name", "till"], env);
    expect(again.exitCode).toBe(1);
    expect(again.stderr).toContain('A token named "till" is in use');
    expect(again.stdout).toBe("");
  });

  test.skipIf(!existsSync("/dev/full")).each([
    ["a full disk", '"$0" token create --name till > /dev/full; echo "exit $?" >&2'],
    // The fifo has had a reader, which is gone.
    [
      "a pipe without a reader",
      'mkfifo pipe; true < pipe & exec > pipe; wait; "$0" token create --name till; echo "exit $?" >&2',
    ],
  ])("create into %s fails, and leaves no token in use", async (_, script) => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    openDatabase(`${folder.path}/plants.db`).close();
    const launcher = `${import.meta.dir}/../bin/plantstore`;
    const child = Bun.spawn(["sh", "-c", script, launcher], {
      cwd: folder.path,
      env: { PATH: process.env["PATH"] ?? "", ...env },
      stderr: "pipe",
    });
    expect(await new Response(child.stderr).text()).toMatch(
      /^plantstore: The token could not be written to standard output and was revoked\. (No space left on device|Broken pipe)\.\nexit 1\n$/,
    );
    const listed = await runCommand(["token", "list", "--json"], env);
    const rows = JSON.parse(listed.stdout) as Record<string, unknown>[];
    expect(rows.filter((row) => row["revoked"] === null)).toEqual([]);
    // Its name is free.
    expect((await runCommand(["token", "create", "--name", "till"], env)).exitCode).toBe(0);
  });
});

test("token create --rate: a rate of its own, listed; a wrong one is refused", async () => {
  using folder = makeTemporaryFolder();
  const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
  const createWith = (rate: string) =>
    runCommand(["token", "create", "--name", "till", "--json", "--rate", rate], env);
  for (const rate of ["", "100", "0/s", "100/day"])
    expect(await createWith(rate)).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("--rate: "),
    });
  const created = await createWith("100/s");
  expect(JSON.parse(created.stdout)).toMatchObject({ name: "till", rate: "100/s" });
  expect((await runCommand(["token", "list"], env)).stdout).toMatch(/STATE +RATE\ntill .*100\/s/);
});
