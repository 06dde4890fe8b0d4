/** A create whose answer is lost is one create, even where another instance removes the plant before it is known. */

import { expect, test } from "bun:test";
import { spawnService } from "../support/command.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { startProxy } from "../support/proxy.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

test("a create whose answer was lost does not bring back what another instance has removed since", async () => {
  const server = await sharedPostgres();
  await using database = await createTestDatabase(server);
  await using proxy = await startProxy(server.port);
  const spawn = (port: number): ReturnType<typeof spawnService> =>
    spawnService({
      PLANTSTORE_TOKEN: TEST_TOKEN,
      DATABASE_URL: `postgres://postgres@127.0.0.1:${port}/${database.name}?sslmode=disable`,
    });
  await using one = await spawn(proxy.port);
  await using other = await spawn(server.port);
  const catching = proxy.holdAnswer("INSERT INTO plants");
  const creating = sendPlant(one.started.url, { id: 1n, name: "fern", tag: null });
  const caught = await catching;
  await caught.whole;
  const removed = await fetch(`${other.started.url}/plants/1`, {
    method: "DELETE",
    headers: { authorization: `Bearer ${TEST_TOKEN}` },
  });
  expect(removed.status).toBe(204);
  caught.cut();
  expect((await creating).status).toBe(200);
  expect(await server.run("SELECT id FROM plants", database.name)).toEqual([]);
});
