/** The process is killed at any moment, under all kinds of load: what was acknowledged is there, and nothing by halves. */

import { statSync } from "node:fs";
import { join } from "node:path";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";
import { compareAnswers, KILLED, readFiles, STORE_NAME } from "./shimmed-disk.ts";
import { type End, Wear, type Worn } from "./wear.ts";

const TERMS = { nameLengths: [0, 0, 300, 50_000], roundsMax: 20, bytesMax: 60_000_000 };
/** However little time there is: some happen before anything is acknowledged. */
const KILLS_MIN = 4;
const START_MS = 300;
const LOAD_MS_MAX = 300;
/** At this size of the log it is folded into the file, which takes a few moments. */
const CHECKPOINT_BYTES = 8_000 * 4_120;
const CHECKPOINT_MS = 40;
const FILL_MS_MAX = 5_000;
/** For clients that were answered in the last moment to notice. */
const HEAR_MS = 25;

type Moment = "start" | "load" | "checkpoint";

async function run({ seconds, random }: Budget): Promise<Finding> {
  const wear = new Wear(random, TERMS);
  const isTimeOver = endsAfter(seconds);
  let kills = 0;
  const isOver = (): boolean => isTimeOver() && kills >= KILLS_MIN;
  const live = async (folder: string, worn: Worn): Promise<End> => {
    const isLarge = worn.nameLengthMax > 10_000 && random.chance(50);
    const moment = random.chance(20) ? "start" : isLarge ? "checkpoint" : "load";
    wear.count("kills");
    kills++;
    wear.faults.push(...(await killOnce(wear, moment, folder, worn)));
    return { images: [readFiles(folder)], when: `kill ${kills}, ${moment}` };
  };
  while (!isOver()) {
    // The files stay where they are: a service has to recover what the last one left.
    using folder = makeTemporaryFolder();
    await wear.wearOut(isOver, (worn) => live(folder.path, worn));
  }
  return wear;
}

/** What was wrong before the kill. Afterwards no request is under way. */
async function killOnce(
  wear: Wear,
  moment: Moment,
  folder: string,
  { load, rows }: Worn,
): Promise<readonly string[]> {
  const { random } = wear;
  const path = join(folder, STORE_NAME);
  const settings = {
    PLANTSTORE_TOKEN: TEST_TOKEN,
    DATABASE_URL: `sqlite:${path}`,
    PLANTSTORE_WORKERS: random.pick(["1", "2"]),
  };
  const wrapper = moment === "start" ? dyingAfter(random.below(START_MS)) : [];
  const service = await spawnOrDie(settings, wrapper);
  if (service === undefined) {
    wear.count("kills before the service listened");
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
      wear.count("kills around a checkpoint");
      await Bun.sleep(random.below(CHECKPOINT_MS));
    } else if (moment === "load") await Bun.sleep(random.below(LOAD_MS_MAX));
    if (moment !== "start") service.kill("SIGKILL");
    const exitCode = await service.exited;
    return exitCode === KILLED
      ? differences
      : [...differences, `exited with ${exitCode}: ${(await service.stderr).slice(-500)}`];
  } finally {
    load.pause();
    await Bun.sleep(HEAR_MS);
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
  const isOver = endsAfter(FILL_MS_MAX / 1_000);
  while (!isOver() && (statSync(path, { throwIfNoEntry: false })?.size ?? 0) <= CHECKPOINT_BYTES)
    await Bun.sleep(1);
}

export const kill: Scenario = {
  title: "a service that is killed at any moment loses nothing and stores nothing half",
  run,
};
