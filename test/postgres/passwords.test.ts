/** A password opens the database, and is never seen again: in no output, no refusal and no log. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { runCommand, spawnService } from "../support/command.ts";
import { openErrorOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

/** With everything in it that has a meaning in a URL or in SQL. */
const PASSWORD = "Qx7:/?#@%&' geheim";
const opened = new AsyncDisposableStack();
let server: PostgresServer;

beforeAll(async () => {
  server = opened.use(await startPostgres({ hbaLines: ["host all keeper all scram-sha-256"] }));
  await server.run(`CREATE ROLE keeper LOGIN PASSWORD '${PASSWORD.replace("'", "''")}'`);
  await server.run("CREATE DATABASE plants OWNER keeper");
  await server.run("CREATE DATABASE foreign_plants OWNER keeper");
  await server.run("CREATE TABLE plants (id int)", "foreign_plants");
});
afterAll(() => opened.disposeAsync());

const urlOf = (password: string, database = "plants", port = server.port): string =>
  `postgres://keeper:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`;

/** Neither as it is nor as the URL has it, nor a part of it that would tell. */
function expectNoPassword(text: string): void {
  expect(text).not.toContain("geheim");
  expect(text).not.toContain("Qx7");
}

test("PGPASSWORD is used if the URL has no password, and only then", async () => {
  const url = urlOf("").replace(":@", "@");
  for (const [databaseUrl, PGPASSWORD, exitCode] of [
    [url, PASSWORD, 0],
    [url, "wrong", 1],
    [urlOf(PASSWORD), "wrong", 0],
  ] as const) {
    const env = { DATABASE_URL: databaseUrl, PGPASSWORD };
    const ran = await runCommand(["migrate"], env);
    expect([databaseUrl, ran.exitCode]).toEqual([databaseUrl, exitCode]);
    expectNoPassword(ran.stdout + ran.stderr);
  }
});

test.each([`${PASSWORD}!`, PASSWORD.slice(0, -1)])(
  "the wrong password %j is reported at once, and not repeated",
  async (password) => {
    const error = await openErrorOf(urlOf(password));
    expect(error.message).toBe(
      `postgres://keeper@127.0.0.1:${server.port}/plants cannot be opened: password authentication failed for user "keeper".`,
    );
    expectNoPassword(Bun.inspect(error));
  },
);

test("a password that was not given is asked for, and one that was is not", async () => {
  for (const [password, PGPASSWORD, says] of [
    [
      "",
      "",
      'failed for user "keeper". The password is missing: put it into the URL or into PGPASSWORD.',
    ],
    ["", "wrong", 'failed for user "keeper".'],
    ["wrong", "", 'failed for user "keeper".'],
  ] as const) {
    const { stderr } = await runCommand(["migrate"], { DATABASE_URL: urlOf(password), PGPASSWORD });
    expect(stderr.trimEnd()).toEndWith(says);
  }
});

describe("plantstore", () => {
  const debug = { PLANTSTORE_LOG_LEVEL: "debug" };
  /** For what waits until its deadline. What is to succeed gets the default. */
  const short = { ...debug, ...limits({ queueSecondsMax: 1 }) };

  const commands = "config,check,migrate,token create --name clerk,token list,export";
  test.each(commands.split(","))("%s shows nothing of it", async (command) => {
    const env = { ...debug, DATABASE_URL: urlOf(PASSWORD) };
    const { exitCode, stdout, stderr } = await runCommand(command.split(" "), env);
    expect(exitCode, stderr).toBe(0);
    expectNoPassword(stdout + stderr);
  });

  test.each([
    ["no such database", () => urlOf(PASSWORD, "nowhere")],
    ["a database of somebody else", () => urlOf(PASSWORD, "foreign_plants")],
    ["no server", () => urlOf(PASSWORD, "plants", 1)],
    ["a password that was not encoded", () => `postgres://keeper:${PASSWORD}@127.0.0.1/plants`],
    ["a parameter that is unknown", () => `${urlOf(PASSWORD)}?sslmodus=require`],
  ])("serve does not start with %s, and shows nothing of it", async (_, makeUrl) => {
    const env = { ...short, PORT: "0", DATABASE_URL: makeUrl() };
    const { exitCode, stdout, stderr } = await runCommand(["serve"], env);
    expect(exitCode).toBeGreaterThan(0);
    expect(stderr).not.toBe("");
    expectNoPassword(stdout + stderr);
  });

  test("serve logs an outage, with every detail but that", async () => {
    await using service = await spawnService({
      ...debug,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      DATABASE_URL: urlOf(PASSWORD),
    });
    const { url } = service.started;
    const send = async (id: bigint): Promise<number> =>
      (await sendPlant(url, { id, name: "fern", tag: null })).status;
    expect(await send(1n)).toBe(200);
    await server.stop("fast");
    expect(await send(2n)).toBe(503);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    await server.start();
    // The password is right no more, for those who come now.
    await server.run("ALTER ROLE keeper PASSWORD 'another'");
    expect(await send(3n)).toBe(503);
    await server.run(`ALTER ROLE keeper PASSWORD '${PASSWORD.replace("'", "''")}'`);
    expect(await send(4n)).toBe(200);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    const log = await service.stderr;
    expect(log).toContain("store_down");
    expect(log).toContain("store_refused");
    expect(log).toContain("password authentication failed");
    expectNoPassword(JSON.stringify(service.started) + log);
  });
});
