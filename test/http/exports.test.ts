/** How a reader knows that it has the whole of an export. */

import { expect, test } from "bun:test";
import { send, startService, type TestService } from "../support/service.ts";

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
