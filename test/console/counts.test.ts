/** The number of plants that a page shows, with a real service some of whose counts the test answers. */

import { afterAll, expect, test } from "bun:test";
import { list, total } from "../../console/state/plants.ts";
import { follow } from "../../console/state/route.ts";
import { until } from "../support/until.ts";
import { startPage } from "./page.ts";
import { signIn, startShared } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);

/** As in plants.ts. */
const COUNT_MS = 5_000;
/** What the service answers to the next counts; after them it counts by itself. */
const answers: (() => Response | Promise<Response>)[] = [];
const recounts: (() => void)[] = [];
const { fetch: send, setTimeout: wait } = globalThis;

Object.assign(globalThis, {
  fetch: (url: string, init: RequestInit) =>
    (/\/plants\/count/.test(url) ? answers.shift() : undefined)?.() ?? send(url, init),
  setTimeout: (run: () => void, ms: number) =>
    ms === COUNT_MS ? recounts.push(run) : wait(run, ms),
});
afterAll(() => void Object.assign(globalThis, { fetch: send, setTimeout: wait }));

test("a count that failed is repeated", async () => {
  await service.store.createPlants([{ id: 1n, name: "Rose", tag: undefined }]);
  answers.push(() => new Response("{}", { status: 503 }));
  signIn();
  await until("it is to be repeated", () => recounts.length > 0);
  expect(total.value).toBeUndefined();
  recounts.shift()?.();
  await until("it is known", () => total.value !== undefined);
  expect(total.value).toEqual({ count: 1, exact: true });
});

test("a count is continued until it is exact, and the number does not get smaller meanwhile", async () => {
  const toAnswer = (count: number, after?: number) => (): Response =>
    Response.json(
      { count, exact: after === undefined },
      { headers: after ? { link: `</plants/count?q=x&after=${after}>; rel="next"` } : {} },
    );
  answers.push(toAnswer(900, 100), toAnswer(5, 200), toAnswer(6));
  follow("#/plants?q=x");
  const { count } = list.value;
  const shown: unknown[] = [];
  const stop = count.subscribe((value) => shown.push(value));
  await until("it is exact", () => count.value?.exact === true);
  stop();
  expect(shown).toEqual([
    undefined,
    { count: 900, exact: false },
    { count: 905, exact: false },
    { count: 911, exact: true },
  ]);
});
