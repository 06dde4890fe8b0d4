/** plantstore token: in a store, and through a running service. */

import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { plantScopes } from "../../src/domain/token.ts";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { runCommand, runScript, spawnService } from "../support/command.ts";
import { failure } from "../support/expect.ts";
import { makeWorkplace } from "../support/folder.ts";
import { grantToken, sendPlant, startService, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const plant = { id: 1n, name: "a", tag: null };

test("token create, list and revoke share the store with a running service, down to the last use of each token", async () => {
  using at = makeWorkplace();
  await using service = await spawnService(at.env);
  const { url } = service.started;
  const list = async (): Promise<Record<string, unknown>[]> =>
    JSON.parse((await at.run("token", "list", "--json")).stdout) as [];

  const given = ["--name", "till", "--scopes", "plants:write", "--expires", "90d"];
  const made = await at.run("token", "create", ...given);
  expect(made.exitCode).toBe(0);
  const token = made.stdout.trim();
  expect(token).toMatch(/^pst_[0-9A-Za-z]{36}_[0-9A-Za-z]{6}$/);
  expect((await sendPlant(url, plant, token)).status).toBe(200);

  const listed = await list();
  expect(listed.map((row) => row["name"])).toEqual(["first", "till"]);
  const scopes = ["plants:write"];
  expect(listed[1]).toMatchObject({ prefix: token.slice(0, 10), scopes, revoked: null });
  expect(JSON.stringify(listed)).not.toContain(token);

  const revoked = await at.run("token", "revoke", token.slice(0, 10));
  expect(revoked.stdout).toStartWith("Revoked till ");
  const isRefused = async () => (await sendPlant(url, plant, token)).status === 401;
  await until("the token is refused", isRefused);
  // Uses are written down at the latest when the service stops.
  service.kill("SIGTERM");
  await service.exited;
  const [first, till] = await list();
  expect(Date.now() - Date.parse(String(till?.["lastUsed"]))).toBeLessThan(3_600_000);
  expect(first?.["lastUsed"]).toBeNull();
  const { stdout } = await at.run("token", "list");
  expect(stdout).toMatch(/^NAME +PREFIX +SCOPES +TAGS +CREATED +EXPIRES +LAST USED +RATE +STATE$/m);
  expect(stdout).toMatch(/^first +pst_\w{6}… .* never .* active$/m);
});

test("token create, list and revoke work through a service, on a machine without the store", async () => {
  await using service = await startService();
  const manage = (...args: string[]): ReturnType<typeof runCommand> =>
    runCommand(["token", ...args, "--url", service.url], { PLANTSTORE_TOKEN: TEST_TOKEN });
  const made = await manage("create", "--name", "till", "--expires", "90d");
  expect(made).toMatchObject({ exitCode: 0, stderr: "" });
  const token = made.stdout.trim();
  expect((await sendPlant(service.url, plant, token)).status).toBe(200);
  const taken = failure(1, 'A token named "till" is in use');
  expect(await manage("create", "--name", "till")).toEqual(taken);
  expect((await manage("list")).stdout).toMatch(/^till +pst_\w{6}… +plants:read,plants:write /m);
  const confined = await manage(
    "create",
    "--name",
    "shelf",
    "--tags",
    'indoor, \u009b2J,"sweet, ""sour"""',
    "--json",
  );
  const tags = ["indoor", 'sweet, "sour"', "\u009b2J"];
  expect(JSON.parse(confined.stdout)).toMatchObject({ tags });
  expect((await manage("list")).stdout).toMatch(/^shelf .* "indoor",.*,"\?2J" /m);
  await manage("revoke", "shelf");
  expect((await manage("revoke", "till")).stdout).toStartWith("Revoked till ");
  expect(JSON.parse((await manage("list", "--json")).stdout)).toMatchObject([
    { name: "till", tags: null, revoked: expect.any(String) },
    { name: "shelf" },
  ]);
  const asTill = { PLANTSTORE_TOKEN: await grantToken(service, plantScopes) };
  expect(await runCommand(["token", "list", "--url", service.url], asTill)).toEqual(
    failure(1, "lacks the scope tokens:manage"),
  );
});

test("token: what is wrong is refused and changes nothing", async () => {
  using at = makeWorkplace();
  await at.run("token", "create", "--name", "till");
  for (const [args, exitCode, says] of [
    [`create --name ${"a".repeat(65)}`, 2, "--name"],
    ["create --name a --scopes plants:eat", 2, 'got "plants:eat"'],
    [
      `create --name a --tags ${"t,".repeat(3)}${Array.from({ length: 33 }, (_, tag) => tag).join()}`,
      2,
      "--tags: expected 1 to 32 tags",
    ],
    ["create --name a --expires 90", 2, 'got the string "90"'],
    ["create --name a --expires 2020-01-31", 2, "a date or time in the future"],
    ["create --name a --rate 100/day", 2, "--rate: "],
    ["revoke missing", 1, "No token in use has the name or prefix"],
    ["revoke pst_", 1, "No token in use has the name or prefix"],
  ] as const)
    expect([args, await at.run("token", ...args.split(" "))]).toEqual([
      args,
      failure(exitCode, says),
    ]);
  const { stdout } = await at.run("token", "list", "--json");
  expect(JSON.parse(stdout)).toMatchObject([{ name: "till", revoked: null }]);
});

test("token create --json prints the token and its facts", async () => {
  using at = makeWorkplace();
  const given = ["--name", "till", "--expires", "2090-01-31T18:00:30+02:00", "--rate", "100/s"];
  const made = await at.run("token", "create", ...given, "--json");
  const { token, ...facts } = JSON.parse(made.stdout) as Record<string, unknown>;
  expect(token).toMatch(/^pst_/);
  expect(facts).toEqual({
    id: expect.stringMatching(/^[0-9a-f]{16}$/),
    name: "till",
    prefix: String(token).slice(0, 10),
    scopes: ["plants:read", "plants:write"],
    tags: null,
    created: expect.any(String),
    expires: "2090-01-31T16:00:30.000Z",
    lastUsed: null,
    rate: "100/s",
    revoked: null,
  });
  const { stdout } = await at.run("token", "list");
  expect(stdout).toMatch(/RATE +STATE\ntill .* 100\/s +active/);
});

test.skipIf(!existsSync("/dev/full")).each([
  ["a full disk", '"$0" token create --name till > /dev/full'],
  // The fifo has had a reader, which is gone.
  [
    "a pipe without a reader",
    'mkfifo pipe; true < pipe & exec > pipe; wait; "$0" token create --name till',
  ],
])("token create into %s fails, and says so", async (_, script) => {
  using at = makeWorkplace();
  openDatabase(at.store).close();
  const { exitCode, stderr } = await runScript(script, at.env, at.path);
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(
    /^plantstore: The secret could not be written, and cannot be shown again: standard output: (no space left on device|broken pipe)\.\n$/,
  );
});

test("token list shows every token, oldest first, however many pages the service has", async () => {
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
