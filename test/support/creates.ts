/** Run with coverage by documents.test.ts: creates through the whole service, and through the store on one thread. */

import { expect, spyOn, test } from "bun:test";
import { openTestStore } from "./database.ts";
import { startService } from "./service.ts";

test("creates", async () => {
  // What runs by time is no part of a create, and on a slow machine runs as often as one.
  spyOn(globalThis, "setInterval").mockImplementation(() => setTimeout(() => undefined, 0));
  await using service = await startService({ PLANTSTORE_LOG_LEVEL: "info" });
  // In a service the writer of SQLite has a thread of its own, which coverage does not see.
  await using store = await openTestStore();
  for (let id = 1; id <= Number(process.env["TEST_CREATES"]); id++) {
    expect((await service.create(`{"id":${id},"name":"rose"}`)).status).toBe(200);
    await store.createPlant({ id: BigInt(id), name: "rose", tag: undefined });
  }
});
