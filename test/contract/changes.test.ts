/** GET /changes over the wire, on every engine. */

import { describe, expect, test } from "bun:test";
import type { ErrorName } from "../../src/domain/errors.ts";
import { engine } from "../support/database.ts";
import { EventReader } from "../support/events.ts";
import { expectError, rejectionOf } from "../support/expect.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import {
  bearer,
  getJson,
  getText,
  grantToken,
  send,
  sendLines,
  startService,
  storePlants,
  type TestService,
  walkPages,
} from "../support/service.ts";
import { until } from "../support/until.ts";

interface ShownChange {
  readonly seq: number;
  readonly time: string;
  readonly type: string;
  readonly id: number;
  readonly by?: string;
  readonly plant?: object;
  readonly before?: object;
  readonly batch?: string;
  readonly folded?: Record<string, number>;
}

async function createAll(service: TestService, ids: readonly number[]): Promise<void> {
  const results = await sendLines(service, ids.map((id) => makeLines(id, 1)).join(""));
  expect(await results.text()).not.toContain("error");
}

const read = (service: TestService, query = ""): Promise<ShownChange[]> =>
  getJson(service, `/changes${query}`);

/** All pages: with a filter, or folded, each may end early. */
const readAll = async (service: TestService, query: string): Promise<ShownChange[]> =>
  (await walkPages(service, `/changes${query}`)).items as ShownChange[];

/** Adds up the entries of a run that the end of a page has split. */
function joinRuns(changes: readonly ShownChange[]): ShownChange[] {
  const joined: ShownChange[] = [];
  for (const change of changes) {
    const { batch, folded: sums } = joined.at(-1) ?? {};
    const { folded } = change;
    if (sums === undefined || folded === undefined || batch !== change.batch) joined.push(change);
    else for (const type in folded) sums[type] = (sums[type] ?? 0) + (folded[type] ?? 0);
  }
  return joined;
}

describe("GET /changes", () => {
  test("shows creates, replacements and removals with their token", async () => {
    await using service = await startService();
    const plant = { name: "fern", tag: "green" };
    const fern = JSON.stringify({ id: 1, ...plant });
    expect((await service.create(fern)).status).toBe(200);
    expect((await service.create(fern)).status).toBe(200);
    await send(service, "PUT", "/plants/1", { body: '{"name":"tree"}' });
    await send(service, "DELETE", "/plants/1");
    const changes = await read(service);
    const by = "PLANTSTORE_TOKEN";
    expect(changes.map(({ seq: _seq, time: _time, ...rest }) => rest)).toEqual([
      { type: "created", id: 1, by, plant },
      { type: "replaced", id: 1, by, plant: { name: "tree" }, before: plant },
      { type: "removed", id: 1, by, before: { name: "tree" } },
    ]);
    for (const { time } of changes)
      expect(Math.abs(Date.parse(time) - Date.now())).toBeLessThan(3_600_000);
    // Counted once a second.
    await until("the changes are counted", async () =>
      (await getText(service, "/metrics")).includes("plantstore_changes_total 3\n"),
    );
    await service.create('{"id":-9223372036854775808,"name":"n"}');
    const query = `?id=-9223372036854775808&after=${changes.at(-1)?.seq}`;
    expect(await getText(service, `/changes${query}`)).toContain('"id":-9223372036854775808,');
  });

  test("tells the number of the newest change", async () => {
    await using service = await startService();
    await createAll(service, [1, 2, 3]);
    const last = (await read(service)).at(-1)?.seq;
    for (const method of ["GET", "HEAD"]) {
      const { headers } = await send(service, method, "/changes?limit=1");
      expect(headers.get("last-change")).toBe(String(last));
    }
    for (const accept of ["application/json", "application/x-ndjson", "text/event-stream"]) {
      const { headers, status } = await send(service, "HEAD", "/changes", { headers: { accept } });
      expect([status, headers.get("content-type")]).toEqual([200, accept]);
      expect(headers.get("last-change")).toBe(String(last));
      expect(headers.get("content-length")).toBeNull();
    }
    expect((await send(service, "HEAD", "/changes?after=1767225600000001")).status).toBe(410);
    expect(await read(service, `?after=${last}`)).toEqual([]);
  });

  test("is read page by page, forwards and from the newest back, with every filter", async () => {
    await using service = await startService();
    // Ids that contain each other, and a name that looks like an entry.
    await createAll(service, [1, 2, 11, 111, 5]);
    await service.create('{"id":7,"name":"plant 6"}');
    await service.create('{"id":4,"name":",11,"}');
    await send(service, "DELETE", "/plants/11?batch=x");
    const all = await read(service, "?limit=1000");
    expect(all).toHaveLength(8);
    const filters: Record<string, (change: ShownChange) => boolean> = {
      "": () => true,
      "&type=created": ({ type }) => type === "created",
      "&type=removed,replaced": ({ type }) => type === "removed",
      "&id=11": ({ id }) => id === 11,
      "&id=12": () => false,
      "&by=PLANTSTORE_TOKEN": () => true,
      "&by=x": () => false,
      "&batch=x": ({ batch }) => batch === "x",
      "&batch=x&id=1": () => false,
      "&batch=x&by=PLANTSTORE_TOKEN": ({ batch }) => batch === "x",
      "&batch=x&by=PLANTSTORE_TOKE": () => false,
    };
    for (const [filter, isWanted] of Object.entries(filters))
      for (const limit of [1, 2, 3, 1000]) {
        const query = `?limit=${limit}${filter}`;
        const back = await readAll(service, `${query}&order=desc`);
        expect([query, back.toReversed()]).toEqual([query, all.filter(isWanted)]);
        expect([query, await readAll(service, query)]).toEqual([query, all.filter(isWanted)]);
      }
    // Before the oldest entry there is nothing; a number from the future starts at the newest.
    expect(await read(service, "?order=desc&after=5")).toEqual([]);
    const future = `?order=desc&after=${Number.MAX_SAFE_INTEGER}&limit=1`;
    expect(await read(service, future)).toEqual(all.slice(-1));
  });

  test("folds consecutive changes of a batch, forwards and back", async () => {
    await using service = await startService();
    const inBatch = (method: string, id: number, batch: string, body?: string) =>
      send(service, method, `/plants/${id}?batch=${batch}`, body === undefined ? {} : { body });
    await createAll(service, [1, 2, 3, 4]);
    await inBatch("DELETE", 1, "a");
    await inBatch("PUT", 2, "a", '{"name":"two"}');
    await inBatch("PUT", 3, "a", '{"name":"three"}');
    await inBatch("DELETE", 2, "b");
    await send(service, "DELETE", "/plants/4");
    await inBatch("DELETE", 3, "b");
    const shown = async (query: string): Promise<unknown[]> =>
      joinRuns(await readAll(service, query)).map(({ id, folded }) => [id, folded]);
    const a = { created: 0, replaced: 2, removed: 1 };
    const b = { created: 0, replaced: 0, removed: 1 };
    // The first change of the run stands for it. Without a batch there is nothing to fold.
    const alone = [4, undefined];
    const back = (await shown("?order=desc&fold=batch")).slice(0, 4);
    expect(back).toEqual([[3, b], alone, [2, b], [3, a]]);
    const forwards = (await shown("?fold=batch")).slice(4);
    expect(forwards).toEqual([[1, a], [2, b], alone, [3, b]]);
    const folded = await shown("?order=desc&fold=batch&batch=b");
    expect(folded).toEqual([[3, { ...b, removed: 2 }]]);
  });

  test("knows who wrote, whatever the name", async () => {
    await using service = await startService();
    for (const [at, name] of ["Anna Müller", 'O’Brien "Bo" \\', "Anna"].entries()) {
      const headers = bearer(await grantToken(service, ["plants:write"], { name }));
      const body = JSON.stringify({ id: at, name: "n" });
      await send(service, "POST", "/plants?batch=b", { headers, body });
      const found = await readAll(service, `?by=${encodeURIComponent(name)}`);
      expect(found.map(({ id, by }) => [id, by])).toEqual([[at, name]]);
    }
  });

  test("streams the rest as lines", async () => {
    await using service = await startService();
    await storePlants(service, 2_500);
    const [first] = await read(service, "?limit=1");
    const headers = { accept: "application/x-ndjson" };
    const lines = await send(service, "GET", `/changes?after=${first?.seq}`, { headers });
    expect(lines.headers.get("content-type")).toBe("application/x-ndjson");
    const changes = parseLines(await lines.text()) as ShownChange[];
    expect(changes).toHaveLength(2_499);
    const seqs = changes.map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.toSorted((one, other) => one - other));
    expect(new Set([first?.id, ...changes.map(({ id }) => id)]).size).toBe(2_500);
  });

  test.each(["plants", "changes"])(
    "a stream of %s that cannot be read to its end is cut",
    async (of) => {
      await using doomed = await startService();
      await storePlants(doomed, 3_000, "x".repeat(5_000));
      const headers = { accept: "application/x-ndjson", "x-request-id": `${of}-1` };
      const response = await send(doomed, "GET", `/${of}`, { headers });
      const prefix = engine === "sqlite" || of === "plants" ? "" : "plantstore_";
      await doomed.database.run(`ALTER TABLE ${prefix}${of} RENAME TO lost`);
      expect(await rejectionOf(response.text())).toBeInstanceOf(Error);
      const findLogged = (): string[] =>
        doomed.logLines.filter((line) => line.includes("export_broken_off"));
      await until("the end is logged", () => findLogged().length > 0);
      expect(findLogged().join("")).toContain(`"requestId":"${of}-1"`);
    },
  );

  test("refuses what it cannot answer", async () => {
    await using service = await startService();
    await createAll(service, [1]);
    const refuse = async (query: string, due: ErrorName, headers = {}): Promise<string> =>
      expectError(await send(service, "GET", `/changes${query}`, { headers }), due);
    const events = { accept: "text/event-stream" };
    const wrong =
      "after=-1 after=1.5 after=9007199254740992 type= type=created,created id=a limit=0 order=up fold=all";
    for (const query of wrong.split(" ")) await refuse(`?${query}`, "invalid_query");
    await refuse("?limit=5", "invalid_query", { accept: "application/x-ndjson" });
    for (const query of ["?order=desc", "?order=asc", "?fold=batch"])
      await refuse(query, "invalid_query", events);
    const wrongEvent = { ...events, "last-event-id": "x" };
    await refuse("", "invalid_query", wrongEvent);
    const both = await refuse("?type=made", "invalid_query", wrongEvent);
    expect(both).toMatch(/^Last-Event-ID: .*; type: /);
    const another = "1767225600000001";
    await refuse("", "changes_gone", { ...events, "last-event-id": another });
    await refuse("?after=9007199254740991", "changes_gone");
    const gone = await refuse(`?after=${another}`, "changes_gone");
    const start = /the changes after (\d+)\./.exec(gone)?.[1];
    expect(await read(service, `?after=${start}`)).toEqual([]);
    // Nothing was dropped, and no store can have given this number.
    expect(await read(service, "?after=1")).toHaveLength(1);
  });
});

test("GET /changes as events follows the journal after Last-Event-ID", async () => {
  await using service = await startService();
  await createAll(service, [1, 2, 3]);
  await using reader = await EventReader.open(service.url, bearer());
  expect(Object.fromEntries(reader.response.headers)).toMatchObject({
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
  });
  const seen = await reader.take(3);
  await createAll(service, [4]);
  await send(service, "DELETE", "/plants/4");
  seen.push(...(await reader.take(2)));
  const events = seen.map(({ event }) => event).join(" ");
  expect(events).toBe("created created created created removed");
  for (const { id, data } of seen) expect(JSON.parse(data)).toMatchObject({ seq: Number(id) });
  const behind = { ...bearer(), "last-event-id": seen[2]?.id ?? "" };
  await using resumed = await EventReader.open(service.url, behind, "?after=1");
  expect(await resumed.take(2)).toEqual(seen.slice(3));
  // Both readers are caught up, and wait. Requests may finish, as on a signal.
  const ended = Promise.all([reader.next(), resumed.next()]);
  await service[Symbol.asyncDispose]();
  expect(await ended).toEqual([undefined, undefined]);
});

test("a page of the journal waits for the export pages in flight, not for those in the queue", async () => {
  await using service = await startService();
  await storePlants(service, 2_000);
  let pages = 0;
  const ending = new AbortController();
  const query = { after: undefined, limit: 1_000, order: "asc" } as const;
  const exporting = Array.from({ length: 100 }, async () => {
    for (; !ending.signal.aborted; pages++) await service.store.readPlants(query, "ndjson");
  });
  const turns: number[] = [];
  while (turns.length < 100) {
    await Bun.sleep(1);
    const before = pages;
    const { changes } = await service.store.readChanges({ after: 0, limit: 1 });
    expect(changes).toHaveLength(1);
    turns.push(pages - before);
  }
  ending.abort();
  await Promise.all(exporting);
  // PostgreSQL takes two round trips, beside two pages. In one queue it would be a page of each export.
  const turnsMax = engine === "sqlite" ? 4 : 25;
  expect(turns.filter((count) => count > turnsMax).length).toBeLessThan(4);
});
