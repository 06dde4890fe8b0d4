/** POST /changes/revert, and the names of batches in the journal, on every engine. */

import { beforeEach, describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { type Change, Client, type RevertLeft, type RevertRange } from "../../client/client.ts";
import { isSameState, type Plant } from "../../src/domain/plant.ts";
import { engine } from "../support/database.ts";
import { expectError } from "../support/expect.ts";
import { parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { runsFactor } from "../support/long.ts";
import { seed } from "../support/random.ts";
import {
  bearer,
  getJson,
  grantToken,
  send,
  startService,
  startShared,
  storePlants,
  TEST_TOKEN,
  type TestService,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const INT64_MAX = 2n ** 63n - 1n;
const by = "PLANTSTORE_TOKEN";

const clientOf = (service: TestService): Client =>
  new Client(service.url, TEST_TOKEN, { delaysMs: [] });

const shared = await startShared();
const client = clientOf(shared);
beforeEach(async () => {
  for (const { id } of await Array.fromAsync(client.list())) await client.remove(id);
});

const readAll = async (service = shared): Promise<unknown[]> =>
  (await Array.fromAsync(clientOf(service).list())).map(({ id, name, tag }) => [id, name, tag]);

const revert = (body: unknown, headers = {}, service = shared): Promise<Response> =>
  send(service, "POST", "/changes/revert", { body: JSON.stringify(body), headers });

describe("a batch", () => {
  test("is named by any write, and found in the journal by its name", async () => {
    const batch = 'Frühling "1".csv & more';
    await client.create({ id: 1n, name: "a" }, { batch });
    await client.replace({ id: 1n, name: "b" }, { batch });
    await client.createBatch([{ id: INT64_MAX, name: "c" }], () => undefined, { batch });
    await client.remove(1n, { batch });
    await client.create({ id: 2n, name: batch });
    const named = await Array.fromAsync(client.changes({ batch }));
    expect(named).toMatchObject([
      { type: "created", id: 1n, by, batch },
      { type: "replaced", id: 1n, by, batch },
      { type: "created", id: INT64_MAX, by, batch },
      { type: "removed", id: 1n, by, batch },
    ]);
    const last = (await Array.fromAsync(client.changes())).at(-1);
    expect([last?.by, last?.batch]).toEqual([by, undefined]);
    expect(await Array.fromAsync(client.changes({ batch: "other" }))).toEqual([]);
    for await (const change of client.changes({ batch, follow: true })) {
      expect(change).toEqual(named[0] as Change);
      break;
    }
  });

  test("has 1 to 100 characters and no control character", async () => {
    const plant = { body: '{"id":1,"name":"a"}' };
    const refuses = async (method: string, path: string, sent = {}): Promise<string> =>
      expectError(await send(shared, method, path, sent), "invalid_query");
    for (const given of ["", "%0A", "a%00", "a%7F", "x".repeat(101), "%ED%A0%80", "a&batch=b"]) {
      await refuses("POST", `/plants?batch=${given}`, plant);
      await refuses("POST", `/plants/batch?batch=${given}`, plant);
      await refuses("PUT", `/plants/1?batch=${given}`, plant);
      await refuses("DELETE", `/plants/1?batch=${given}`);
    }
    await refuses("POST", "/plants?by=x", plant);
    expect(await readAll()).toEqual([]);
    const longest = encodeURIComponent("🌱".repeat(100));
    expect((await send(shared, "POST", `/plants?batch=${longest}`, plant)).status).toBe(200);
  });
});

describe("POST /changes/revert", () => {
  test("gives every plant the state from before the range, whatever the range did to it", async () => {
    await client.create({ id: -1n, name: "replaced", tag: "t" });
    await client.create({ id: 2n, name: "removed" });
    await client.create({ id: 3n, name: "removed and made again", tag: "" });
    await client.create({ id: 4n, name: "not concerned" });
    const before = await readAll();
    const newest = await client.findNewestChange();
    await client.replace({ id: -1n, name: "x" });
    await client.replace({ id: -1n, name: "y" });
    await client.remove(2n);
    await client.remove(3n);
    await client.create({ id: 3n, name: "other" });
    await client.create({ id: INT64_MAX, name: "created" });
    await client.create({ id: 6n, name: "created and removed" });
    await client.remove(6n);
    const last = await client.findNewestChange();
    const preview = await client.previewRevert({ from: newest + 1 });
    expect(preview).toMatchObject({ plants: 5, revertible: 4, unchanged: 1, changedSince: 0 });
    expect(preview.sample).toEqual([
      { id: -1n, now: { name: "y" }, before: { name: "replaced", tag: "t" } },
      { id: 2n, before: { name: "removed" } },
      { id: 3n, now: { name: "other" }, before: { name: "removed and made again", tag: "" } },
      { id: INT64_MAX, now: { name: "created" } },
    ]);
    expect(await client.findNewestChange()).toBe(last);
    const done = await client.revert({ from: newest + 1 }, { batch: "undo" });
    const counts = { plants: 5, reverted: 4, unchanged: 1, changedSince: 0, refused: 0 };
    expect(done).toEqual({ ...counts, batch: "undo" });
    expect(await readAll()).toEqual(before);
    const made = await Array.fromAsync(client.changes({ after: last }));
    expect(made).toHaveLength(4);
    for (const change of made) expect(change).toMatchObject({ by, batch: "undo" });
  });

  test("leaves alone what was changed since, or between", async () => {
    const [ids, batch] = [[1n, 2n, 3n, 4n], "mixed"];
    for (const id of ids) await client.create({ id, name: "first" });
    for (const id of ids) await client.replace({ id, name: "second" }, { batch });
    await client.replace({ id: 1n, name: "since" });
    await client.remove(2n);
    await client.replace({ id: 3n, name: "between" });
    await client.replace({ id: 3n, name: "again" }, { batch });
    const expected = { plants: 4, unchanged: 0, changedSince: 3 };
    const preview = await client.previewRevert({ batch });
    expect(preview).toMatchObject({ ...expected, revertible: 1 });
    expect(preview.skipped).toEqual([
      { id: 1n, now: { name: "since" } },
      { id: 2n },
      { id: 3n, now: { name: "again" } },
    ]);
    const left: unknown[] = [];
    const onLeft = ({ id, reason }: RevertLeft) => left.push([id, reason]);
    const done = await client.revert({ batch }, { onLeft });
    expect(done).toMatchObject({ ...expected, reverted: 1, refused: 0 });
    expect(left).toEqual([1n, 2n, 3n].map((id) => [id, "precondition_failed"]));
    const names = (await Array.fromAsync(client.list())).map(({ name }) => name);
    expect(names).toEqual(["since", "again", "first"]);
  });

  test("undoes what lies between numbers or between times", async () => {
    await storePlants(shared, 25, "n", { token: by, batch: "b" });
    expect((await client.previewRevert({ batch: "b" })).sample).toHaveLength(20);
    // In another millisecond each.
    for (const id of [9_998n, 9_999n]) {
      await Bun.sleep(2);
      await client.create({ id, name: "alone" });
    }
    const journal = await Array.fromAsync(client.changes());
    const [inBatch, { seq, time }] = [journal.at(-9), journal.at(-2)] as [Change, Change];
    for (const range of [
      { from: inBatch.seq, to: inBatch.seq },
      { from: time, to: time },
      { from: seq, to: time },
    ])
      expect(await client.previewRevert(range)).toMatchObject({ plants: 1 });
    expect(await client.previewRevert({ from: seq, by: "other" })).toMatchObject({ plants: 0 });
    expect(await client.revert({ from: seq, to: seq })).toMatchObject({ plants: 1, reverted: 1 });
  });

  test("lists what a quota refuses until there is room", async () => {
    await using service = await startService({ PLANTSTORE_PLANTS_MAX: "3" });
    const own = clientOf(service);
    for (const id of [1n, 2n, 3n]) await own.create({ id, name: "n" });
    for (const id of [1n, 2n, 3n]) await own.remove(id, { batch: "slip" });
    await own.create({ id: 4n, name: "n" });
    const left: unknown[] = [];
    const onLeft = ({ reason }: RevertLeft) => left.push(reason);
    const done = await own.revert({ batch: "slip" }, { onLeft });
    if (engine === "sqlite") {
      expect(done).toMatchObject({ plants: 3, reverted: 2, refused: 1 });
      expect(left).toEqual(["store_full"]);
    }
    await own.remove(4n);
    expect(await own.revert({ batch: "slip" })).toMatchObject({ refused: 0 });
    expect(await readAll(service)).toHaveLength(3);
  });

  test("refuses what it does not understand", async () => {
    await client.create({ id: 1n, name: "n" });
    const newest = await client.findNewestChange();
    const day = (date: string): string => `${date}T00:00:00Z`;
    const wrong = String.raw`{} [] {"dryRun":true} {"to":true} {"by":""} {"by":1} {"batch":""} {"batch":"a\nb"} {"batch":"x","dryRun":"yes"} {"batch":"x","since":1}`;
    const froms = [0, -1, 1.5, 2 ** 53, String(newest), day("2026-02-31"), "2026-01-01"];
    for (const body of [
      ...wrong.split(" ").map((text) => JSON.parse(text) as object),
      ...[...froms, newest + 1, day("2999-01-01")].map((from) => ({ from })),
      { from: newest, to: newest - 1 },
      { from: day("2026-01-02"), to: day("2026-01-01") },
    ])
      await expectError(await revert(body), "invalid_body");
    const body = JSON.stringify({ from: newest });
    for (const query of ["?batch=", "?x=1"]) {
      const refused = await send(shared, "POST", `/changes/revert${query}`, { body });
      await expectError(refused, "invalid_query");
    }
    const text = { "content-type": "text/plain" };
    await expectError(await revert({}, text), "unsupported_media_type");
    expect((await send(shared, "GET", "/changes/revert")).status).toBe(405);
    for (const scope of ["plants:read", "plants:write"] as const) {
      const headers = bearer(await grantToken(shared, [scope]));
      await expectError(await revert({ from: newest }, headers), "insufficient_scope");
    }
    expect(await getJson(shared, `/changes?after=${newest}`)).toEqual([]);
  });

  test("from before the first change needs a journal without dropped changes", async () => {
    await using service = await startService(limits({ trimSeconds: 0.05 }));
    const own = clientOf(service);
    for (const id of [1n, 2n, 3n]) await own.create({ id, name: "n" });
    const day = (date: string): string => `${date}T00:00:00Z`;
    // The last is a number that another store may have.
    const froms = [1, 2, day("1970-01-01"), day("2020-01-01"), 1_767_225_600_000_001];
    for (const from of froms)
      expect(await own.previewRevert({ from })).toMatchObject({ plants: 3 });
    for (const to of [2, day("2020-01-01")]) {
      expect(await own.previewRevert({ to })).toMatchObject({ plants: 0 });
      expect(await own.previewRevert({ from: 1, to })).toMatchObject({ plants: 0 });
    }
    await service.database.ageChanges();
    await until(
      "changes are dropped",
      async () => (await own.listChangePage({})).changes.length < 3,
    );
    for (const body of [
      ...froms.map((from) => ({ from })),
      ...[2, day("2020-01-01")].map((to) => ({ to })),
      { from: day("2020-01-01"), dryRun: true },
    ])
      await expectError(await revert(body, {}, service), "changes_gone");
  });

  test("without a journal answers 410", async () => {
    await using service = await startService({ PLANTSTORE_CHANGES_DAYS: "0" });
    await expectError(await revert({ by: "x" }, {}, service), "changes_gone");
  });

  test("has as many passes as it needs, until its token ends", async () => {
    await using service = await startService(limits({ revertPlantsMax: 1 }));
    const own = clientOf(service);
    const scopes = ["plants:read", "plants:write"];
    const { token, id } = await own.createToken({ name: "short", scopes, rate: "10/s" });
    await storePlants(service, 200, "n", { token: by, batch: "b" });
    // A dry run has one pass.
    await expectError(await revert({ batch: "b", dryRun: true }, {}, service), "range_too_large");
    const sent = revert({ batch: "b" }, bearer(token), service);
    await until("the revert has begun", async () => (await readAll(service)).length < 200);
    await own.revokeToken(id);
    const response = await sent;
    expect(response.headers.get("content-type")).toBe("application/x-ndjson");
    const last = parseLines(await response.text()).at(-1);
    expect(last).toMatchObject({ complete: false, status: 401 });
    expect(await own.revert({ batch: "b" })).toMatchObject({ plants: 200, refused: 0 });
    expect(await readAll(service)).toEqual([]);
  });
});

const model = await startShared(limits({ revertPlantsMax: 2, revertCharactersMax: 100 }));

const step = fc.record({
  id: fc.constantFrom(-(2n ** 63n), -1n, 0n, 1n, 2n, INT64_MAX),
  name: fc.constantFrom(undefined, "a", "b", "c".repeat(60)),
  by: fc.constantFrom("one", "two"),
  batch: fc.constantFrom(undefined, "x", "y"),
});

type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined });

const history = fc.record({
  steps: fc.array(step, { minLength: 1, maxLength: 40, size: "max" }),
  from: maybe(fc.nat(39)),
  to: maybe(fc.nat(39)),
  by: maybe(fc.constantFrom("one", "two")),
  batch: maybe(fc.constantFrom("x", "y")),
});

/** Resolves to what it did; undefined if there was nothing to do. */
async function take({ id, name, by: token, batch }: Step, state: Map<bigint, Plant>) {
  const writer = { token, batch };
  const before = state.get(id);
  const plant = name === undefined ? undefined : { id, name, tag: undefined };
  if (isSameState(before, plant)) return undefined;
  if (plant === undefined) {
    await model.store.removePlant(id, {}, writer);
    state.delete(id);
  } else {
    await (before === undefined
      ? model.store.createPlant(plant, writer)
      : model.store.replacePlant(plant, {}, writer));
    state.set(id, plant);
  }
  return { id, by: token, batch, before, plant };
}
type Taken = NonNullable<Awaited<ReturnType<typeof take>>>;

test("POST /changes/revert: any selection of any history gives exactly what a model gives", () =>
  fc.assert(
    fc.asyncProperty(history, async ({ steps, from, to, by: token, batch }) => {
      const state = new Map<bigint, Plant>();
      for (const { id } of await Array.fromAsync(clientOf(model).list()))
        await model.store.removePlant(id, {});
      const start = await clientOf(model).findNewestChange();
      const taken: Taken[] = [];
      for (const one of steps) {
        const change = await take(one, state);
        if (change !== undefined) taken.push(change);
      }
      const journal = await Array.fromAsync(clientOf(model).changes({ after: start }));
      expect(journal).toHaveLength(taken.length);
      const made = journal.map(({ seq }, at) => Object.assign(taken[at] as Taken, { seq }));
      const fromSeq = made[from ?? 0]?.seq ?? start + 1;
      const toSeq = to === undefined ? undefined : (made[to]?.seq ?? fromSeq);
      fc.pre(made.length > 0 && (toSeq === undefined || fromSeq <= toSeq));
      const selected = made.filter(
        (change) =>
          change.seq >= fromSeq &&
          (toSeq === undefined || change.seq <= toSeq) &&
          (token === undefined || change.by === token) &&
          (batch === undefined || change.batch === batch),
      );
      const counts = { plants: 0, reverted: 0, unchanged: 0, changedSince: 0, refused: 0 };
      for (const [id, changes] of Map.groupBy(selected, (change) => change.id)) {
        const now = state.get(id);
        const due = changes[0]?.before;
        const isWhole = changes.every(
          ({ before }, at) => at === 0 || isSameState(before, changes[at - 1]?.plant),
        );
        counts.plants++;
        if (isSameState(now, due)) counts.unchanged++;
        else if (!isWhole || !isSameState(now, changes.at(-1)?.plant)) counts.changedSince++;
        else {
          counts.reverted++;
          if (due === undefined) state.delete(id);
          else state.set(id, due);
        }
      }
      const range: RevertRange = { from: fromSeq, to: toSeq, by: token, batch };
      expect(await clientOf(model).revert(range)).toMatchObject(counts);
      const found = await Array.fromAsync(clientOf(model).list());
      expect(new Map(found.map(({ id, name }) => [id, name]))).toEqual(
        new Map(Array.from(state.values(), ({ id, name }) => [id, name])),
      );
    }),
    { seed, numRuns: 40 * runsFactor },
  ));
