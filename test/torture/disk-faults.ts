/** The disk is full, fails or is slow, and then loses its power: writes are refused for now, none is lost, and the service recovers. */

import type { ServiceProcess } from "../support/command.ts";
import { EIO, ENOSPC, lackOfShim, type Trouble } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { choosePieces, Disk, type Files } from "./disk-model.ts";
import { MixedLoad } from "./mixed-load.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import { compareAnswers, compareModel, examineFiles, ShimmedDisk } from "./shimmed-disk.ts";

const EPISODES_MAX = 3;
const SPELLS_MAX = 4;
const IMAGES = 4;
const DEATH_MS_MAX = 5_000;
const HEAR_MS = 25;
/** Small enough for the queue to be full at times. */
const SMALL_QUEUE = { length: 40, batch: 20 };
const DEFAULT_QUEUE = { length: 8_192, batch: 1_024 };

class DiskFaults {
  readonly faults: string[] = [];
  readonly counts = {
    spells: 0,
    starts: 0,
    refusedStarts: 0,
    exits: 0,
    images: 0,
    acknowledged: 0,
    compared: 0,
  };
  readonly kinds = new Map<string, Omit<EpisodeReport, "faults"> & { episodes: number }>();
  private readonly random: Random;
  private readonly disk = new ShimmedDisk();
  private upcoming: FaultKind[] = [];

  constructor(random: Random) {
    this.random = random;
  }

  get figures(): Record<string, string | number> {
    const { spells, starts, refusedStarts, exits, images, acknowledged, compared } = this.counts;
    return {
      ...Object.fromEntries(
        [...this.kinds].map(([name, { episodes, troubled, refusals, recoveryMs }]) => [
          name,
          `${episodes} episodes, ${troubled} operations, ${refusals} refusals, over within ${Math.round(recoveryMs)} ms`,
        ]),
      ),
      "ends by a kill or a loss of power": spells,
      "exits of the service": exits,
      "starts on a failing disk": `${starts}, ${refusedStarts} of them given up`,
      "images of the disk examined": images,
      "writes acknowledged": acknowledged,
      "plants compared": compared,
    };
  }

  async wearOut(isOver: () => boolean): Promise<void> {
    const { random, counts } = this;
    const load = new MixedLoad(random, { nameLengthMax: random.pick([0, 300, 5_000]) });
    let files: Files = new Map();
    let rows: readonly StoredPlant[] = [];
    try {
      for (let spell = 0; spell < SPELLS_MAX && !isOver(); spell++) {
        const faultsBefore = this.faults.length;
        if (random.chance(30)) ({ files, rows } = this.examine(await this.startBadly(files), load));
        const ends = await this.liveThroughSpell(files, rows, load, isOver);
        counts.spells++;
        ({ files, rows } = this.examine(ends, load));
        if (this.faults.length > faultsBefore) break;
      }
    } finally {
      await load[Symbol.asyncDispose]();
      counts.acknowledged += load.acknowledged;
    }
  }

  [Symbol.dispose](): void {
    this.disk[Symbol.dispose]();
  }

  /** Where it does not start, it says why; either way it spoils nothing. */
  private async startBadly(files: Files): Promise<readonly Files[]> {
    const { disk, random, counts } = this;
    counts.starts++;
    disk.put(files);
    disk.control.set(random.pick(faultKinds).choose(random));
    try {
      await using _ = await disk.start({});
    } catch (error) {
      counts.refusedStarts++;
      const { message } = error as Error;
      if (!/\(exit 1\): .*cannot be opened: .+/s.test(message)) this.faults.push(message);
    }
    return this.loseAll(files, false);
  }

  /** All that the files may be afterwards. */
  private async liveThroughSpell(
    files: Files,
    rows: readonly StoredPlant[],
    load: MixedLoad,
    isOver: () => boolean,
  ): Promise<readonly Files[]> {
    const { disk, random } = this;
    const queue = random.chance(30) ? SMALL_QUEUE : DEFAULT_QUEUE;
    disk.put(files);
    disk.control.set({});
    const service = await disk.start({
      ...limits({ queueLengthMax: queue.length, batchLengthMax: queue.batch }),
      PLANTSTORE_LOG_LEVEL: "error",
    });
    if (service === undefined) throw new Error("the service was killed");
    await using _ = service;
    this.faults.push(...(await compareAnswers(service.started.url, rows)));
    load.resume(service.started.url);
    const scene = { disk, service, load, random, waitingMax: queue.length + queue.batch };
    for (let episode = 0; episode < EPISODES_MAX && !(episode > 0 && isOver()); episode++) {
      const kind = this.nextKind(queue === SMALL_QUEUE);
      const report = await liveThrough(kind, scene);
      if (await this.hasEnded(service)) break;
      this.faults.push(...report.faults);
      // What happens at times may not happen for a moment.
      if (report.troubled === 0 && kind.effect !== "may refuse")
        this.faults.push(`${kind.name}: nothing of the kind happened`);
      const known = this.kinds.get(kind.name);
      this.kinds.set(kind.name, {
        episodes: (known?.episodes ?? 0) + 1,
        refusals: (known?.refusals ?? 0) + report.refusals,
        troubled: (known?.troubled ?? 0) + report.troubled,
        recoveryMs: Math.max(known?.recoveryMs ?? 0, report.recoveryMs),
      });
    }
    // Not without waiting: the service would be stopped first.
    return await this.end(files, service, load);
  }

  /** Each in turn, in an order of chance. A queue that is full refuses also what a disk would hide. */
  private nextKind(isQueueSmall: boolean): FaultKind {
    for (;;) {
      if (this.upcoming.length === 0) this.upcoming = [...faultKinds];
      const kind = this.random.pick(this.upcoming);
      this.upcoming = this.upcoming.filter((other) => other !== kind);
      if (!isQueueSmall || kind.effect !== "hides") return kind;
    }
  }

  /** Killed, or without power, and at times while the disk fails once more. */
  private async end(
    files: Files,
    service: ServiceProcess,
    load: MixedLoad,
  ): Promise<readonly Files[]> {
    const { disk, random } = this;
    const trouble = random.chance(50) ? {} : random.pick(faultKinds).choose(random);
    const isKill = random.chance(30);
    disk.control.set(isKill ? trouble : { ...trouble, dieAfter: random.chance(50) ? 1 : 0 });
    await Bun.sleep(random.below(200));
    if (!isKill) disk.control.set({ ...trouble, dieAfter: 1 });
    else service.kill("SIGKILL");
    const died = await Promise.race([service.exited, Bun.sleep(DEATH_MS_MAX)]);
    service.kill("SIGKILL");
    await service.exited;
    load.pause();
    await Bun.sleep(HEAR_MS);
    // Killed from outside, it may have been between an operation and its record.
    return isKill ? [disk.readFiles()] : this.loseAll(files, died !== undefined);
  }

  /** It may give up, if it says so; a service manager then starts it again. */
  private async hasEnded(service: ServiceProcess): Promise<boolean> {
    const code = await Promise.race([service.exited, Promise.resolve(undefined)]);
    if (code === undefined) return false;
    this.counts.exits++;
    const lastLine = (await service.stderr).trimEnd().split("\n").at(-1) ?? "";
    if (code !== 1 || !lastLine.includes('"level":"error"'))
      this.faults.push(`exited with ${code}: ${lastLine}`);
    return true;
  }

  private loseAll(files: Files, isLogWhole: boolean): readonly Files[] {
    const { disk, random } = this;
    const lost = new Disk(files, random);
    for (const record of disk.readLog()) lost.apply(record);
    if (isLogWhole) this.faults.push(...compareModel(lost, disk.readFiles()));
    return Array.from({ length: IMAGES }, () => lost.lose(choosePieces(random)));
  }

  /** The last of several possibilities is the one to go on with. */
  private examine(
    possibilities: readonly Files[],
    load: MixedLoad,
  ): { files: Files; rows: readonly StoredPlant[] } {
    let files: Files = new Map();
    let rows: readonly StoredPlant[] = [];
    for (const possibility of possibilities) {
      const examined = examineFiles(possibility, load);
      files = possibility;
      rows = examined.rows;
      this.counts.images++;
      this.counts.compared += load.plants;
      this.faults.push(...examined.faults);
      if (examined.faults.length > 0) break;
    }
    return { files, rows };
  }
}

async function run({ seconds, random }: Budget): Promise<Finding> {
  using disks = new DiskFaults(random);
  const endsAtMs = performance.now() + seconds * 1000;
  const isOver = (): boolean => performance.now() > endsAtMs;
  while (!isOver()) await disks.wearOut(isOver);
  const { figures, faults } = disks;
  return { figures, faults };
}

export const diskFaults: Scenario = {
  title: "the disk is full, fails or is slow, and then loses its power",
  missing: lackOfShim,
  run,
};

interface FaultKind {
  readonly name: string;
  readonly choose: (random: Random) => Trouble;
  /**
   * `refuses`: no write can be done, so it is not ready either. `hides`: a client notices only by the time it
   * takes. `may refuse`: some can be done and some cannot.
   */
  readonly effect: "refuses" | "may refuse" | "hides";
}

const AT_TIMES_PERCENTS = [2, 10, 40];

const faultKinds: readonly FaultKind[] = [
  {
    name: "no space",
    choose: () => ({ writeFailsPercent: 100, writeError: ENOSPC }),
    effect: "refuses",
  },
  {
    name: "write errors",
    choose: () => ({ writeFailsPercent: 100, writeError: EIO }),
    effect: "refuses",
  },
  {
    name: "sync errors",
    choose: () => ({ syncFailsPercent: 100 }),
    effect: "refuses",
  },
  {
    name: "write errors at times",
    choose: (random) => ({
      writeFailsPercent: random.pick(AT_TIMES_PERCENTS),
      writeError: random.pick([EIO, ENOSPC]),
    }),
    effect: "may refuse",
  },
  {
    name: "sync errors at times",
    choose: (random) => ({ syncFailsPercent: random.pick(AT_TIMES_PERCENTS) }),
    effect: "may refuse",
  },
  {
    name: "short writes, then no space",
    choose: (random) => ({
      writeShortenedPercent: 50,
      writeFailsPercent: random.pick(AT_TIMES_PERCENTS),
      writeError: ENOSPC,
    }),
    effect: "may refuse",
  },
  {
    name: "read errors",
    choose: (random) => ({ readFailsPercent: random.pick([5, 50, 100]) }),
    effect: "may refuse",
  },
  { name: "short writes", choose: () => ({ writeShortenedPercent: 50 }), effect: "hides" },
  {
    name: "slow syncs",
    choose: (random) => ({ syncMs: 10 + random.below(490) }),
    effect: "hides",
  },
];

/** Generous: the machine may be busy with other things. */
const TURN_MS_MAX = 60_000;
const LAST_MS_MAX = 800;
const ASK_EVERY_MS = 25;
const ACKNOWLEDGED_MIN = 5;

interface Scene {
  readonly disk: ShimmedDisk;
  readonly service: ServiceProcess;
  readonly load: MixedLoad;
  readonly random: Random;
  /** Writes that may wait, those of a commit that has begun included. */
  readonly waitingMax: number;
}

interface EpisodeReport {
  readonly faults: readonly string[];
  readonly refusals: number;
  readonly recoveryMs: number;
  /** Operations that failed, or were short or slow. */
  readonly troubled: number;
}

async function liveThrough(kind: FaultKind, scene: Scene): Promise<EpisodeReport> {
  const { disk, load, random, service } = scene;
  const { url } = service.started;
  const faults: string[] = [];
  const refusedBefore = load.unsettled;
  const troubledBefore = disk.control.faults;

  disk.control.set(kind.choose(random));
  if (kind.effect === "refuses" && !(await turns(url, 503)))
    faults.push(`${kind.name}: it went on calling itself ready`);
  const endsAtMs = performance.now() + random.below(LAST_MS_MAX);
  do {
    faults.push(...(await lookAt(scene, kind.name)));
    await Bun.sleep(ASK_EVERY_MS);
  } while (performance.now() < endsAtMs);

  disk.control.set({});
  const overAtMs = performance.now();
  const acknowledged = Promise.race([
    load.untilAcknowledged(ACKNOWLEDGED_MIN).then(() => true),
    Bun.sleep(TURN_MS_MAX).then(() => false),
  ]);
  if (!(await turns(url, 200)))
    faults.push(`${kind.name}: it was not ready again when it was over`);
  if (!(await acknowledged)) faults.push(`${kind.name}: it acknowledged nothing when it was over`);
  const refusals = load.unsettled - refusedBefore;
  if (kind.effect === "hides" && refusals > 0)
    faults.push(`${kind.name}: ${refusals} writes were refused for nothing`);
  return {
    faults,
    refusals,
    recoveryMs: performance.now() - overAtMs,
    troubled: disk.control.faults - troubledBefore,
  };
}

/** False where readiness was not answered so in time; any other answer than these two is not one. */
async function turns(url: string, wanted: 200 | 503): Promise<boolean> {
  const endsAtMs = performance.now() + TURN_MS_MAX;
  while (performance.now() < endsAtMs) {
    const { status } = await ask(`${url}/readyz`);
    if (status === wanted) return true;
    if (status !== 200 && status !== 503) return false;
    await Bun.sleep(ASK_EVERY_MS);
  }
  return false;
}

async function lookAt({ service, waitingMax }: Scene, name: string): Promise<string[]> {
  const { url } = service.started;
  const live = await ask(`${url}/livez`);
  const metrics = await ask(`${url}/metrics`);
  const faults: string[] = [];
  if (live.status !== 200) faults.push(`${name}: /livez was answered ${live.status}`);
  const waiting = /^plantstore_writes_waiting (\d+)$/m.exec(metrics.text)?.[1];
  if (metrics.status !== 200 || waiting === undefined)
    faults.push(`${name}: /metrics was answered ${metrics.status}`);
  // Lines of batches also wait for room in the queue.
  else if (Number(waiting) > 2 * waitingMax)
    faults.push(`${name}: ${waiting} writes wait, and ${2 * waitingMax} may`);
  return faults;
}

/** Status 0 if there was no answer. */
async function ask(url: string): Promise<{ readonly status: number; readonly text: string }> {
  try {
    const response = await fetch(url, { headers: { authorization: `Bearer ${TEST_TOKEN}` } });
    return { status: response.status, text: await response.text() };
  } catch {
    return { status: 0, text: "" };
  }
}
