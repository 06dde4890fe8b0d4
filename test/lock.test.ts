/** A file that another process has locked: writes wait, as many as the queue has room for beside the commit. */

import { describe, expect, test } from "bun:test";
import { expectAlive, expectRefusal } from "./support/expect.ts";
import { makePlants, readRefusal, toBody } from "./support/plants.ts";
import { startService, type TestService } from "./support/service.ts";
import { limits } from "./support/limits.ts";

describe("POST /plants, while the file is locked", () => {
  test("a create waits, and succeeds when the lock is released in time", async () => {
    const monstera = { id: 1n, name: "Monstera", tag: "tropical" };
    const ficus = { id: 2n, name: "Ficus", tag: null };
    await using service = await startService();
    await using held = await service.database.holdWrites();
    const both = [monstera, ficus].map((plant) => service.create(toBody(plant)));
    await untilWaiting(service, 2);
    await expectAlive(service.url, Promise.resolve());
    expect(await service.readPlants()).toEqual([]);

    await held.release();
    expect((await Promise.all(both)).map(({ status }) => status)).toEqual([200, 200]);
    expect(await service.readPlants()).toEqual([monstera, ficus]);
  });

  test("a full queue answers 503 overloaded at once and stores nothing of what it refused", async () => {
    const room = 4;
    await using service = await startService({ ...limits({ queueLengthMax: room }) });
    await using held = await service.database.holdWrites();
    const first = service.create(toBody({ id: 0n, name: "a", tag: null }));
    // It has left the queue: it is in the commit that waits for the lock.
    await untilWaiting(service, 1);
    const plants = makePlants(50, (index) => ({ id: BigInt(index + 1), name: "a", tag: null }));
    let answered = 0;
    const { promise: areRefused, resolve } = Promise.withResolvers<void>();
    const sent = plants.map(async (plant) => {
      const response = await service.create(toBody(plant));
      if (++answered === plants.length - room) resolve();
      return response;
    });
    await areRefused;
    await held.release();
    const responses = await Promise.all([first, ...sent]);
    const refused = responses.filter(({ status }) => status !== 200);
    for (const response of refused) await expectRefusal(response, "overloaded");
    expect(refused).toHaveLength(plants.length - room);
    const stored = (await service.readPlants()).map(({ id }) => Number(id));
    expect(stored).toEqual(responses.flatMap(({ status }, id) => (status === 200 ? id : [])));
  });

  test("a statement that fails fails its own request, and no other request of its commit", async () => {
    await using service = await startService();
    await service.database.failPlantsNamed("boom");
    const plants = makePlants(20, (index) => ({
      id: BigInt(index),
      name: index % 5 === 3 ? "boom" : "fine",
      tag: null,
    }));
    await using held = await service.database.holdWrites();
    const sent = plants.map((plant) => service.create(toBody(plant)));
    await untilWaiting(service, plants.length);
    await held.release();
    const answers = await Promise.all((await Promise.all(sent)).map(readRefusal));
    expect(answers).toEqual(plants.map(({ name }) => (name === "boom" ? "internal" : 200)));
    expect(await service.readPlants()).toEqual(plants.filter(({ name }) => name === "fine"));
  });
});

async function untilWaiting({ store }: TestService, writes: number): Promise<void> {
  while (store.writesWaiting < writes) await Bun.sleep(1);
}
