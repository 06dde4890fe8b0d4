/** Three services on one database: they agree on its schema, and on who may come in. */

import { describe, expect, test } from "bun:test";
import { steps } from "../../src/store/postgres/schema.ts";
import { runCommand } from "../support/command.ts";
import { Fleet } from "../support/fleet.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { until } from "../support/until.ts";

const INSTANCES = 3;

describe("instances that start at the same moment", () => {
  test("on an empty database make its schema once, and no token, because nothing would show it", async () => {
    const server = await sharedPostgres();
    await using database = await createTestDatabase(server);
    await using fleet = new Fleet(server, database.url);
    const services = await fleet.start(INSTANCES);
    const env = { DATABASE_URL: database.url };
    const { stdout } = await runCommand(["token", "create", "--name", "me"], env);
    const statuses = (): Promise<number[]> =>
      Promise.all(services.map(({ started }) => readStatus(started.url, stdout.trim())));
    expect(await statuses()).toEqual([200, 200, 200]);
    const schema = "SELECT version FROM plantstore_version";
    expect(await server.run(schema, database.name)).toEqual([{ version: steps.length }]);
    expect(await server.run("SELECT name FROM plantstore_tokens", database.name)).toEqual([
      { name: "me" },
    ]);
    expect((await runCommand(["token", "revoke", "me"], env)).exitCode).toBe(0);
    await until("every instance refuses the token", async () =>
      (await statuses()).every((status) => status === 401),
    );
    for (const service of services) {
      service.kill("SIGTERM");
      expect(await service.stderr).toContain("plantstore token create");
    }
  });
});

async function readStatus(url: string, token = ""): Promise<number> {
  const response = await fetch(`${url}/plants`, { headers: { authorization: `Bearer ${token}` } });
  await response.bytes();
  return response.status;
}
