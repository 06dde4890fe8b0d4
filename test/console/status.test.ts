/** What a page says of the import of another tab, without a page. */

import { afterAll, expect, jest, test } from "bun:test";
import { elsewhere } from "../../console/import/status.ts";
import { keyOf } from "../../console/state/storage.ts";
import { toasts } from "../../console/state/toasts.ts";
import { startPage } from "./page.ts";

startPage("https://status.example/");
jest.useFakeTimers();

const channel = new BroadcastChannel(keyOf("session"));
afterAll(() => {
  jest.useRealTimers();
  channel.close();
});
const status = { by: undefined, file: "stock.csv", done: 0.5, outcome: undefined };

test("an import in a tab that is silent for a minute is not said to have stopped", async () => {
  const shown = Promise.withResolvers<void>();
  const stop = elsewhere.subscribe((value) => value?.file === "stock.csv" && shown.resolve());
  channel.postMessage(status);
  await shown.promise;
  stop();
  jest.advanceTimersByTime(59_000);
  expect(elsewhere.value).toBeDefined();
  jest.advanceTimersByTime(1_000);
  expect(elsewhere.value).toBeUndefined();
  expect(toasts.value.map(({ text }) => text)).toEqual([
    "No news of the import of stock.csv for a minute. Its tab may be asleep or have crashed.",
  ]);
});

test("an import that sends news again is shown again, and its end is said once", async () => {
  toasts.value = [];
  const ended = Promise.withResolvers<void>();
  const stop = toasts.subscribe((all) => all.length > 0 && ended.resolve());
  channel.postMessage(status);
  channel.postMessage({ ...status, outcome: "The import of stock.csv is complete." });
  await ended.promise;
  stop();
  jest.advanceTimersByTime(120_000);
  expect(elsewhere.value).toBeUndefined();
  expect(toasts.value).toHaveLength(1);
});
