/** A change of the primary, and a standby that hangs: calls take longer, and a retry settles what was refused. */

import { afterAll, describe, expect, test } from "bun:test";
import { startCallers } from "../support/callers.ts";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { expectError, expectRefusal } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { isReplay, type StoredPlant } from "../support/plants.ts";
import { HOSTNAME } from "../support/postgres-files.ts";
import { startPair } from "../support/postgres-server.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const CALLERS = 8;
const CALLS = 100;
/** Callers create plants from 1 on. */
const fern: StoredPlant = { id: -1n, name: "fern", tag: null };

const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());
const pair = opened.use(await startPair({ synchronous: true }));
const hosts = [pair.primary, pair.standby].map(({ port }) => `${HOSTNAME}:${port}`).join();

/** It knows both servers. */
const startOnBoth = (settings: Readonly<Record<string, string>> = {}): Promise<ServiceProcess> =>
  spawnService({
    DATABASE_URL: `postgres://postgres@${hosts}/postgres`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    ...settings,
  });
const short = limits({ statementSecondsMax: 1, queueSecondsMax: 2 });
const impatient = opened.use(await startOnBoth(short));

/** Calls succeed before what happens and after it, and no caller notices it. */
async function expectUnnoticed(url: string, happens: () => Promise<void>): Promise<void> {
  await using callers = startCallers(url, CALLERS);
  await until("calls succeed", () => callers.calls > CALLS);
  await happens();
  const before = callers.calls;
  await until("calls succeed after it", () => callers.calls > before + CALLS);
  await callers[Symbol.asyncDispose]();
  expect(callers.takeErrors()).toEqual([]);
}

describe("while the synchronous standby hangs", () => {
  const { url } = impatient.started;

  test("a create that may have been stored is refused as such, until its retry is a replay", async () => {
    const rows = (): Promise<unknown[]> => pair.primary.run("SELECT id, name, tag FROM plants");
    await pair.standby.pause();
    await expectError(await sendPlant(url, fern), "store_unavailable", "may have been stored");
    // The retry waits for the first attempt, which is not taken back.
    await expectRefusal(await sendPlant(url, fern), "store_down", "store_unavailable");
    expect(await rows()).toEqual([]);
    pair.standby.resume();
    await until("the plant is stored", async () => (await rows()).length > 0);
    expect(await rows()).toEqual([fern]);
    const again = await sendPlant(url, fern);
    expect([again.status, isReplay(again)]).toEqual([200, true]);
  });

  test("a removal is not answered with 404: a primary that was replaced may lack the plant", async () => {
    const remove = (): Promise<Response> => send({ url }, "DELETE", "/plants/7");
    await expectError(await remove(), "plant_not_found");
    await pair.standby.pause();
    await expectRefusal(await remove(), "store_down", "store_unavailable", "store_busy");
    pair.standby.resume();
  });

  test("callers of the client wait, and notice nothing", async () => {
    await expectUnnoticed(url, async () => {
      await pair.standby.pause();
      const refused = await sendPlant(url, { ...fern, id: -2n });
      await expectRefusal(refused, "store_unavailable", "store_down", "store_busy");
      pair.standby.resume();
    });
    expect(await pair.primary.run("SELECT id FROM plants WHERE id >= 0")).toEqual([]);
  });
});

// The last: the primary is gone then.
test("callers of the client notice nothing of a switch-over", async () => {
  await using service = await startOnBoth();
  await expectUnnoticed(service.started.url, async () => {
    await pair.primary.stop("fast");
    await pair.promote();
  });
  // Every plant was removed, and no removal that was retried is an error.
  expect(await pair.standby.run("SELECT id FROM plants WHERE id >= 0")).toEqual([]);
});
