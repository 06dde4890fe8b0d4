/** The plant of an open panel, with a real service, without a page: what others do to it, and what becomes of an edit. */

import { beforeEach, expect, test } from "bun:test";
import { OpenPlant } from "../../console/state/plant.ts";
import { openPlant, route } from "../../console/state/route.ts";
import { findDraft, keepDraft } from "../../console/state/storage.ts";
import { toasts } from "../../console/state/toasts.ts";
import { until } from "../support/until.ts";
import { startPage } from "./page.ts";
import { signIn, startShared } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);
signIn();

const write = (id: bigint, name: string): Promise<unknown> =>
  service.store.writePlants(
    [{ kind: "upsert", id, plant: { id, name, tag: undefined }, condition: {} }],
    { token: "Bernd" },
  );

let last = 0n;
/** A plant of its own for each test, as its panel has read it. */
async function open() {
  const id = ++last;
  await write(id, "Rosa");
  openPlant(id);
  const plant = new OpenPlant(id);
  const read = async (name: string): Promise<void> => {
    plant.read(false);
    await until(`${name} is read`, () => plant.versioned?.plant.name === name);
  };
  await read("Rosa");
  const edit = (name: string) => {
    plant.edit(plant.versioned ?? expect.unreachable());
    keepDraft(id, { ...(findDraft(id) ?? expect.unreachable()), name });
    return { id, name, tag: undefined };
  };
  return { id, plant, read, edit, etag: () => plant.versioned?.etag ?? "" };
}

beforeEach(() => void (toasts.value = []));
const listToasts = () => toasts.value.map(({ text }) => text);

test("an edit that somebody overtook is behind, and insists only if its person does", async () => {
  const { id, plant, read, edit, etag } = await open();
  const mine = edit("Mine");
  const before = etag();
  await write(id, "Theirs");
  await plant.save(mine, before);
  expect(plant.isBehind).toBe(true);
  await until("the other person is known", () => plant.rival.value.who === "Bernd");
  expect(findDraft(id)?.name).toBe("Mine");
  await read("Theirs");
  await plant.save(mine, etag());
  expect(plant.versioned?.plant.name).toBe("Mine");
  expect(findDraft(id)).toBeUndefined();
  expect(listToasts()).toEqual(["Changed “Mine”."]);
});

test("an edit in which nothing was typed follows what others change", async () => {
  const { id, plant, read, edit } = await open();
  edit("Rosa");
  await write(id, "Theirs");
  await read("Theirs");
  expect(plant.isBehind).toBe(false);
  expect(findDraft(id)?.name).toBe("Theirs");
});

test("a deleted plant keeps the edit, which can add it again", async () => {
  const { id, plant, edit } = await open();
  const mine = edit("Mine");
  await service.store.writePlants([{ kind: "remove", id, condition: {} }]);
  plant.read(true);
  expect(plant.loaded.value).toBe("missing");
  expect(plant.isBehind).toBe(true);
  await plant.addAgain(mine);
  expect(plant.versioned?.plant.name).toBe("Mine");
  expect(findDraft(id)).toBeUndefined();
});

test("a plant that was changed since it was shown is not deleted; otherwise its panel closes", async () => {
  const { id, plant } = await open();
  const shown = plant.versioned ?? expect.unreachable();
  await write(id, "Theirs");
  await plant.remove(shown, () => openPlant(undefined));
  expect(route.value.open).toBe(id);
  expect(listToasts()[0]).toContain("Bernd changed it. It isn't deleted yet.");
  await plant.remove(plant.versioned ?? expect.unreachable(), () => openPlant(undefined));
  expect(route.value.open).toBeUndefined();
  expect(await service.findPlant(id)).toBeUndefined();
});

test("a panel that closes with an edit leads back to it, and forgets one without a change", async () => {
  const { id, plant, edit } = await open();
  edit("Rosa");
  plant.leave();
  expect(findDraft(id)).toBeUndefined();
  expect(listToasts()).toEqual([]);
  edit("Mine");
  plant.leave();
  expect(findDraft(id)?.name).toBe("Mine");
  expect(listToasts()[0]).toContain("“Rosa”");
});

test("one submission is in flight at a time", async () => {
  const { id, plant, edit, etag } = await open();
  const saving = plant.save(edit("First"), etag());
  await plant.save({ id, name: "Second", tag: undefined }, etag());
  await saving;
  expect(plant.versioned?.plant.name).toBe("First");
});
