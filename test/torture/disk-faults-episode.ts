/** A service while its disk fails, and after: alive throughout, honest about being ready, and back by itself. */

import type { ServiceProcess } from "../support/command.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import type { FaultKind } from "./disk-faults-kinds.ts";
import type { MixedLoad } from "./mixed-load.ts";
import type { ShimmedDisk } from "./shimmed-service.ts";

/** Generous: the machine may be busy with other things. */
const TURN_MS_MAX = 20_000;
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

export interface EpisodeReport {
  readonly faults: readonly string[];
  readonly refusals: number;
  readonly recoveryMs: number;
  /** Operations that failed, or were short or slow. */
  readonly troubled: number;
}

export async function liveThrough(kind: FaultKind, scene: Scene): Promise<EpisodeReport> {
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
  else if (Number(waiting) > waitingMax)
    faults.push(`${name}: ${waiting} writes wait, and ${waitingMax} may`);
  return faults;
}

/** Status 0 where nobody answered. */
async function ask(url: string): Promise<{ readonly status: number; readonly text: string }> {
  try {
    const response = await fetch(url, { headers: { authorization: `Bearer ${TEST_TOKEN}` } });
    return { status: response.status, text: await response.text() };
  } catch {
    return { status: 0, text: "" };
  }
}
