/** plantstore token: in a store, and through a running service. */

import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mintToken, toRecord } from "../src/auth/token.ts";
import { plantScopes } from "../src/domain/token.ts";
import { openDatabase } from "../src/store/sqlite/database.ts";
import { launcher, runCommand, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { startService, TEST_TOKEN, type TestService } from "./support/service.ts";
import { until } from "./support/until.ts";

const create = (url: string, token: string, plant: object): Promise<Response> =>
  fetch(`${url}/plants`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(plant),
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
    await until(
      "the token is refused",
      async () => (await create(url, token, { id: 1, name: "a" })).status === 401,
    );
  });

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
      const token = await Bun.file(service.started.tokenFile ?? "").text();
      await create(service.started.url, token.trim(), { id: 1, name: "a" });
      service.kill("SIGTERM");
      await service.exited;
    }
    const [first] = JSON.parse(
      (await runCommand(["token", "list", "--json"], env)).stdout,
    ) as Record<string, unknown>[];
    expect(Date.now() - Date.parse(String(first?.["lastUsed"]))).toBeLessThan(60_000);
    const table = await runCommand(["token", "list"], env);
    expect(table.stdout).toMatch(
      /^NAME +PREFIX +SCOPES +CREATED +EXPIRES +LAST USED +RATE +STATE$/m,
    );
    expect(table.stdout).toMatch(/^first +pst_\w{6}… .* never .* active$/m);
  });

  test.each([
    [["create", "--name", "a b"], 2, "--name"],
    [["create", "--name", "a", "--scopes", "plants:eat"], 2, 'got "plants:eat"'],
    [["create", "--name", "a", "--expires", "90"], 2, 'got the string "90"'],
    [["create", "--name", "a", "--expires", "2020-01-31"], 2, "a date or time in the future"],
    [["revoke", "missing"], 1, "No token in use has the name or prefix"],
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

  test.each([["2090-01-31T18:00:30+02:00", "2090-01-31T16:00:30.000Z"]])(
    "create --json --expires %s prints the token and its facts",
    async (expires, expected) => {
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
    },
  );

  test.skipIf(!existsSync("/dev/full")).each([
    ["a full disk", '"$0" token create --name till > /dev/full; echo "exit $?" >&2'],
    // The fifo has had a reader, which is gone.
    [
      "a pipe without a reader",
      'mkfifo pipe; true < pipe & exec > pipe; wait; "$0" token create --name till; echo "exit $?" >&2',
    ],
  ])("create into %s fails, and says so", async (_, script) => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db` };
    openDatabase(`${folder.path}/plants.db`).close();
    const child = Bun.spawn(["sh", "-c", script, launcher], {
      cwd: folder.path,
      env: { PATH: process.env["PATH"] ?? "", ...env },
      stderr: "pipe",
    });
    expect(await new Response(child.stderr).text()).toMatch(
      /^plantstore: The secret could not be written, and cannot be shown again: standard output: (no space left on device|broken pipe)\.\nexit 1\n$/,
    );
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
  expect((await runCommand(["token", "list"], env)).stdout).toMatch(
    /RATE +STATE\ntill .* 100\/s +active/,
  );
});

test("list shows every token, oldest first, however many pages the service has", async () => {
  await using service = await startService();
  const names = Array.from({ length: 1_100 }, (_, index) => `t${index}`);
  await service.store.adoptTokens(
    names.map((name, createdAtMs) =>
      toRecord(mintToken(), { name, scopes: plantScopes, createdAtMs }),
    ),
  );
  const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
  for (const flags of [
    ["--url", service.url],
    ["--database-url", service.database.url],
  ]) {
    const { stdout, stderr } = await runCommand(["token", "list", "--json", ...flags], env);
    expect(stderr).toBe("");
    const listed = JSON.parse(stdout) as { readonly name: string }[];
    expect(listed.map(({ name }) => name)).toEqual(names);
  }
});
