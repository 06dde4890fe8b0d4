/** A wall clock that is wrong, and is set while the service runs and between two runs. */

import { describe, expect, test } from "bun:test";
import { spawnService } from "../support/command.ts";
import { ClockShim } from "../support/clock-shim.ts";
import { openTestDatabase, openTestDatabaseWith } from "../support/database.ts";
import { lackOfShim } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import { startReceiver } from "../support/receiver.ts";
import { getText, readMetric, send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite", "postgres", "serializable"];

const YEAR = 31_557_600;
const DAY = 86_400;

const lack = lackOfShim();
if (lack !== undefined) process.stderr.write(`A wrong clock is not tested: ${lack}.\n`);

const settings = {
  PLANTSTORE_TOKEN: TEST_TOKEN,
  PLANTSTORE_WEBHOOKS_PRIVATE: "true",
  PLANTSTORE_LOG_LEVEL: "warn",
};
const quick = { trimSeconds: 0.02, markSeconds: 0.02, webhookPollMs: 5 };

interface Entry {
  readonly seq: number;
  readonly id: number;
  readonly time: string;
}

/** A database, and for an engine that has one its server, unless that has the right time. */
async function openPlace({ isServerToo = true } = {}) {
  await using opened = new AsyncDisposableStack();
  const clock = opened.use(new ClockShim());
  const opening = isServerToo ? openTestDatabaseWith(clock.environment) : openTestDatabase();
  const database = opened.use(await opening);
  const stack = opened.move();
  return {
    clock,
    env: { ...settings, ...clock.environment, DATABASE_URL: database.url },
    /** Intervals that a service has counted: it trims after each. */
    readMark: database.readMark,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

type Place = Awaited<ReturnType<typeof openPlace>>;

const create = async (url: string, id: number): Promise<void> =>
  expect((await sendPlant(url, { id: BigInt(id), name: "Fern", tag: null })).status).toBe(200);

const readChanges = async (url: string, after = 0): Promise<Entry[]> =>
  JSON.parse(await getText({ url }, `/changes?limit=1000&after=${after}`)) as Entry[];

async function untilTrimmed({ readMark }: Place): Promise<void> {
  const start = await readMark();
  await until("the journal was trimmed", async () => (await readMark()) > start + 2);
}

const expectAscending = (numbers: readonly number[]): void =>
  expect(numbers).toEqual([...new Set(numbers)].toSorted((one, other) => one - other));

describe.skipIf(lack !== undefined)("a clock that is set", () => {
  test("ahead by years and back, while serving and across a restart, removes no change", async () => {
    await using place = await openPlace();
    using receiver = startReceiver();
    const wait = limits({ ...quick, webhookRetrySeconds: [600] });
    const ids = Array.from({ length: 21 }, (_, index) => index + 1);
    {
      await using service = await spawnService({ ...place.env, ...wait });
      const { url } = service.started;
      receiver.answers = [new Response(null, { status: 500 })];
      const body = JSON.stringify({ url: receiver.url, name: "shop" });
      expect((await send({ url }, "POST", "/webhooks", { body })).status).toBe(201);
      for (const id of ids) await create(url, id);
      await receiver.until(1);
      for (const years of [5, -20]) {
        place.clock.set(years * YEAR);
        await untilTrimmed(place);
        expect((await readChanges(url)).map(({ id }) => id)).toEqual(ids);
      }
      // Undo works on what was made before.
      const range = JSON.stringify({ from: (await readChanges(url))[0]?.seq, dryRun: true });
      const preview = await send({ url }, "POST", "/changes/revert", { body: range });
      expect(await preview.json()).toMatchObject({ plants: 21, revertible: 21 });
      service.kill("SIGTERM");
      expect(await service.exited).toBe(0);
    }
    place.clock.set(40 * YEAR);
    await using service = await spawnService({ ...place.env, ...limits(quick) });
    const { url } = service.started;
    await untilTrimmed(place);
    expect((await readChanges(url)).map(({ id }) => id)).toEqual(ids);
    await receiver.until(1 + ids.length);
    const sent = receiver.received.slice(1).map(({ body }) => JSON.parse(body) as { data: Entry });
    expect(sent.map(({ data }) => data.id)).toEqual(ids);
  });

  test("to any year gives ascending numbers that every client can read", async () => {
    await using place = await openPlace();
    place.clock.set(7_900 * YEAR);
    const seqs: number[] = [];
    let id = 0;
    for (const years of [
      [0, 7_900, 0, 274],
      [-20, 7_950],
    ]) {
      await using service = await spawnService({ ...place.env, ...limits(quick) });
      const { url } = service.started;
      for (const ahead of years) {
        place.clock.set(ahead * YEAR);
        await create(url, ++id);
        const changes = await readChanges(url);
        expect(changes).toHaveLength(id);
        for (const [index, { seq }] of changes.entries()) {
          expect(Number.isSafeInteger(seq)).toBe(true);
          // Reads on from each, also from those that the clock has not reached yet.
          expect(await readChanges(url, seq)).toEqual(changes.slice(index + 1));
        }
        const last = changes.at(-1) as Entry;
        seqs.push(last.seq);
        expectAscending(seqs);
        // By its time, which may be in the future.
        place.clock.set(-YEAR);
        const body = JSON.stringify({ from: last.time, dryRun: true });
        const preview = await send({ url }, "POST", "/changes/revert", { body });
        const plants = changes.filter(({ time }) => time >= last.time).length;
        expect([preview.status, await preview.json()]).toMatchObject([200, { plants }]);
      }
    }
  });

  test.each([
    ["ahead", DAY, "1"],
    ["back", -DAY, "1"],
    ["ahead", DAY, "2"],
    ["back", -DAY, "2"],
  ])(
    "%s while the service starts its threads refuses nothing (%d s, --workers %s)",
    async (_, seconds, workers) => {
      await using place = await openPlace({ isServerToo: false });
      place.clock.set(0, seconds);
      const rates = { PLANTSTORE_WORKERS: workers, PLANTSTORE_RATE_LIMIT: "1000/h" };
      await using service = await spawnService({ ...place.env, ...rates, ...limits({}) });
      // Each on a connection of its own, so every thread gets some.
      const headers = { connection: "close" };
      for (let id = 1; id <= 40; id++) {
        const body = `{"id":${id},"name":"Fern"}`;
        const { status } = await send(service.started, "POST", "/plants", { body, headers });
        expect([id, status]).toEqual([id, 200]);
      }
    },
  );

  test("back by a day delays no retry of a webhook by a day, here or after a restart", async () => {
    await using place = await openPlace();
    using receiver = startReceiver();
    const retry = limits({ ...quick, webhookRetrySeconds: [0.5, 0.5] });
    receiver.answers = [1, 2].map(() => new Response(null, { status: 500 }));
    {
      await using service = await spawnService({ ...place.env, ...retry });
      const { url } = service.started;
      const body = JSON.stringify({ url: receiver.url, name: "shop" });
      expect((await send({ url }, "POST", "/webhooks", { body })).status).toBe(201);
      await create(url, 1);
      await receiver.until(1);
      place.clock.set(-DAY);
      await receiver.until(2);
      service.kill("SIGTERM");
      await service.exited;
    }
    place.clock.set(-2 * DAY);
    await using service = await spawnService({ ...place.env, ...retry });
    await receiver.until(3);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(1);
    // Ahead by a year, what waits is not a year old.
    receiver.answers = [new Response(null, { status: 500, headers: { "retry-after": "3600" } })];
    await create(service.started.url, 2);
    await receiver.until(4);
    place.clock.set(YEAR);
    const lag = await readMetric(service.started, 'plantstore_webhook_lag_seconds{webhook="shop"}');
    expect(lag).toBeWithin(0, DAY);
  });
});
