/** Many at once: one winner an id, room for so many and no more, and each answer for its own plant. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  isReplay,
  readPlants,
  readRefusal,
  sendPlant,
  type StoredPlant,
  toBody,
} from "./support/plants.ts";
import { expectRefusal } from "./support/sender.ts";
import { startService, type TestService } from "./support/service.ts";

const SIMULTANEOUS = 200;

const makePlants = (length: number, make: (index: number) => StoredPlant): StoredPlant[] =>
  Array.from({ length }, (_, index) => make(index));

/** If it took in more, they would be late soon enough for the test to tell. */
const queueOf = (room: number): Record<string, string> => ({
  PLANTSTORE_QUEUE_LENGTH_MAX: `${room}`,
  PLANTSTORE_QUEUE_SECONDS_MAX: "2",
});

describe("POST /plants, many at once", () => {
  test("of different plants under one id one is stored, and all the others are told that it is taken", async () => {
    await using service = startService();
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
    expect(readPlants(service.databasePath)).toEqual([plants[winner] as StoredPlant]);
  });

  test("of identical plants all succeed, all but one as replays, and one is stored", async () => {
    await using service = startService();
    const plant = { id: 7n, name: "Monstera", tag: "tropical" };
    const responses = await Promise.all(
      makePlants(SIMULTANEOUS, () => plant).map((same) => sendPlant(service.url, same)),
    );
    expect(responses.filter(({ status }) => status === 200).length).toBe(SIMULTANEOUS);
    expect(responses.filter((response) => !isReplay(response)).length).toBe(1);
    expect(readPlants(service.databasePath)).toEqual([plant]);
  });

  test("a full queue answers 503 overloaded at once and stores nothing of what it refused", async () => {
    const room = 4;
    await using service = startService(queueOf(room));
    const plants = makePlants(50, (index) => ({ id: BigInt(index), name: "a", tag: null }));
    const responses = await sendWhileLocked(service, plants, room);
    const accepted = plants.filter((_, index) => responses[index]?.status === 200);
    const refused = responses.filter(({ status }) => status !== 200);
    for (const response of refused) await expectRefusal(response, "overloaded");
    expect(accepted.length).toBe(room);
    expect(readPlants(service.databasePath)).toEqual(accepted);
  });

  test("a statement that fails fails its own request, and none of those that share its commit", async () => {
    const room = 20;
    await using service = startService(queueOf(room));
    using other = new Database(service.databasePath);
    other.run(`CREATE TRIGGER boom BEFORE INSERT ON plants WHEN NEW.name = 'boom'
      BEGIN SELECT RAISE(ABORT, 'x'); END`);
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
    expect(readPlants(service.databasePath)).toEqual(
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
  using other = new Database(service.databasePath);
  other.run("BEGIN IMMEDIATE");
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
  other.run("ROLLBACK");
  return sent;
}
