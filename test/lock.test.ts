/**
 * A file that another process has locked: writes wait in the queue, which has room for so many and no more.
 *
 * For SQLite alone: there a commit that finds the file locked goes back into the queue. PostgreSQL itself waits for a
 * lock, so a commit that waits has left the queue, and how many writes are accepted is not exact.
 */

import { describe, expect, test } from "bun:test";
import { expectAlive, expectRefusal } from "./support/expect.ts";
import { makePlants, readRefusal, type StoredPlant, toBody } from "./support/plants.ts";
import { startService, type TestService } from "./support/service.ts";
import { limits } from "./support/limits.ts";

/** If it took in more, they would be late soon enough for the test to tell. */
const queueOf = (room: number): Record<string, string> => ({
  ...limits({ queueLengthMax: room, queueSecondsMax: 2 }),
});

describe("POST /plants, while the file is locked", () => {
  test("a create waits, and succeeds when the lock is released in time", async () => {
    const monstera = { id: 1n, name: "Monstera", tag: "tropical" };
    const ficus = { id: 2n, name: "Ficus", tag: null };
    // Room for one: as soon as one of the two is refused, it is certain that the other waits.
    await using service = await startService({ ...limits({ queueLengthMax: 1 }) });
    await using held = await service.database.holdWrites();
    const both = [monstera, ficus].map(async (plant) => ({
      plant,
      response: await service.create(toBody(plant)),
    }));
    const refused = await Promise.race(both);
    await expectRefusal(refused.response, "overloaded");
    await expectAlive(service.url, Promise.resolve());
    expect(await service.readPlants()).toEqual([]);

    await held.release();
    const accepted = (await Promise.all(both)).filter(({ plant }) => plant !== refused.plant);
    expect(accepted.map(({ response }) => response.status)).toEqual([200]);
    expect(await service.readPlants()).toEqual(accepted.map(({ plant }) => plant));
  });

  test("a full queue answers 503 overloaded at once and stores nothing of what it refused", async () => {
    const room = 4;
    await using service = await startService(queueOf(room));
    const plants = makePlants(50, (index) => ({ id: BigInt(index), name: "a", tag: null }));
    const responses = await sendWhileLocked(service, plants, room);
    const accepted = plants.filter((_, index) => responses[index]?.status === 200);
    const refused = responses.filter(({ status }) => status !== 200);
    for (const response of refused) await expectRefusal(response, "overloaded");
    expect(accepted.length).toBe(room);
    expect(await service.readPlants()).toEqual(accepted);
  });

  test("a statement that fails fails its own request, and no other request of its commit", async () => {
    const room = 20;
    await using service = await startService(queueOf(room));
    await service.database.failPlantsNamed("boom");
    const plants = makePlants(room + 1, (index) => ({
      id: BigInt(index),
      name: index % 5 === 3 ? "boom" : "fine",
      tag: null,
    }));
    // One does not fit: it shows that all the others were queued before any was tried.
    const responses = await sendWhileLocked(service, plants, room);
    const answers = await Promise.all(responses.map(readRefusal));
    expect(answers.filter((answer) => answer === "overloaded").length).toBe(1);
    expect(answers).toEqual(
      plants.map(({ name }, index) => {
        if (answers[index] === "overloaded") return "overloaded";
        return name === "boom" ? "internal" : 200;
      }),
    );
    expect(await service.readPlants()).toEqual(
      plants.filter(({ name }, index) => name === "fine" && answers[index] !== "overloaded"),
    );
  });
});

/** Sends all at once while the store is locked, which is until only as many wait as there is room for. */
async function sendWhileLocked(
  service: TestService,
  plants: readonly StoredPlant[],
  room: number,
): Promise<Response[]> {
  await using held = await service.database.holdWrites();
  const { promise: onlyRoomWaits, resolve } = Promise.withResolvers<void>();
  let answered = 0;
  const sent = Promise.all(
    plants.map(async (plant) => {
      const response = await service.create(toBody(plant));
      answered += 1;
      if (answered === plants.length - room) resolve();
      return response;
    }),
  );
  await Promise.race([onlyRoomWaits, sent]);
  await held.release();
  return await sent;
}
