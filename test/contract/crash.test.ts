/** Killed at any moment, under load: what was acknowledged is there, exactly, and nothing else is. */

import { expect, test } from "bun:test";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { engine, openTestDatabase, type TestDatabase } from "../support/database.ts";
import { isReplay, isSamePlant, type StoredPlant } from "../support/plants.ts";
import { createRandom, type Random, tellingSeed } from "../support/random.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity } from "../support/stores.ts";

const rounds = Number(process.env["PLANTSTORE_TEST_CRASH_ROUNDS"] ?? 20);
const ROUND_MS_MAX = 5_000;

const CLIENTS = 24;
const KILL_AFTER_MS_MAX = 300;
const SAMPLE_LENGTH = 50;

/** What was sent, and what was answered, over all rounds. */
class Ledger {
  readonly sent = new Map<bigint, StoredPlant[]>();
  readonly acknowledged = new Map<bigint, StoredPlant>();
  /** Answered 409: under their ids there has to be another plant. */
  readonly refused: StoredPlant[] = [];
  /** Sent, and cut off before an answer came. */
  unanswered: StoredPlant[] = [];
  readonly faults: string[] = [];
  private readonly ids: bigint[] = [];
  private readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  /** Mostly a plant with a new id; at times one that was sent before, or a different one under its id. */
  nextPlant(): StoredPlant {
    const { random } = this;
    const serial = this.ids.length;
    const old = serial === 0 || random.chance(80) ? undefined : random.pick(this.ids);
    const plants = old === undefined ? [] : (this.sent.get(old) ?? []);
    if (plants.length > 0 && random.chance(70)) return random.pick(plants);

    const id = old ?? (random.chance(50) ? BigInt(serial) : random.int64());
    const length = random.chance(5) ? random.below(10_000) : random.below(100);
    const plant = {
      id,
      name: `${serial} ${"🌱".repeat(length)}`,
      tag: random.chance(30) ? null : `tag of ${serial}`,
    };
    this.ids.push(id);
    this.sent.set(id, [...(this.sent.get(id) ?? []), plant]);
    return plant;
  }

  note(plant: StoredPlant, status: number): void {
    if (status === 409) this.refused.push(plant);
    else if (status !== 200) this.faults.push(`${plant.id}: answered ${status}`);
    else {
      const earlier = this.acknowledged.get(plant.id) ?? plant;
      if (!isSamePlant(earlier, plant)) this.faults.push(`${plant.id}: two plants acknowledged`);
      this.acknowledged.set(plant.id, plant);
    }
  }

  /** Everything in which these rows differ from what was promised. */
  compare(rows: ReadonlyMap<bigint, StoredPlant>): string[] {
    const faults = [...this.faults];
    for (const row of rows.values())
      if (!this.sent.get(row.id)?.some((plant) => isSamePlant(plant, row)))
        faults.push(`${row.id}: stored, and never sent so`);
    for (const plant of this.acknowledged.values()) {
      const row = rows.get(plant.id);
      if (row === undefined) faults.push(`${plant.id}: acknowledged, and lost`);
      else if (!isSamePlant(plant, row)) faults.push(`${plant.id}: acknowledged, and changed`);
    }
    for (const plant of this.refused) {
      const row = rows.get(plant.id);
      if (row === undefined) faults.push(`${plant.id}: its id was taken, and now is not`);
      else if (isSamePlant(plant, row)) faults.push(`${plant.id}: refused, and stored`);
    }
    return faults;
  }
}

async function loadUntilKilled(
  child: ServiceProcess,
  ledger: Ledger,
  killAfterMs: number,
): Promise<void> {
  let killed = false;
  const client = async (): Promise<void> => {
    for (;;) {
      const plant = ledger.nextPlant();
      try {
        const response = await sendPlant(child.started.url, plant);
        ledger.note(plant, response.status);
        await response.bytes();
      } catch (error) {
        if (!killed) throw error;
        ledger.unanswered.push(plant);
        return;
      }
    }
  };
  const clients = Promise.all(Array.from({ length: CLIENTS }, client));
  await Promise.race([clients, Bun.sleep(killAfterMs)]);
  killed = true;
  child.kill("SIGKILL");
  expect(await child.exited).toBe(137);
  await clients;
}

async function checkStore(
  child: ServiceProcess,
  database: TestDatabase,
  ledger: Ledger,
  random: Random,
): Promise<void> {
  if (engine === "sqlite") expect(checkIntegrity(database.path)).toBe("ok");
  const rows = new Map((await database.readPlants()).map((row) => [row.id, row]));
  expect(ledger.compare(rows).slice(0, 10)).toEqual([]);

  const acknowledged = [...ledger.acknowledged.values()];
  const sample =
    acknowledged.length === 0
      ? []
      : Array.from({ length: SAMPLE_LENGTH }, () => random.pick(acknowledged));
  for (const plant of sample) {
    const response = await sendPlant(child.started.url, plant);
    expect([plant.id, response.status, isReplay(response)]).toEqual([plant.id, 200, true]);
  }
  // Whoever got no answer sends again, and is told what became of it.
  const unanswered = ledger.unanswered.splice(0);
  for (const plant of unanswered) {
    const row = await database.findPlant(plant.id);
    const response = await sendPlant(child.started.url, plant);
    const wasThere = row !== undefined && isSamePlant(row, plant);
    const isTaken = row !== undefined && !wasThere;
    expect([plant.id, response.status, isReplay(response)]).toEqual([
      plant.id,
      isTaken ? 409 : 200,
      wasThere,
    ]);
    ledger.note(plant, response.status);
  }
}

test(
  `a service killed under load ${rounds} times has lost, changed and invented nothing`,
  () =>
    tellingSeed(async () => {
      await using database = await openTestDatabase();
      const random = createRandom();
      const ledger = new Ledger(random);
      const spawn = (): Promise<ServiceProcess> =>
        spawnService({ PLANTSTORE_TOKEN: TEST_TOKEN, DATABASE_URL: database.url });
      let cutOff = 0;
      for (let round = 0; round < rounds; round++) {
        await using child = await spawn();
        await checkStore(child, database, ledger, random);
        await loadUntilKilled(child, ledger, random.below(KILL_AFTER_MS_MAX));
        cutOff += ledger.unanswered.length;
      }
      await using child = await spawn();
      await checkStore(child, database, ledger, random);
      // Otherwise nothing was shown: there was no load, or nothing was under way at any kill.
      expect(ledger.acknowledged.size).toBeGreaterThan(rounds * CLIENTS);
      expect(cutOff).toBeGreaterThan(rounds);
    }),
  rounds * ROUND_MS_MAX,
);
