/** New plants are refused if the quota is used up, or the disk nearly full. Everything else goes on. */

import { describe, expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { engine } from "../support/database.ts";
import { readError, send, startService, type TestService } from "../support/service.ts";

const create = (service: TestService, id: number, name = "n"): Promise<Response> =>
  service.create(JSON.stringify({ id, name }));

async function sendLines(service: TestService, ids: readonly number[]): Promise<unknown[]> {
  const body = ids.map((id) => `{"id":${id},"name":"n"}\n`).join("");
  const headers = { "content-type": "application/x-ndjson" };
  const response = await send(service, "POST", "/plants/batch", { headers, body });
  const text = await response.text();
  return text
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { error?: number; status: number }).error ?? "stored");
}

describe("a quota", () => {
  const { code } = catalogue.store_full;

  test("refuses what is beyond it with 409; replays, reads, changes and removals go on", async () => {
    await using service = await startService({ PLANTSTORE_PLANTS_MAX: "3" });
    for (const id of [1, 2, 3]) expect((await create(service, id)).status).toBe(200);
    expect(await readError(await create(service, 4))).toMatchObject({ status: 409, error: code });
    const replay = await create(service, 3);
    expect([replay.status, replay.headers.get("idempotent-replayed")]).toEqual([200, "true"]);
    expect(await readError(await create(service, 3, "other"))).toMatchObject({
      status: 409,
      error: catalogue.id_taken.code,
    });
    expect(await sendLines(service, [2, 5, 1, 6])).toEqual(["stored", code, "stored", code]);
    expect((await send(service, "GET", "/plants/4")).status).toBe(404);
    const replaced = await send(service, "PUT", "/plants/1", { body: '{"name":"a longer name"}' });
    expect(replaced.status).toBe(200);
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
    expect((await send(service, "DELETE", "/plants/2")).status).toBe(204);
    expect((await create(service, 4)).status).toBe(200);
    expect((await create(service, 5)).status).toBe(409);
  });
});

describe.skipIf(engine !== "sqlite")("a disk with less free than the bound", () => {
  const { code } = catalogue.disk_low;

  const withBound = (bytes: number) => ({ PLANTSTORE_DISK_FREE_BYTES_MIN: String(bytes) });

  test("refuses new plants and replacements with 503; replays, reads and removals go on", async () => {
    await using service = await startService(withBound(999_999_999_999_999));
    // Stored by another process, with another bound.
    await service.database.run("INSERT INTO plants (id, name) VALUES (1, 'n'), (2, 'n')");
    const refused = await create(service, 3);
    expect(refused.headers.get("retry-after")).toBe("1");
    const { message, ...rest } = await readError(refused);
    expect(rest).toMatchObject({ status: 503, error: code });
    expect(message).toMatch(
      /^Too little disk space is free for a new plant: \d+ bytes of at least 999999999999999 \(PLANTSTORE_DISK_FREE_BYTES_MIN\); nothing was stored\.$/,
    );
    expect((await create(service, 1)).headers.get("idempotent-replayed")).toBe("true");
    expect(await sendLines(service, [1, 3])).toEqual(["stored", code]);
    const put = await send(service, "PUT", "/plants/1", { body: '{"name":"m"}' });
    expect(await readError(put)).toMatchObject({ status: 503, error: code });
    expect((await send(service, "DELETE", "/plants/2")).status).toBe(204);
    expect((await send(service, "GET", "/plants/1")).status).toBe(200);
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  });
});
