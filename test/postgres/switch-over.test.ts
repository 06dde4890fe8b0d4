/** A change of the primary, and a standby that hangs: calls take longer, and a retry settles what was refused. */

import { describe, expect, test } from "bun:test";
import { Callers } from "../support/callers.ts";
import { spawnService } from "../support/command.ts";
import { expectError, expectRefusal } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { isReplay, type StoredPlant } from "../support/plants.ts";
import { HOSTNAME } from "../support/postgres-files.ts";
import { startPair } from "../support/postgres-server.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const CALLERS = 8;
const CALLS = 100;
/** No caller writes to it. */
const fern: StoredPlant = { id: -1n, name: "fern", tag: null };

/** A synchronous pair, and a service that knows both. */
async function startBoth(settings: Readonly<Record<string, string>> = {}) {
  await using started = new AsyncDisposableStack();
  const pair = started.use(await startPair({ synchronous: true }));
  const hosts = [pair.primary, pair.standby].map(({ port }) => `${HOSTNAME}:${port}`).join();
  const DATABASE_URL = `postgres://postgres@${hosts}/postgres`;
  const env = { DATABASE_URL, PLANTSTORE_TOKEN: TEST_TOKEN, ...settings };
  const service = started.use(await spawnService(env));
  const stack = started.move();
  return {
    ...pair,
    url: service.started.url,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Calls succeed before what happens and after it, and no caller notices it. */
async function expectUnnoticed(url: string, happens: () => Promise<void>): Promise<void> {
  await using callers = new Callers(url, CALLERS);
  await until("calls succeed", () => callers.calls > CALLS);
  await happens();
  const before = callers.calls;
  await until("calls succeed after it", () => callers.calls > before + CALLS);
  await callers[Symbol.asyncDispose]();
  expect(callers.takeErrors()).toEqual([]);
}

test("callers of the client notice nothing of a switch-over", async () => {
  await using pair = await startBoth();
  await expectUnnoticed(pair.url, async () => {
    await pair.primary.stop("fast");
    await pair.promote();
  });
  // Every plant was removed, and no removal that was retried is an error.
  expect(await pair.standby.run("SELECT id FROM plants")).toEqual([]);
});

describe("while the synchronous standby hangs", () => {
  const short = limits({ statementSecondsMax: 1, queueSecondsMax: 2 });

  test("a refused create says that it may be stored; it is stored later, and the retry is a replay", async () => {
    await using pair = await startBoth(short);
    const { url } = pair;
    const rows = (): Promise<unknown[]> => pair.primary.run("SELECT id, name, tag FROM plants");
    await pair.standby.pause();
    await expectError(await sendPlant(url, fern), "store_unavailable", "may have been stored");
    // The retry waits for the first attempt, which is not taken back.
    await expectRefusal(await sendPlant(url, fern), "store_unavailable");
    expect(await rows()).toEqual([]);
    pair.standby.resume();
    await until("the plant is stored", async () => (await rows()).length > 0);
    expect(await rows()).toEqual([fern]);
    const again = await sendPlant(url, fern);
    expect(again.status).toBe(200);
    expect(isReplay(again)).toBe(true);
  });

  test("a removal is not answered with 404: a primary that was replaced may lack the plant", async () => {
    await using pair = await startBoth(short);
    const { url } = pair;
    const remove = (): Promise<Response> =>
      fetch(`${url}/plants/7`, {
        method: "DELETE",
        headers: { authorization: `Bearer ${TEST_TOKEN}` },
      });
    await expectError(await remove(), "plant_not_found");
    await pair.standby.pause();
    await expectRefusal(await remove(), "store_unavailable", "store_busy");
    pair.standby.resume();
  });

  test("callers of the client wait, and notice nothing", async () => {
    await using pair = await startBoth(short);
    const { url } = pair;
    await expectUnnoticed(url, async () => {
      await pair.standby.pause();
      await expectRefusal(await sendPlant(url, fern), "store_unavailable", "store_busy");
      pair.standby.resume();
    });
    expect(await pair.primary.run("SELECT id FROM plants WHERE id >= 0")).toEqual([]);
  });
});
