/** Many at once: one winner an id, no waiting without end, and each answer for its own plant. */

import { describe, expect, test } from "bun:test";
import { heldUp } from "../support/database.ts";
import { expectAlive, expectRefusal } from "../support/expect.ts";
import { isReplay, makePlants, readRefusal, type StoredPlant, toBody } from "../support/plants.ts";
import { sendPlant, startService } from "../support/service.ts";
import { limits } from "../support/limits.ts";

const SIMULTANEOUS = 200;

describe("POST /plants, many at once", () => {
  test("of different plants under one id only one is stored", async () => {
    await using service = await startService();
    const plants = makePlants(SIMULTANEOUS, (index) => ({
      id: 7n,
      name: `name ${index}`,
      tag: index % 2 === 0 ? null : `tag ${index}`,
    }));
    const responses = await Promise.all(plants.map((plant) => sendPlant(service.url, plant)));
    const answers = await Promise.all(responses.map(readRefusal));
    expect(answers.filter((answer) => answer === 200).length).toBe(1);
    expect(answers.filter((answer) => answer === "id_taken").length).toBe(SIMULTANEOUS - 1);
    const winner = answers.indexOf(200);
    expect(isReplay(responses[winner] as Response)).toBe(false);
    expect(await service.readPlants()).toEqual([plants[winner] as StoredPlant]);
  });

  test("a full queue answers 503, and only accepted plants are stored", async () => {
    const room = 4;
    await using service = await startService(limits({ queueLengthMax: room }));
    await using held = await service.database.holdWrites();
    const plants = makePlants(SIMULTANEOUS, (id) => ({ id: BigInt(id), name: "a", tag: null }));
    const responses = await Promise.all(
      plants.map(async (plant) => {
        const response = await service.create(toBody(plant));
        await held.release();
        return response;
      }),
    );
    const accepted = plants.filter((_, index) => responses[index]?.status === 200);
    const refused = responses.filter(({ status }) => status !== 200);
    for (const response of refused) await expectRefusal(response, "overloaded");
    // While nothing could be written, only a refusal can have come, and with it the release.
    expect(refused.length).toBeGreaterThan(0);
    expect(accepted.length).toBeGreaterThanOrEqual(room);
    expect(await service.readPlants()).toEqual(accepted);
  });
});

test("where others hold the store up for too long, a create answers 503", async () => {
  const monstera = { id: 1n, name: "Monstera", tag: "tropical" };
  const ficus = { id: 2n, name: "Ficus", tag: null };
  await using service = await startService(limits({ queueSecondsMax: 1 }));
  await using held = await service.database.holdWrites();
  // They are held up until after the answer.
  const response = await expectAlive(service.url, service.create(toBody(monstera)));
  // At the deadline the store may not have said yet that it gave up.
  const refusal = await expectRefusal(response, heldUp, "store_unavailable");

  await held.release();
  expect((await service.create(toBody(ficus))).status).toBe(200);
  if (refusal === "store_busy") expect(await service.readPlants()).toEqual([ficus]);
  // Sending it again settles it, whatever has become of it.
  expect((await service.create(toBody(monstera))).status).toBe(200);
  expect(await service.readPlants()).toEqual([monstera, ficus]);
});
