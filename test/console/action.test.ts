/** Bulk actions and undos as jobs of a real service, without a page. */

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { Client } from "../../client/client.ts";
import { isUnsent, startAction, work } from "../../console/state/action.ts";
import { list } from "../../console/state/plants.ts";
import { follow } from "../../console/state/route.ts";
import {
  asked,
  askAboutSelected,
  select,
  selectAll,
  startAsked,
} from "../../console/state/selection.ts";
import { endSession, switchSession } from "../../console/state/session.ts";
import { keep, recall } from "../../console/state/storage.ts";
import { toasts } from "../../console/state/toasts.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { until } from "../support/until.ts";
import { startPage } from "./page.ts";
import { signIn, startShared, TEST_TOKEN } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);

const plantOf = (id: number, end = "") => ({
  id: BigInt(id),
  name: `Rose ${id}${end}`,
  tag: undefined,
});
const { store } = service;
const findTag = async (id: number): Promise<string | null | undefined> =>
  (await service.findPlant(BigInt(id)))?.tag;
const toWrite = (plant: Plant) => ({ kind: "upsert", id: plant.id, plant, condition: {} });
const write = (plant: Plant): Promise<unknown> => store.writePlants([toWrite(plant)]);

let from = 0;
/** Plants of its own for each test. */
async function sow(count: number, end = ""): Promise<readonly Plant[]> {
  from += 10_000;
  const plants = Array.from({ length: count }, (_, at) => plantOf(from + at, end));
  await store.createPlants(plants);
  return plants;
}

const untilSaid = async (text: string): Promise<void> => {
  await until(`“${text}” is said`, () => toasts.value.some((toast) => toast.text.includes(text)));
  expect(work.value).toBeUndefined();
};

/** The next group of writes waits until it is released. */
function holdWrites(): { readonly begun: Promise<void>; readonly release: () => void } {
  const writePlants = store.writePlants.bind(store);
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  store.writePlants = async (...given) => {
    begun.resolve();
    await gate.promise;
    return writePlants(...given);
  };
  const release = (): void => {
    store.writePlants = writePlants;
    gate.resolve();
  };
  return { begun: begun.promise, release };
}

beforeEach(() => signIn());
afterEach(() => endSession("left"));

describe("an action on named plants", () => {
  test("leaves alone what others changed since it was asked about, says why, and keeps it selected", async () => {
    const plants = await sow(3);
    const [first, second, third] = plants.map(({ id }) => Number(id)) as [number, number, number];
    list.value.selection.value = { isAll: false, ids: new Set(plants.map(({ id }) => id)) };
    await write({ ...plantOf(second), name: "Theirs" });
    startAction({ kind: "tag", tag: "mine" }, { plants }, 3);
    await untilSaid("Changed 2 plants. 1 skipped.");
    expect(toasts.value[0]?.text).toContain("Someone else changed it.");
    expect([...list.value.selection.value.ids]).toEqual([BigInt(second)]);
    expect(await Promise.all([first, second, third].map(findTag))).toEqual(["mine", null, "mine"]);
  });

  test("does not touch a selection that was made while it ran", async () => {
    const plants = await sow(2);
    const held = holdWrites();
    startAction({ kind: "delete" }, { plants }, 2);
    await held.begun;
    const since = { isAll: false, ids: new Set([7n]) };
    list.value.selection.value = since;
    held.release();
    await untilSaid("Deleted 2 plants.");
    expect(list.value.selection.value).toBe(since);
  });

  test("is as many jobs as its plants need, one after the other, and one undo", async () => {
    const plants = await sow(1_300, "x".repeat(900));
    startAction({ kind: "tag", tag: "many" }, { plants }, plants.length);
    await untilSaid("Changed 1,300 plants.");
    expect((await store.countPlants({ tag: "many" })).count).toBe(1_300);
    const jobs = await store.listJobs();
    const { name = "" } = jobs.find((job) => job.name.startsWith("Tag 1,300 plants")) ?? {};
    startAction({ kind: "undo", range: { batch: name } }, { plants: [] }, 1_300, `Undo: ${name}`);
    await untilSaid("Undone: 1,300 plants.");
    expect((await store.countPlants({ tag: "many" })).count).toBe(0);
  });
});

describe("an action on all that match", () => {
  test("deletes none that is excepted, though they are too many for a URL", async () => {
    const plants = await sow(1_500);
    await store.writePlants(plants.map((plant) => toWrite({ ...plant, tag: "old" })));
    const kept = plants.slice(0, 1_400).map(({ id }) => String(id));
    const matching = {
      filter: { tag: "old", order: "asc" } as const,
      except: kept,
      excepted: kept.length,
    };
    startAction({ kind: "delete" }, { plants: [], matching }, 100);
    await untilSaid("Deleted 100 plants.");
    expect((await store.countPlants({ tag: "old" })).count).toBe(1_400);
  });
});

describe("an action that runs", () => {
  test("is stopped by the service, and says how far it got", async () => {
    const plants = await sow(2_000);
    const held = holdWrites();
    startAction({ kind: "delete" }, { plants }, 2_000);
    // It has not reached the service yet.
    expect(isUnsent()).toBe(true);
    await held.begun;
    await until("the page knows of the job", () => !isUnsent());
    expect(work.value?.note).toBe("It continues if you close the page.");
    work.value?.stop();
    await until("the job is stopping", async () =>
      (await store.listJobs()).some(({ state }) => state === "stopping"),
    );
    held.release();
    await untilSaid("Stopped.");
    const last = plants.at(-1)?.id ?? 0n;
    expect(await service.findPlant(last)).toBeDefined();
  });

  test("is followed after a reload, and what was not sent is sent", async () => {
    const plants = await sow(3);
    const kept = {
      task: { kind: "tag", tag: "again" },
      batch: "Tag 3 plants as again",
      total: 3,
      changed: 0,
      plants: plants.map(({ id, name }) => [String(id), name, null]),
    };
    const reload = (): void => {
      endSession("left");
      keep("sessionStorage", "job", kept);
      signIn();
    };
    reload();
    await untilSaid("Changed 3 plants.");
    expect(await findTag(Number(plants[0]?.id))).toBe("again");
    expect(recall("sessionStorage", "job")).toBeUndefined();
    // The last page did not hear of its end.
    reload();
    await untilSaid("Changed 3 plants.");
  });

  test("waits while the service runs as many jobs as it may, says so, and can be stopped", async () => {
    const [first, ...others] = (await sow(5)) as [Plant, ...Plant[]];
    const held = holdWrites();
    const client = new Client(`${service.url}/`, TEST_TOKEN);
    const jobs = others.map((plant) =>
      client.upsertByJob([{ ...plant, tag: "long" }], { batch: `long ${plant.id}` }),
    );
    await until("all places are taken", async () => {
      const running = (await store.listJobs()).filter(({ state }) => state === "running");
      return running.length === others.length;
    });
    const untilWaiting = (): Promise<void> =>
      until("it waits", () => work.value?.text.startsWith("Waiting for other actions") === true);
    startAction({ kind: "tag", tag: "given up" }, { plants: [first] }, 1);
    await untilWaiting();
    expect(isUnsent()).toBe(true);
    work.value?.stop();
    await untilSaid("Stopped.");
    startAction({ kind: "tag", tag: "short" }, { plants: [first] }, 1);
    await untilWaiting();
    held.release();
    await untilSaid("Changed 1 plant.");
    expect(await findTag(Number(first.id))).toBe("short");
    await Promise.all(jobs);
  });

  test("ends with its person: the next one hears nothing of it", async () => {
    const plants = await sow(2);
    const held = holdWrites();
    startAction({ kind: "delete" }, { plants }, 2);
    await held.begun;
    endSession("left");
    signIn("Bernd");
    held.release();
    await until("the service has finished", async () =>
      (await store.listJobs()).every(({ state }) => state === "ended"),
    );
    expect(work.value).toBeUndefined();
    expect(toasts.value).toEqual([]);
    expect(await service.findPlant(plants[0]?.id ?? 0n)).toBeUndefined();
  });
});

test("an undo skips what was changed since", async () => {
  const plants = await sow(2);
  startAction({ kind: "delete" }, { plants }, 2, "Delete 2 plants today");
  await untilSaid("Deleted 2 plants.");
  const [one] = plants;
  await write({ id: one?.id ?? 0n, name: "Another", tag: undefined });
  const range = { batch: "Delete 2 plants today" };
  startAction({ kind: "undo", range }, { plants: [] }, 1, "Undo: Delete 2 plants today");
  await untilSaid("Undone: 1 plant. 1 skipped.");
});

describe("a question about all that match", () => {
  const tasks = {
    delete: { kind: "delete" },
    tag: { kind: "tag", tag: "new" },
    untag: { kind: "tag" },
  } as const;
  const endings = {
    "the page shows another list": () => follow("#/plants?q=other"),
    "the page shows another view": () => follow("#/changes"),
    "one more plant is excepted": () => select(0, false),
    "its person signs out": () => endSession("left"),
    "somebody else signs in": () =>
      switchSession({ token: TEST_TOKEN, identity: { name: "Bernd", scopes: [] } }, false),
  } as const;

  for (const [name, task] of Object.entries(tasks))
    for (const [why, end] of Object.entries(endings))
      test(`ends when ${why}, and nothing is done: ${name}`, async () => {
        await sow(101);
        follow(`#/plants?q=${from.toString().slice(0, -4)}&order=desc`);
        await list.value.loadMore();
        selectAll(true);
        askAboutSelected(task);
        await until("it has its number", () => (asked.value?.found.value ?? 0) >= 101);
        const question = asked.value;
        end();
        expect(asked.value).toBeUndefined();
        // Its late answer is that of no question.
        if (question !== undefined) startAsked(question);
        expect(work.value).toBeUndefined();
        expect((await store.countPlants({ q: `Rose ${from}` })).count).toBe(1);
      });
});
