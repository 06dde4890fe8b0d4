/** The undo of single changes, and saves that wait for the connection, with a real service, without a page. */

import { beforeEach, expect, test } from "bun:test";
import { findPlant } from "../../console/api/plants.ts";
import { recoveries } from "../../console/api/service.ts";
import { saveEdit } from "../../console/state/plant.ts";
import { addWithUndo, removeWithUndo } from "../../console/state/plants.ts";
import { openPlant, route } from "../../console/state/route.ts";
import { saveLater, waiting } from "../../console/state/saving.ts";
import { beginSession } from "../../console/state/session.ts";
import { act, toasts } from "../../console/state/toasts.ts";
import { until } from "../support/until.ts";
import { startPage } from "./page.ts";
import { startShared, TEST_TOKEN } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);
const identity = { name: "Anna", scopes: ["plants:read", "plants:write"] };
beginSession({ token: TEST_TOKEN, identity }, false);
beforeEach(() => void (toasts.value = []));

let last = 0n;
const newPlant = (name = "Rosa") => ({ id: ++last, name, tag: undefined });
const getPlant = async (id: bigint) => (await findPlant(id)) ?? expect.unreachable();

/** What the page says next, once the action of the toast before has run. */
async function undo(): Promise<string> {
  const [toast] = toasts.value;
  toasts.value = [];
  act(toast ?? expect.unreachable());
  await until("the undo is said", () => toasts.value.length > 0);
  return toasts.value[0]?.text ?? "";
}

test("plants that were added one after the other have one undo, from the last to the first", async () => {
  const plants = [newPlant("One"), newPlant("Two")];
  for (const plant of plants) await addWithUndo(plant);
  expect(toasts.value.map(({ text }) => text)).toEqual(["Added 2 plants."]);
  openPlant(plants[1]?.id);
  await undo();
  await until("both are gone", () => toasts.value[0]?.text === "Deleted 2 plants.");
  expect(route.value.open).toBeUndefined();
  // Which can be undone as well.
  await undo();
  await until("both are back", () => toasts.value[0]?.text === "Restored 2 plants.");
  expect((await getPlant(plants[0]?.id ?? 0n)).plant.name).toBe("One");
});

test("a deleted plant is not restored over another that has its id since", async () => {
  const plant = newPlant();
  await addWithUndo(plant);
  await removeWithUndo(await getPlant(plant.id));
  await service.store.createPlants([{ ...plant, name: "Another" }]);
  toasts.value = toasts.value.filter(({ text }) => text.startsWith("Deleted"));
  expect(await undo()).toBe(`Not restored: another plant now has id ${plant.id}.`);
  expect((await getPlant(plant.id)).plant.name).toBe("Another");
});

test("an added plant that somebody has changed since is not taken back", async () => {
  const plant = newPlant();
  await addWithUndo(plant);
  const theirs = { ...plant, name: "Theirs" };
  const write = { kind: "upsert", id: plant.id, plant: theirs, condition: {} };
  await service.store.writePlants([write], { token: "Bernd" });
  expect(await undo()).toContain("Bernd changed");
  // A second attempt would be refused in the same way.
  expect(toasts.value[0]?.action).toBeUndefined();
  expect((await getPlant(plant.id)).plant.name).toBe("Theirs");
});

test("a change is changed back, and that too, unless somebody changed the plant meanwhile", async () => {
  const plant = newPlant("Before");
  await addWithUndo(plant);
  toasts.value = [];
  const { etag } = await getPlant(plant.id);
  await saveEdit(plant, { ...plant, name: "After" }, etag, "changed");
  expect(await undo()).toBe("Changed “Before” back.");
  expect(await undo()).toBe("Changed “After”.");
  const write = { kind: "remove", id: plant.id, condition: {} };
  await service.store.writePlants([write], { token: "Bernd" });
  expect(await undo()).toContain("Bernd deleted");
});

test("a save that waits is sent once when the connection is back, and says why if it is refused", async () => {
  const plant = newPlant();
  let sent = 0;
  saveLater(plant.id, {
    plant,
    send: async () => {
      sent++;
      throw new Error("refused");
    },
  });
  recoveries.value++;
  await until("it is said", () => toasts.value.length > 0);
  recoveries.value++;
  expect([sent, waiting.value.size]).toEqual([1, 0]);
  expect(toasts.value[0]?.text).toContain("Rosa");
});
