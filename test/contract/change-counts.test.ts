/** Counts of changes, and changes of a period, on every engine. */

import { describe, expect, test } from "bun:test";
import { type ChangeCount, type ChangeCountQuery, Client } from "../../client/client.ts";
import { expectError } from "../support/expect.ts";
import { bearer, grantToken, send, startService, type TestService } from "../support/service.ts";

const BATCH = "spring.csv 2026-01-01T00:00:00.000Z";

async function clientOf(service: TestService, name: string): Promise<Client> {
  return new Client(service.url, await grantToken(service, undefined, { name }));
}

/** Anna imports, Ben adds by hand between and after; Anna changes and removes what Ben added. */
async function startBusy() {
  const service = await startService();
  const [anna, ben] = [await clientOf(service, "Anna"), await clientOf(service, "Ben")];
  await ben.create({ id: 1n, name: "one" });
  for (const id of [10n, 11n]) await anna.create({ id, name: "imported" }, { batch: BATCH });
  await ben.create({ id: 2n, name: "two" });
  await ben.create({ id: 3n, name: "three" });
  await anna.create({ id: 12n, name: "imported" }, { batch: BATCH });
  await anna.replace({ id: 2n, name: "changed" });
  await anna.remove(3n);
  const changes = await Array.fromAsync(ben.changes());
  return Object.assign(service, { anna, ben, changes });
}

/** Adds up the pages: on a busy machine the service may end one before a group is complete. */
async function countAll(client: Client, query: ChangeCountQuery): Promise<ChangeCount[]> {
  const groups = new Map<string, ChangeCount>();
  for (let after: number | undefined = 0; after !== undefined;) {
    const page = await client.countChangePage({ ...query, after });
    for (const each of page.counts) {
      const key = JSON.stringify([each.start, each.by, each.batch]);
      const known = groups.get(key);
      groups.set(key, known === undefined ? each : addUp(known, each));
    }
    after = page.next;
  }
  return [...groups.values()];
}

const addUp = (newer: ChangeCount, older: ChangeCount): ChangeCount => ({
  ...newer,
  created: newer.created + older.created,
  replaced: newer.replaced + older.replaced,
  removed: newer.removed + older.removed,
  first: older.first,
  firstTime: older.firstTime,
});

const figures = (counts: readonly ChangeCount[]): unknown[] =>
  counts.map(({ by, batch, created, replaced, removed }) => [
    by,
    batch,
    created,
    replaced,
    removed,
  ]);

describe("GET /changes/counts", () => {
  test("counts what each person and each batch added, changed and removed", async () => {
    await using service = await startBusy();
    const { ben, changes } = service;
    const [first, last] = [changes[0], changes.at(-1)];
    expect(await countAll(ben, {})).toEqual([
      {
        created: 6,
        replaced: 1,
        removed: 1,
        first: first?.seq as number,
        firstTime: first?.time as string,
        last: last?.seq as number,
        lastTime: last?.time as string,
      },
    ]);
    expect(figures(await countAll(ben, { group: ["by"] }))).toEqual([
      ["Anna", undefined, 3, 1, 1],
      ["Ben", undefined, 3, 0, 0],
    ]);
    const batches = await countAll(ben, { group: ["by", "batch"] });
    expect(figures(batches)).toEqual([
      ["Anna", undefined, 0, 1, 1],
      ["Anna", BATCH, 3, 0, 0],
      ["Ben", undefined, 3, 0, 0],
    ]);
    expect([batches[1]?.first, batches[1]?.last]).toEqual([changes[1]?.seq, changes[5]?.seq]);
    expect(figures(await countAll(ben, { by: "Anna", types: ["created"] }))).toEqual([
      [undefined, undefined, 3, 0, 0],
    ]);
    expect(figures(await countAll(ben, { batch: BATCH }))).toEqual([
      [undefined, undefined, 3, 0, 0],
    ]);
    expect(await countAll(ben, { by: "nobody" })).toEqual([]);
  });

  test("pages of few groups add up to the same counts", async () => {
    await using service = await startBusy();
    const sums = new Map<string | undefined, number>();
    let pages = 0;
    for (let after: number | undefined = 0; after !== undefined; pages++) {
      const page = await service.ben.countChangePage({ group: ["by"], limit: 1, after });
      // None if the service, on a busy machine, had only time for changes that it leaves out.
      expect(page.counts.length).toBeLessThanOrEqual(1);
      for (const { by, created, replaced, removed } of page.counts)
        sums.set(by, (sums.get(by) ?? 0) + created + replaced + removed);
      after = page.next;
    }
    expect(pages).toBeGreaterThanOrEqual(4);
    expect([...sums]).toEqual([
      ["Anna", 5],
      ["Ben", 3],
    ]);
  });

  test("counts in intervals of time, newest first", async () => {
    await using service = await startBusy();
    const { ben, changes } = service;
    const counts = await countAll(ben, { every: "1s" });
    const expected = Map.groupBy(changes, ({ time }) => `${time.slice(0, 19)}.000Z`);
    expect(counts.map(({ start }) => start)).toEqual([...expected.keys()].toReversed());
    for (const { start = "", created, replaced, removed } of counts)
      expect(created + replaced + removed).toBe(expected.get(start)?.length as number);
  });

  test("needs the scope to read plants and known parameters", async () => {
    await using service = await startBusy();
    const blind = bearer(await grantToken(service, ["plants:write"]));
    const answer = await send(service, "GET", "/changes/counts", { headers: blind });
    await expectError(answer, "insufficient_scope");
    for (const query of [
      "group=tag",
      "group=by,by",
      "group=",
      "every=1w",
      "every=0h",
      "limit=0",
      "limit=1001",
      "order=desc",
      "id=7",
      "from=yesterday",
      "from=2026-02-31T00:00:00Z",
      "to=0",
      "from=5&to=4",
      "after=-1",
    ])
      await expectError(await send(service, "GET", `/changes/counts?${query}`), "invalid_query");
  });

  test("a service without a journal answers 410", async () => {
    await using service = await startService({ PLANTSTORE_CHANGES_DAYS: "0" });
    await expectError(await send(service, "GET", "/changes/counts"), "changes_gone");
  });
});

describe("changes of a period", () => {
  test("are those between two numbers, or between two times, in both orders", async () => {
    await using service = await startBusy();
    const { ben, changes } = service;
    const [from, to] = [changes[2], changes[5]];
    const list = async (query: object): Promise<number[]> => {
      const found: number[] = [];
      for (let after: number | undefined = 0; after !== undefined;) {
        const page = await ben.listChangePage({ ...query, after });
        found.push(...page.changes.map(({ seq }) => seq));
        after = page.hasMore ? page.last : undefined;
      }
      return found;
    };
    const numbers = changes.slice(2, 6).map(({ seq }) => seq);
    const byNumber = { from: from?.seq, to: to?.seq };
    expect(await list(byNumber)).toEqual(numbers);
    expect(await list({ ...byNumber, order: "desc" })).toEqual(numbers.toReversed());
    const byTime = { from: from?.time as string, to: to?.time as string };
    const within = changes.filter(({ time }) => time >= byTime.from && time <= byTime.to);
    expect(await list(byTime)).toEqual(within.map(({ seq }) => seq));
    expect(await list({ ...byTime, order: "desc" })).toEqual(
      within.map(({ seq }) => seq).toReversed(),
    );
    expect(await list({ from: "2200-01-01T00:00:00Z", order: "desc" })).toEqual([]);
    expect(await list({ to: "2001-01-01T00:00:00Z" })).toEqual([]);
    await expectError(await send(service, "GET", "/changes?from=9&to=8"), "invalid_query");
  });

  test("are undone by person and kind", async () => {
    await using service = await startBusy();
    const { anna, ben, changes } = service;
    const range = { from: changes[1]?.seq, to: changes[6]?.seq, by: "Anna", types: ["created"] };
    const preview = await ben.previewRevert(range as object);
    expect(preview).toMatchObject({ plants: 3, revertible: 3 });
    expect(await anna.revert(range as object)).toMatchObject({ plants: 3, reverted: 3 });
    const ids = (await Array.fromAsync(ben.list())).map(({ id }) => id);
    expect(ids).toEqual([1n, 2n]);
    for (const types of [[], ["added"], "created", ["created", "created"]]) {
      const body = JSON.stringify({ types });
      await expectError(await send(service, "POST", "/changes/revert", { body }), "invalid_body");
    }
    const kinds = JSON.stringify({ types: ["removed"], dryRun: true });
    const answer = await send(service, "POST", "/changes/revert", { body: kinds });
    expect(await answer.json()).toMatchObject({ plants: 4 });
  });
});
