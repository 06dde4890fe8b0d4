/** Several services under load, on a PostgreSQL server to which everything happens that happens to servers. */

import { createRandom, type Random } from "../support/random.ts";
import { sendPlant } from "../support/service.ts";
import { deal } from "./postgres-deck.ts";
import { mishaps } from "./postgres-mishaps.ts";
import { findMissingPostgres } from "./postgres-missing.ts";
import { openScene, probe, type Scene } from "./postgres-scene.ts";
import { Times, within } from "./postgres-times.ts";
import { compare, examine } from "./postgres-verdict.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";

const WRITES_BETWEEN_MAX = 300;
const CALM_PERCENT = 75;
const ENDS_BETWEEN_MS_MAX = 3_000;
/** From the end of a mishap to a write that every service has acknowledged, on a busy machine. */
const RECOVERY_MS_MAX = 10_000;
/** For the load to flow as before. */
const FLOW_MS_MAX = 30_000;
const PROBE_MS = 20;

/** How a service ends. Nothing is promised of one that is killed; one that is told to stop does so in order. */
const ends: Readonly<Record<string, NodeJS.Signals>> = {
  "instance killed": "SIGKILL",
  "instance told to stop": "SIGTERM",
};

export const postgres: Scenario = {
  title: "three services, and a PostgreSQL server that is killed, paused, cut off, and so are they",
  missing: findMissingPostgres,
  run: async (budget) => {
    const { random } = budget;
    await using scene = await openScene(random);
    const course = new Course(scene, budget);
    await Promise.all([
      course.troubleServer(createRandom(random.below(2 ** 31))),
      course.troubleInstances(createRandom(random.below(2 ** 31))),
    ]);
    await course.recover("in the end");
    await Promise.all([scene.clients.stop(), scene.quarrel.stop()]);
    // Not without waiting: the scene would be over.
    return await conclude(scene, course);
  },
};

/** Two rows of mishaps at one time; each goes on until the time is over, and every kind has come. */
class Course {
  readonly times = new Times();
  readonly #scene: Scene;
  readonly #budget: Budget;
  readonly #startedAtMs = performance.now();
  #isServerDone = false;

  constructor(scene: Scene, budget: Budget) {
    this.#scene = scene;
    this.#budget = budget;
  }

  async troubleServer(random: Random): Promise<void> {
    for (const { kind, haveAllCome } of deal(Object.keys(mishaps), random)) {
      this.#tell(kind);
      await mishaps[kind]?.({ ...this.#scene, random });
      // Every now and then the next one comes before all is well again.
      const isCalm = random.chance(CALM_PERCENT);
      this.times.add(kind, isCalm ? await this.recover(kind) : undefined);
      if (isCalm) await this.#flow(kind, 1 + random.below(WRITES_BETWEEN_MAX));
      if (haveAllCome && this.#isTimeOver()) break;
    }
    this.#isServerDone = true;
  }

  async troubleInstances(random: Random): Promise<void> {
    for (const { kind, haveAllCome } of deal(Object.keys(ends), random)) {
      await Bun.sleep(random.below(ENDS_BETWEEN_MS_MAX));
      this.#tell(kind);
      const endedAtMs = performance.now();
      const { exited, started } = await this.#scene.fleet.replaceAny(random, ends[kind]);
      this.times.add(kind, performance.now() - endedAtMs);
      const exitCode = await exited;
      if (ends[kind] === "SIGTERM" && exitCode !== 0)
        this.#scene.faults.push(`${started.url} did not stop in order: exit ${exitCode}`);
      if (haveAllCome && this.#isServerDone) return;
    }
  }

  /** Resolves when every service takes writes, unless it was ended meanwhile; to the time that it took. */
  async recover(kind: string): Promise<number> {
    const { fleet, faults } = this.#scene;
    const wellAtMs = performance.now();
    await Promise.all(
      fleet.services.map(async (service) => {
        while (!(await takesWrites(service.started.url))) {
          if (fleet.ended.includes(service)) return;
          if (performance.now() - wellAtMs > RECOVERY_MS_MAX)
            return faults.push(
              `${kind}: ${service.started.url} takes no writes ${RECOVERY_MS_MAX} ms after that`,
            );
          await Bun.sleep(PROBE_MS);
        }
      }),
    );
    return performance.now() - wellAtMs;
  }

  async #flow(kind: string, writes: number): Promise<void> {
    const { clients, faults } = this.#scene;
    const flow = clients.untilAcknowledged(writes).then(() => true);
    if (!(await within(FLOW_MS_MAX, flow)))
      faults.push(`${kind}: the load does not flow as before`);
  }

  #isTimeOver(): boolean {
    return performance.now() - this.#startedAtMs > this.#budget.seconds * 1_000;
  }

  #tell(kind: string): void {
    const seconds = (performance.now() - this.#startedAtMs) / 1_000;
    this.#budget.tell(`${seconds.toFixed(1).padStart(7)} s  ${kind}`);
  }
}

/** Whoever sends it again is told that it is there; that needs a commit as well. */
async function takesWrites(url: string): Promise<boolean> {
  const sending = sendPlant(url, probe).then(
    ({ status }) => status === 200,
    () => false,
  );
  return (await within(RECOVERY_MS_MAX, sending)) ?? false;
}

async function conclude(scene: Scene, { times }: Course): Promise<Finding> {
  const { clients, quarrel } = scene;
  const faults = await compare(scene);
  return {
    figures: {
      ...times.figures(),
      "writes acknowledged": clients.acknowledged,
      "writes refused for now, or cut off": clients.unsettled,
      "longest answer (ms)": Math.round(clients.answerMsMax),
      ...Object.fromEntries(
        Object.entries(quarrel.counts).map(([name, count]) => [`quarrel: ${name}`, count]),
      ),
    },
    faults: [...scene.faults, ...faults, ...(await examine(scene))],
  };
}
