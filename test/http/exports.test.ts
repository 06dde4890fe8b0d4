/** Streams that take long, and how a reader knows that it has the whole. */

import { expect, spyOn, test } from "bun:test";
import type { PlantPage, PlantQuery } from "../../src/domain/page.ts";
import { limits } from "../support/limits.ts";
import { send, startService, type TestService } from "../support/service.ts";

test("an export that finds nothing for longer than the idle time is not cut off", async () => {
  await using service = await startService({
    ...limits({ readSecondsMax: 1, queueSecondsMax: 1 }),
    PLANTSTORE_IDLE_SECONDS_MAX: "6",
  });
  const PAGES = 12;
  const listing = spyOn(service.store, "listPlants").mockImplementation(
    async ({ after = 0n }: PlantQuery): Promise<PlantPage> => {
      if (after > 0n) await Bun.sleep(1_000);
      const isLast = after === BigInt(PAGES);
      const found = isLast ? [{ id: 99n, name: "found", tag: undefined }] : [];
      return { plants: found, next: isLast ? undefined : after + 1n };
    },
  );
  const headers = { accept: "application/x-ndjson" };
  const response = await send(service, "GET", "/plants?name=found", { headers });
  expect(await response.text()).toBe('{"id":99,"name":"found"}\n');
  listing.mockRestore();
}, 30_000);

test("what comes after the last plant of an export tells whether it is complete, with every filter", async () => {
  await using service = await startService();
  await service.store.createPlants(
    Array.from({ length: 20 }, (_, id) => ({
      id: BigInt(id),
      name: id % 2 === 0 ? "Fern" : "Oak",
      tag: id % 3 === 0 ? "third" : undefined,
    })),
  );
  for (const filter of [
    "",
    "&tag=third",
    "&name=fern",
    "&name=oak&tag=third&order=desc",
    "&order=desc",
  ]) {
    const ids = await exportIds(service, `?${filter.slice(1)}`);
    expect(ids.length).toBeGreaterThan(2);
    expect(await isComplete(service, ids.at(-1) ?? 0, filter)).toBe(true);
    expect(await isComplete(service, ids.at(-2) ?? 0, filter)).toBe(false);
  }
});

async function exportIds(service: TestService, query: string): Promise<number[]> {
  const headers = { accept: "application/x-ndjson" };
  const text = await (await send(service, "GET", `/plants${query}`, { headers })).text();
  return text
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { id: number }).id);
}

async function isComplete(service: TestService, after: number, filter: string): Promise<boolean> {
  const page = await send(service, "GET", `/plants?after=${after}&limit=1${filter}`);
  return (await page.text()) === "[]" && !page.headers.has("link");
}
