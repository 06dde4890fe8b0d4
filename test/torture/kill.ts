/** The process is killed at any moment, under all kinds of load: what was acknowledged is there, and nothing by halves. */

import { statSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { MixedLoad } from "./mixed-load.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import { compareAnswers, examineFiles, readFiles, STORE_NAME } from "./shimmed-disk.ts";

const ROUNDS_MAX = 20;
/** However little time there is: some happen before anything is acknowledged. */
const KILLS_MIN = 4;
const STORE_BYTES_MAX = 60_000_000;
const START_MS = 300;
const LOAD_MS_MAX = 300;
/** At this size of the log it is folded into the file, which takes a few moments. */
const CHECKPOINT_BYTES = 8_000 * 4_120;
const CHECKPOINT_MS = 40;
const FILL_MS_MAX = 5_000;
/** For clients that were answered in the last moment to notice. */
const HEAR_MS = 25;
const KILLED = 137;

type Moment = "start" | "load" | "checkpoint";

class Kills {
  readonly faults: string[] = [];
  readonly figures = {
    kills: 0,
    "kills before the service listened": 0,
    "kills around a checkpoint": 0,
    "kills of several threads": 0,
    "stores begun": 0,
    "writes acknowledged": 0,
    "writes cut off": 0,
    "plants compared": 0,
  };
  private readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  /** From a store that is not there yet, until it is large or something is wrong with it. */
  async wearOut(isOver: () => boolean): Promise<void> {
    const { random, figures } = this;
    using folder = makeTemporaryFolder();
    const nameLengthMax = random.pick([0, 0, 300, 50_000]);
    const load = new MixedLoad(random, { nameLengthMax });
    let rows: readonly StoredPlant[] = [];
    let faults: readonly string[] = [];
    let bytes = 0;
    figures["stores begun"]++;
    try {
      for (let round = 0; round < ROUNDS_MAX && !isOver(); round++) {
        const moment = this.chooseMoment(nameLengthMax);
        faults = await this.kill(moment, folder.path, load, rows);
        const files = readFiles(folder.path);
        bytes = files.values().reduce((sum, content) => sum + content.length, 0);
        const examined = examineFiles(files, load);
        rows = examined.rows;
        figures["plants compared"] += load.plants;
        faults = [...faults, ...examined.faults];
        this.faults.push(...faults.map((fault) => `${fault} (kill ${figures.kills}, ${moment})`));
        if (faults.length > 0 || bytes > STORE_BYTES_MAX) break;
      }
    } finally {
      await load[Symbol.asyncDispose]();
      figures["writes acknowledged"] += load.acknowledged;
      figures["writes cut off"] += load.unsettled;
    }
  }

  private chooseMoment(nameLengthMax: number): Moment {
    if (this.random.chance(20)) return "start";
    return nameLengthMax > 10_000 && this.random.chance(50) ? "checkpoint" : "load";
  }

  /** What was wrong before the kill. Afterwards no request is under way. */
  private async kill(
    moment: Moment,
    folder: string,
    load: MixedLoad,
    rows: readonly StoredPlant[],
  ): Promise<readonly string[]> {
    const { random, figures } = this;
    const path = join(folder, STORE_NAME);
    const settings = {
      PLANTSTORE_TOKEN: TEST_TOKEN,
      DATABASE_URL: `sqlite:${path}`,
      PLANTSTORE_WORKERS: random.pick(["1", "2"]),
    };
    if (settings.PLANTSTORE_WORKERS !== "1") figures["kills of several threads"]++;
    const wrapper = moment === "start" ? dyingAfter(random.below(START_MS)) : [];
    figures.kills++;
    const service = await spawnOrDie(settings, wrapper);
    if (service === undefined) {
      figures["kills before the service listened"]++;
      return [];
    }
    await using _ = service;
    const { url } = service.started;
    try {
      const differences = await compareAnswers(url, rows).catch((error: unknown) => {
        if (moment === "start") return [];
        throw error;
      });
      load.resume(url);
      if (moment === "checkpoint") {
        await untilLarge(`${path}-wal`);
        figures["kills around a checkpoint"]++;
        await Bun.sleep(random.below(CHECKPOINT_MS));
      } else if (moment === "load") await Bun.sleep(random.below(LOAD_MS_MAX));
      if (moment !== "start") service.kill("SIGKILL");
      const exitCode = await service.exited;
      return exitCode === KILLED
        ? differences
        : [...differences, `exited with ${exitCode}: ${lastLine(await service.stderr)}`];
    } finally {
      load.pause();
      await Bun.sleep(HEAR_MS);
    }
  }
}

/** A process that is killed so long after it was started, whatever it is doing then. */
const dyingAfter = (ms: number): readonly string[] => [
  "sh",
  "-c",
  `(sleep ${ms / 1000}; kill -9 $$) >/dev/null 2>&1 & exec "$@"`,
  "sh",
];

async function spawnOrDie(
  settings: Readonly<Record<string, string>>,
  wrapper: readonly string[],
): Promise<ServiceProcess | undefined> {
  try {
    return await spawnService(settings, wrapper);
  } catch (error) {
    if (wrapper.length > 0 && (error as Error).message.includes(`(exit ${KILLED})`))
      return undefined;
    throw error;
  }
}

async function untilLarge(path: string): Promise<void> {
  const endsAtMs = performance.now() + FILL_MS_MAX;
  while (performance.now() < endsAtMs) {
    if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) > CHECKPOINT_BYTES) return;
    await Bun.sleep(1);
  }
}

const lastLine = (text: string): string => text.trimEnd().split("\n").at(-1) ?? "";

async function run({ seconds, random }: Budget): Promise<Finding> {
  const kills = new Kills(random);
  const endsAtMs = performance.now() + seconds * 1000;
  const isOver = (): boolean => performance.now() > endsAtMs && kills.figures.kills >= KILLS_MIN;
  while (!isOver()) await kills.wearOut(isOver);
  return kills;
}

export const kill: Scenario = {
  title: "the process is killed at any moment, under all kinds of load",
  run,
};
