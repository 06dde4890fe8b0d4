/** The disk is full, fails or is slow, and then loses its power: writes are refused for now, none is lost, and the service recovers. */

import type { ServiceProcess } from "../support/command.ts";
import { EIO, ENOSPC, lackOfShim, type Trouble } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import type { Random } from "../support/random.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import type { Files } from "./disk-model.ts";
import type { MixedLoad } from "./mixed-load.ts";
import { deal, endsAfter, type Scenario, within } from "./scenario.ts";
import { ask } from "./service.ts";
import { compareAnswers } from "./shimmed-disk.ts";
import { type End, Wear, type Worn } from "./wear.ts";

const EPISODES_MAX = 3;
const DEATH_MS_MAX = 5_000;
/** Small enough for the queue to be full at times. */
const SMALL_QUEUE = { queueLengthMax: 40, commitLengthMax: 20 };
const DEFAULT_QUEUE = { queueLengthMax: 8_192, commitLengthMax: 1_024 };

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

const makeKind = (
  name: string,
  effect: FaultKind["effect"],
  choose: FaultKind["choose"],
): FaultKind => ({ name, choose, effect });

const faultKinds: readonly FaultKind[] = [
  makeKind("writes fail", "refuses", (random) => ({
    writeFailsPercent: 100,
    writeError: random.pick([EIO, ENOSPC]),
  })),
  makeKind("syncs fail", "refuses", () => ({ syncFailsPercent: 100 })),
  makeKind("writes fail at times, and some are short", "may refuse", (random) => ({
    writeShortenedPercent: random.pick([0, 50]),
    writeFailsPercent: random.pick(AT_TIMES_PERCENTS),
    writeError: random.pick([EIO, ENOSPC]),
  })),
  makeKind("syncs fail at times", "may refuse", (random) => ({
    syncFailsPercent: random.pick(AT_TIMES_PERCENTS),
  })),
  makeKind("reads fail", "may refuse", (random) => ({
    readFailsPercent: random.pick([5, 50, 100]),
  })),
  makeKind("writes are short", "hides", () => ({ writeShortenedPercent: 50 })),
  makeKind("syncs are slow", "hides", (random) => ({ syncMs: 10 + random.below(490) })),
];

class DiskFaults extends Wear {
  readonly terms = { nameLengths: [0, 300, 5_000], roundsMax: 4, bytesMax: Infinity };
  readonly #kinds = deal(faultKinds, this, () => false);

  /** One start on a failing disk at times, then a spell of faults that ends without power. */
  async live(worn: Worn, isOver: () => boolean): Promise<End> {
    if (this.random.chance(30)) {
      await this.#startBadly(worn.files);
      const lost = await this.findLost(worn, false);
      return { images: lost.lose(), when: "after a bad start" };
    }
    const images = await this.#liveThroughSpell(worn, isOver);
    this.count("ends by a kill or a loss of power");
    return { images, when: "after a spell of faults" };
  }

  /** Where it does not start, it says why; either way it spoils nothing. */
  async #startBadly(files: Files): Promise<void> {
    this.count("starts on a failing disk");
    const trouble = this.random.pick(faultKinds).choose(this.random);
    try {
      await using _ = await this.disk.start({}, files, trouble);
    } catch (error) {
      this.count("starts given up");
      const { message } = error as Error;
      if (!/\(exit 1\): .*cannot be opened: .+/s.test(message)) this.faults.push(message);
    }
  }

  /** All that the files may be afterwards. */
  async #liveThroughSpell(worn: Worn, isOver: () => boolean): Promise<Iterable<Files>> {
    const { files, rows, load } = worn;
    const queue = this.random.chance(30) ? SMALL_QUEUE : DEFAULT_QUEUE;
    const settings = { ...limits(queue), PLANTSTORE_LOG_LEVEL: "error" };
    const service = await this.disk.start(settings, files);
    if (service === undefined) throw new Error("the service was killed");
    await using _ = service;
    this.faults.push(...(await compareAnswers(service.started.url, rows)));
    load.resume(service.started.url);
    // Those of a commit that has begun, and lines of batches, also wait.
    const waitingMax = 2 * (queue.queueLengthMax + queue.commitLengthMax);
    for (let episode = 0; episode < EPISODES_MAX && !(episode > 0 && isOver()); episode++) {
      const kind = this.#kinds.next().value as FaultKind;
      // A queue that is full refuses also what a disk would hide.
      if (queue === SMALL_QUEUE && kind.effect === "hides") continue;
      const faults = await this.#liveThrough(kind, service, load, waitingMax);
      if (await this.#hasEnded(service)) break;
      this.faults.push(...faults.map((fault) => `${kind.name}: ${fault}`));
      this.count(kind.name);
    }
    // Not without waiting: the service would be stopped first.
    return await this.#end(worn, service);
  }

  async #liveThrough(
    kind: FaultKind,
    { started: { url } }: ServiceProcess,
    load: MixedLoad,
    waitingMax: number,
  ): Promise<string[]> {
    const { control } = this.disk;
    const faults: string[] = [];
    const refusedBefore = load.clients.unsettled;
    const troubledBefore = control.faults;
    control.set(kind.choose(this.random));
    if (kind.effect === "refuses" && !(await turns(url, 503)))
      faults.push("it went on calling itself ready");
    const isPast = endsAfter((this.random.below(LAST_MS_MAX) + 1) / 1_000);
    do {
      faults.push(...(await lookAt(url, waitingMax)));
      await Bun.sleep(ASK_EVERY_MS);
    } while (!isPast());

    control.set({});
    const acknowledged = within(PATIENCE_MS, load.clients.untilAcknowledged(ACKNOWLEDGED_MIN));
    if (!(await turns(url, 200))) faults.push("it was not ready again when it was over");
    if ((await acknowledged) === undefined) faults.push("it acknowledged nothing when it was over");
    const refusals = load.clients.unsettled - refusedBefore;
    if (kind.effect === "hides" && refusals > 0)
      faults.push(`${refusals} writes were refused for nothing`);
    // What happens at times may not happen for a moment.
    if (control.faults === troubledBefore && kind.effect !== "may refuse")
      faults.push("nothing of the kind happened");
    return faults;
  }

  /** Killed, or without power, and at times while the disk fails once more. */
  async #end(worn: Worn, service: ServiceProcess): Promise<Iterable<Files>> {
    const { random } = this;
    const { control } = this.disk;
    const trouble = random.chance(50) ? {} : random.pick(faultKinds).choose(random);
    const isKill = random.chance(30);
    control.set(isKill ? trouble : { ...trouble, dieAfter: random.chance(50) ? 1 : 0 });
    await Bun.sleep(random.below(200));
    if (!isKill) control.set({ ...trouble, dieAfter: 1 });
    else service.kill("SIGKILL");
    const died = await within(DEATH_MS_MAX, service.exited);
    service.kill("SIGKILL");
    await service.exited;
    // Killed from outside, it may have been between an operation and its record.
    const lost = await this.findLost(worn, !isKill && died !== undefined);
    return isKill ? [this.disk.readFiles()] : lost.lose();
  }

  /** It may give up, if it says so; a service manager then starts it again. */
  async #hasEnded(service: ServiceProcess): Promise<boolean> {
    const code = await Promise.race([service.exited, Promise.resolve(undefined)]);
    if (code === undefined) return false;
    this.count("exits of the service");
    const lastLine = (await service.stderr).trimEnd().split("\n").at(-1) ?? "";
    if (code !== 1 || !lastLine.includes('"level":"error"'))
      this.faults.push(`exited with ${code}: ${lastLine}`);
    return true;
  }
}

const LAST_MS_MAX = 800;
const ASK_EVERY_MS = 25;
const ACKNOWLEDGED_MIN = 5;

/** False where readiness was not answered so in time; any other answer than these two is not one. */
async function turns(url: string, wanted: 200 | 503): Promise<boolean> {
  let status = 0;
  const isTold = async (): Promise<boolean> => {
    ({ status } = await ask(`${url}/readyz`));
    return status === wanted || (status !== 200 && status !== 503);
  };
  await until(`readiness is ${wanted}`, isTold).catch(() => undefined);
  return status === wanted;
}

async function lookAt(url: string, waitingMax: number): Promise<string[]> {
  const live = await ask(`${url}/livez`);
  const metrics = await ask(`${url}/metrics`);
  const faults: string[] = [];
  if (live.status !== 200) faults.push(`/livez was answered ${live.status}`);
  const waiting = /^plantstore_writes_waiting (\d+)$/m.exec(metrics.text)?.[1];
  if (metrics.status !== 200 || waiting === undefined)
    faults.push(`/metrics was answered ${metrics.status}`);
  else if (Number(waiting) > waitingMax)
    faults.push(`${waiting} writes wait, and ${waitingMax} may`);
  return faults;
}

export const diskFaults: Scenario = {
  title: "a disk that fails has writes refused, and loses none that was acknowledged",
  missing: lackOfShim,
  run: async ({ seconds, random }) => {
    using disks = new DiskFaults(random);
    const isOver = endsAfter(seconds);
    while (!isOver()) await disks.wearOut(isOver);
    return disks;
  },
};
