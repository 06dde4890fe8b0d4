/** Three services on one database: they agree on its schema, and on who may come in. */

import { describe, expect, test } from "bun:test";
import { steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { Fleet } from "../support/fleet.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const INSTANCES = 3;
const STARTS = 3;

describe("instances that start at the same moment", () => {
  test("on an empty database make its schema once, and no token, because nothing would show it", async () => {
    const server = await sharedPostgres();
    for (let start = 0; start < STARTS; start++) {
      await using database = await createTestDatabase(server);
      await using fleet = new Fleet(server, database.url);
      const services = await fleet.start(INSTANCES);
      const { stdout } = await runCommand(["token", "create", "--name", "me"], {
        DATABASE_URL: database.url,
      });
      for (const { started } of services)
        expect(await readStatus(started.url, stdout.trim())).toBe(200);
      const schema = "SELECT version FROM plantstore_version";
      expect(await server.run(schema, database.name)).toEqual([{ version: steps.length }]);
      expect(await server.run("SELECT name FROM plantstore_tokens", database.name)).toEqual([
        { name: "me" },
      ]);
      for (const service of services) {
        service.kill("SIGTERM");
        expect(await service.stderr).toContain("plantstore token create");
      }
    }
  });
});

test("a token that the command line has revoked is soon refused by every instance", async () => {
  const server = await sharedPostgres();
  await using database = await createTestDatabase(server);
  const env = { DATABASE_URL: database.url, PLANTSTORE_TOKEN: TEST_TOKEN };
  await using fleet = new Fleet(server, database.url, env);
  const services = await fleet.start(INSTANCES);
  const { stdout } = await runCommand(["token", "create", "--name", "shop"], env);
  const token = stdout.trim();
  for (const { started } of services) expect(await readStatus(started.url, token)).toBe(200);
  // Used without a pause, so each instance has seen it a moment before it is revoked.
  const refusals = services.map(async ({ started }) => {
    await until("the token is refused", async () => (await readStatus(started.url, token)) === 401);
    return performance.now();
  });
  const revokingAtMs = performance.now();
  expect((await runCommand(["token", "revoke", "shop"], env)).exitCode).toBe(0);
  for (const atMs of await Promise.all(refusals)) expect(atMs).toBeGreaterThan(revokingAtMs);
});

async function readStatus(url: string, token = ""): Promise<number> {
  const response = await fetch(`${url}/plants`, { headers: { authorization: `Bearer ${token}` } });
  await response.bytes();
  return response.status;
}
