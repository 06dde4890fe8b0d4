/** Readers that follow the changes, and what ends them. */

import { describe, expect, test } from "bun:test";
import { Refusal } from "../../src/domain/errors.ts";
import type { ChangePage } from "../../src/domain/change.ts";
import { Feed } from "../../src/http/feed.ts";
import { createLog } from "../../src/observe/log.ts";
import { engine } from "../support/database.ts";
import { EventReader } from "../support/events.ts";
import { limits } from "../support/limits.ts";
import { bearer, getText, send, startService, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";
import { getHead, sendDeaf } from "../support/wire.ts";
import { fakeStore } from "../support/stores.ts";

export const groups = ["sqlite"];

const follow = ({ url }: TestService, query = "", headers = {}): Promise<EventReader> =>
  EventReader.open(url, { ...bearer(), ...headers }, query);

const untilReaders = (service: TestService, count: number): Promise<void> =>
  until(`${count} readers are counted`, async () =>
    (await getText(service, "/metrics")).includes(`plantstore_feed_readers ${count}\n`),
  );

/** The reads that its readers share. */
function shareReads(readChanges: () => Promise<ChangePage>) {
  const store = fakeStore({ readChanges });
  const feed = new Feed(
    store,
    createLog("error", () => undefined),
  );
  return feed.findSharedRead(store) as NonNullable<ReturnType<Feed["findSharedRead"]>>;
}

describe.concurrent("a reader of events", () => {
  test("gets comments while no event matches", async () => {
    await using service = await startService(limits({ commentSeconds: 0.2 }));
    await using reader = await follow(service);
    await using filtered = await follow(service, "?type=removed");
    await service.create('{"id":1,"name":"a"}');
    const [event] = await reader.take(1);
    const removed = filtered.next();
    while (filtered.lastEventId !== event?.id) await Bun.sleep(10);
    const none = reader.next();
    while (reader.comments === 0) await Bun.sleep(10);
    expect(event?.id).toBe(reader.lastEventId);
    await send(service, "DELETE", "/plants/1");
    expect(await removed).toMatchObject({ event: "removed" });
    expect(await none).toMatchObject({ event: "removed" });
  });

  test("that reads nothing is cut off without delaying another", async () => {
    // However slow the disk is, the creates below succeed.
    await using service = await startService(limits({ idleSecondsMax: 6, queueSecondsMax: 120 }));
    const deaf = sendDeaf(service.url, getHead("/changes", "Accept: text/event-stream"));
    await untilReaders(service, 1);
    await using reader = await follow(service);
    const name = "x".repeat(100_000);
    const taken = reader.take(200);
    for (let id = 0n; id < 200n; id++)
      await service.store.createPlant({ id, name, tag: undefined });
    await taken;
    await untilReaders(service, 1);
    expect(service.logLines.join("")).toContain("answer_cut_off");
    deaf.destroy();
  });
});

test("readers at one cursor share one read of the journal", async () => {
  let reads = 0;
  const change = { seq: 5, atMs: 0, type: "created", json: "{}" } as const;
  const read = shareReads(async () => {
    reads++;
    return { changes: [change, { ...change, seq: 7 }], last: 7, hasMore: false, newest: 7 };
  });
  const chunks = await Promise.all(Array.from({ length: 50 }, async () => read(3)));
  expect([new Set(chunks).size, reads]).toEqual([1, 1]);
  expect([await read(3), reads]).toEqual([chunks[0] as (typeof chunks)[0], 1]);
  // Inside the chunk there is the remainder, and before its first change the journal is read.
  expect([(await read(5)).changes.map(({ seq }) => seq), reads]).toEqual([[7], 1]);
  expect([await read(4), reads]).toEqual([chunks[0] as (typeof chunks)[0], 1]);
  await read(2);
  expect(reads).toBe(2);
});

test("readers take turns with other requests", async () => {
  const feed = new Feed(
    fakeStore({}),
    createLog("error", () => undefined),
  );
  const served: string[] = [];
  const turns = [1, 2, 3].map(async () => {
    await feed.awaitTick();
    served.push("reader");
  });
  for (let request = 0; request < 3; request++) {
    await new Promise(setImmediate);
    served.push("request");
  }
  await Promise.all(turns);
  expect(served.join()).not.toContain("reader,reader");
});

test("a large event is not broken by comments, however late its pieces are", async () => {
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  process.on("warning", note);
  await using service = await startService(limits({ commentSeconds: 0.001 }));
  const name = "x".repeat(1_000_000);
  await service.create(JSON.stringify({ id: 1, name }));
  await using reader = await follow(service, "?after=0");
  const [event] = await reader.take(1);
  expect(JSON.parse(event?.data ?? "")).toMatchObject({ id: 1, plant: { name } });
  // The runtime warns about a time to wait that has passed.
  expect(warnings).toEqual([]);
  process.off("warning", note);
});

test("a reader inside a large event continues if the feed has to restart", async () => {
  await using service = await startService(limits({ commentSeconds: 0.001 }));
  const { store, url, logLines } = service;
  const name = "x".repeat(12_000_000);
  await store.createPlant({ id: 1n, name, tag: undefined });
  const read = store.readChanges.bind(store);
  let isRead = false;
  store.readChanges = (query) => {
    isRead ||= query.limit > 0;
    if (query.limit > 0 || !isRead) return read(query);
    return Promise.reject(new Refusal(query.after > 0 ? "changes_gone" : "store_unavailable"));
  };
  const client = sendDeaf(url, getHead("/changes?after=0", "Accept: text/event-stream"));
  while (!logLines.join("").includes("feed_not_read")) await Bun.sleep(5);
  let characters = 0;
  for await (const chunk of client as AsyncIterable<Buffer>)
    if ((characters += chunk.length) > name.length) break;
});

test.each(["?after=0", "?after=0&type=created"])(
  "a reader of %s is cut off inside an event that is deleted meanwhile",
  async (query) => {
    await using service = await startService(limits({ idleSecondsMax: 120 }));
    const { store, url, database } = service;
    const create = (id: bigint, name: string) => store.createPlant({ id, name, tag: undefined });
    await create(1n, "a".repeat(12_000_000));
    await create(2n, "b".repeat(12_000_000));
    const { changes, newest } = await store.readChanges({ after: 0, limit: 1 });
    const client = sendDeaf(url, getHead(`/changes${query}`, "Accept: text/event-stream"));
    let text = "";
    // Piece by piece: for a client that reads on, the system's buffers grow beyond the event.
    while (!text.includes("aa")) {
      const piece = client.read() as Buffer | null;
      if (piece === null) await new Promise((resolve) => client.once("readable", resolve));
      else text += piece.toString("latin1");
    }
    const first = changes[0]?.seq ?? 0;
    // On a slow machine, the client's buffers are still being filled: no piece is read until the event is deleted.
    const deleted = Promise.withResolvers<void>();
    const read = store.readChanges.bind(store);
    store.readChanges = async (wanted) => {
      if (wanted.limit > 0 && wanted.after < first) await deleted.promise;
      return read(wanted);
    };
    // Another reader's chunk takes the place of the large one in the cache.
    await using reader = await follow(service, "", { "last-event-id": String(newest) });
    await create(3n, "c");
    await reader.take(1);
    const table = engine === "sqlite" ? "changes" : "plantstore_changes";
    await database.run(`DELETE FROM ${table} WHERE last <= ${first}`);
    deleted.resolve();
    client.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      if (chunk.includes("bb")) client.destroy();
    });
    await new Promise((resolve) => client.on("close", resolve).resume());
    expect(text.includes("bb")).toBe(false);
    expect(service.logLines.join("")).toContain("changes_gone");
  },
);

test("over HTTP, readers at one cursor share one read of the journal", async () => {
  const ids = [2, 3, 4];
  await using service = await startService();
  await service.create('{"id":1,"name":"a"}');
  const { headers } = await send(service, "HEAD", "/changes");
  const read = service.store.readChanges.bind(service.store);
  let reads = 0;
  service.store.readChanges = (query) => {
    if (query.limit > 0 && query.types === undefined) reads++;
    return read(query);
  };
  const from = { "last-event-id": headers.get("last-change") ?? "" };
  const readers = await Promise.all(ids.map(() => follow(service, "", from)));
  await using filtered = await follow(service, "?id=3&type=created", from);
  await service.store.createPlants(
    ids.map((id) => ({ id: BigInt(id), name: "b", tag: undefined })),
  );
  const idsOf = async (reader: EventReader, count: number): Promise<unknown[]> =>
    (await reader.take(count)).map(({ data }) => JSON.parse(data).id);
  for (const reader of readers) expect(await idsOf(reader, 3)).toEqual(ids);
  expect(await idsOf(filtered, 1)).toEqual([3]);
  expect(reads).toBe(1);
  await untilReaders(service, 4);
  for (const reader of readers) await reader[Symbol.asyncDispose]();
  await untilReaders(service, 1);
});

test("a service that stops ends its readers at once, also those of its threads", async () => {
  // Longer than a test may take: the readers are not waited for.
  const drain = limits({ drainSecondsMax: 3_600 });
  const service = await startService({ PLANTSTORE_WORKERS: "2", ...drain });
  const readers = await Promise.all(Array.from({ length: 8 }, () => follow(service)));
  await service[Symbol.asyncDispose]();
  for (const reader of readers) expect(await reader.next()).toBeUndefined();
});
