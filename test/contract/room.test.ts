/** New plants are refused if the quota is used up, or the disk nearly full. Everything else works. */

import { expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { engine } from "../support/database.ts";
import { expectError } from "../support/expect.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import { isReplay } from "../support/plants.ts";
import { send, sendLines, startService, type TestService } from "../support/service.ts";

const create = (service: TestService, id: number, name = "p"): Promise<Response> =>
  service.create(JSON.stringify({ id, name }));

async function createTogether(service: TestService, ids: readonly number[]): Promise<unknown[]> {
  const response = await sendLines(service, ids.map((id) => makeLines(id, 1)).join(""));
  const results = parseLines(await response.text()) as { error?: number }[];
  return results.map(({ error }) => error ?? "stored");
}

const full = catalogue.store_full.code;

test("a quota refuses only creates beyond it, with 409", async () => {
  await using service = await startService({ PLANTSTORE_PLANTS_MAX: "3" });
  for (const id of [1, 2, 3]) expect((await create(service, id)).status).toBe(200);
  await expectError(await create(service, 4), "store_full");
  const replay = await create(service, 3);
  expect([replay.status, isReplay(replay)]).toEqual([200, true]);
  await expectError(await create(service, 3, "other"), "id_taken");
  expect(await createTogether(service, [2, 5, 1, 6])).toEqual(["stored", full, "stored", full]);
  expect((await send(service, "GET", "/plants/4")).status).toBe(404);
  const replaced = await send(service, "PUT", "/plants/1", { body: '{"name":"a longer name"}' });
  expect(replaced.status).toBe(200);
  expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  expect((await send(service, "DELETE", "/plants/2")).status).toBe(204);
  expect((await create(service, 4)).status).toBe(200);
  expect((await create(service, 5)).status).toBe(409);
});

test("a quota is exact for what is created at once", async () => {
  await using service = await startService({ PLANTSTORE_PLANTS_MAX: "3" });
  const stored = async (): Promise<number[]> =>
    (await service.readPlants()).map(({ id }) => Number(id));
  expect(await createTogether(service, [9, 4, 8, 2, 1])).toEqual([
    "stored",
    "stored",
    "stored",
    full,
    full,
  ]);
  expect(await stored()).toEqual([4, 8, 9]);
  expect((await send(service, "DELETE", "/plants/8")).status).toBe(204);
  // Replays take none of the room.
  expect(await createTogether(service, [4, 9, 7, 4, 6])).toEqual([
    "stored",
    "stored",
    "stored",
    "stored",
    full,
  ]);
  expect(await stored()).toEqual([4, 7, 9]);
  for (const id of [4, 7, 9]) await send(service, "DELETE", `/plants/${id}`);
  const upsert = "/plants/batch?upsert=true";
  const body = JSON.stringify([5, 6, 7, 8].map((id) => ({ id, name: "n" })));
  const results = (await (await send(service, "POST", upsert, { body })).json()) as {
    status: number;
  }[];
  expect(results.map(({ status }) => status)).toEqual([200, 200, 200, 409]);
  for (const id of [5, 6, 7]) await send(service, "DELETE", `/plants/${id}`);
  const ids = Array.from({ length: 40 }, (_, id) => id);
  const statuses = await Promise.all(ids.map(async (id) => (await create(service, id)).status));
  expect(statuses.filter((status) => status === 200)).toHaveLength(3);
  expect(await stored()).toHaveLength(3);
});

test.skipIf(engine !== "sqlite")(
  "a disk with less free than the bound refuses only what needs more of it",
  async () => {
    await using service = await startService({
      PLANTSTORE_DISK_FREE_BYTES_MIN: "999999999999999",
    });
    // Stored by another process, with another bound.
    await service.database.run("INSERT INTO plants (id, name) VALUES (1, 'p'), (2, 'p')");
    const refused = await create(service, 3);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(await expectError(refused, "disk_low")).toMatch(
      /^Too little disk space is free for a new plant: \d+ bytes of at least 999999999999999 \(PLANTSTORE_DISK_FREE_BYTES_MIN\); nothing was stored\.$/,
    );
    expect(isReplay(await create(service, 1))).toBe(true);
    expect(await createTogether(service, [1, 3])).toEqual(["stored", catalogue.disk_low.code]);
    const put = await send(service, "PUT", "/plants/1", { body: '{"name":"m"}' });
    await expectError(put, "disk_low");
    expect((await send(service, "DELETE", "/plants/2")).status).toBe(204);
    expect((await send(service, "GET", "/plants/1")).status).toBe(200);
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  },
);
