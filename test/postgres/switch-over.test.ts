/** Programs that use @plantstore/client ride through a change of the primary: their calls take longer, and succeed. */

import { expect, test } from "bun:test";
import { Callers } from "../support/callers.ts";
import { spawnService } from "../support/command.ts";
import { HOSTNAME } from "../support/postgres-files.ts";
import { startPair } from "../support/postgres-server.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const CALLERS = 8;
const CALLS = 100;

test("callers of the client notice nothing of a switch-over", async () => {
  await using pair = await startPair({ synchronous: true });
  const hosts = [pair.primary, pair.standby].map(({ port }) => `${HOSTNAME}:${port}`).join();
  await using service = await spawnService({
    DATABASE_URL: `postgres://postgres@${hosts}/postgres`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
  });
  await using callers = new Callers(service.started.url, CALLERS);
  await until("calls succeed", () => callers.calls > CALLS);
  await pair.primary.stop("fast");
  await pair.promote();
  const before = callers.calls;
  await until("calls succeed on the new primary", () => callers.calls > before + CALLS);
  await callers[Symbol.asyncDispose]();
  expect(callers.takeErrors()).toEqual([]);
  // Every plant was removed, and no removal that was retried is an error.
  expect(await pair.standby.run("SELECT id FROM plants")).toEqual([]);
});
