/** What others do while the page is open, with real services, without a page. */

import { expect, test } from "bun:test";
import { findNamesake } from "../../console/api/plants.ts";
import { untilFollowing } from "../../console/state/feed.ts";
import { list } from "../../console/state/plants.ts";
import { route } from "../../console/state/route.ts";
import { endSession } from "../../console/state/session.ts";
import { act, toasts } from "../../console/state/toasts.ts";
import { until } from "../support/until.ts";
import { setHidden, startPage } from "./page.ts";
import { signIn, startShared } from "./service.ts";

const plant = (id: number, name: string) => ({ id: BigInt(id), name, tag: undefined });
const listNames = (): string[] => list.value.plants.map(({ name }) => name);

// The backup is older than what the page has seen.
const restored = await startShared();
await restored.store.createPlants([plant(1, "Rosa"), plant(2, "Before")]);
const service = await startShared();
await service.store.createPlants([plant(1, "Rosa"), plant(2, "Before")]);

startPage(`${service.url}/`);
signIn();
await untilFollowing();

const write = (id: number, name: string, batch?: string): Promise<unknown> =>
  service.store.writePlants(
    [{ kind: "upsert", id: BigInt(id), plant: plant(id, name), condition: {} }],
    { token: "Bernd", batch },
  );

test("what somebody else undoes is listed as it is now, and said with the way to it", async () => {
  await write(2, "Cheap", "Sale");
  await until("the change is listed", () => listNames().includes("Cheap"));
  await write(2, "Before", "Undo: Sale");
  await until("the undo is said", () => toasts.value.length > 0);
  expect(listNames()).toEqual(["Rosa", "Before"]);
  const [said] = toasts.value;
  expect(said?.text).toBe("Bernd undid “Sale”.");
  if (said !== undefined) act(said);
  expect(route.value.changes.batch).toBe("Undo: Sale");
});

test("a name that another plant has is found as it is typed, in any case, and no longer one", async () => {
  const find = (name: string) => findNamesake(name, new AbortController().signal);
  expect((await find(" rosA "))?.id).toBe(1n);
  expect(await find("Ros")).toBeUndefined();
  expect(await find("Rosa alba")).toBeUndefined();
});

test("a store that was restored is listed as it is now, and said, though nothing in it has changed since", async () => {
  await write(3, "Lost");
  await until("the change is listed", () => listNames().includes("Lost"));
  setHidden(true);
  setHidden(false, `${restored.url}/`);
  await until("the list is that of the backup", () => listNames().join() === "Rosa,Before");
  await until("it is said", () =>
    toasts.value.some(({ text }) => text.startsWith("Changes were missed: the store was restored")),
  );
});

test("a person who signs out and in again, by the same token, has the list again", async () => {
  endSession("left");
  await restored.store.createPlants([plant(4, "Meanwhile")]);
  signIn();
  await until("it is read again", () => listNames().join() === "Rosa,Before,Meanwhile");
});
