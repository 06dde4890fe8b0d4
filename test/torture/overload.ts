/** Ten times more than the service can do: it goes on doing what it can, refuses the rest at once, and is well after it. */

import { Creators, goodputOf, quantile, type Spell } from "./creators.ts";
import { Ledger } from "./ledger.ts";
import type { Finding, Scenario } from "./scenario.ts";
import {
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
  type TorturedService,
} from "./service.ts";
import { limits } from "../support/limits.ts";

interface Terms {
  readonly seconds: number;
  /** Clients of the normal load: enough to have the service do all it can. */
  readonly clients: number;
  /** What is left of the peak under overload, in a crowd and before a slow store, and what is there again a second after. */
  readonly goodputShareMin: {
    readonly crowd: number;
    readonly slowStore: number;
    readonly after: number;
  };
  /** A refusal says “come back in a second”, and should not itself take that long (p99), unless all else does. */
  readonly refusedMsMax: number;
  readonly tell: (line: string) => void;
}

interface Kind {
  readonly name: string;
  readonly settings: Readonly<Record<string, string>>;
  /** The capacity is lowered by a neighbour who has the store locked for most of the time. */
  readonly isLocked: boolean;
}

const TIMES_MORE = 10;
/** More than the normal load, and less than the overload: refusals are due. */
const QUEUE_PER_CLIENT = 2;
/** What the overload's connections and answers may take beside what the normal load takes. */
const MEMORY_BYTES_MORE_MAX = 64 * 1024 ** 2;

/** A refusal costs the service about as much as an acceptance, so that a little is lost to them. */
const SHARE_MIN = { crowd: 0.8, slowStore: 0.8, after: 0.8 };

export const overload: Scenario = {
  title: "ten times more requests than can be served, sent again at once when refused",
  missing: missingFigures,
  run: ({ seconds, tell }) =>
    runOverload({ seconds, clients: 128, goodputShareMin: SHARE_MIN, refusedMsMax: 1_000, tell }),
};

export async function runOverload(terms: Terms): Promise<Finding> {
  const queue = { ...limits({ queueLengthMax: terms.clients * QUEUE_PER_CLIENT }) };
  const kinds: readonly Kind[] = [
    { name: "crowd", settings: queue, isLocked: false },
    { name: "slow store", settings: queue, isLocked: true },
  ];
  const figures: Record<string, number> = {};
  const faults: string[] = [];
  for (const kind of kinds) {
    terms.tell(`${kind.name}: the peak, ${TIMES_MORE} times more, and after it`);
    const found = await overloadOnce(kind, { ...terms, seconds: terms.seconds / kinds.length });
    for (const [name, figure] of Object.entries(found.figures))
      figures[`${kind.name}: ${name}`] = figure;
    faults.push(...found.faults.map((fault) => `${kind.name}: ${fault}`));
  }
  return { figures, faults };
}

interface Found {
  readonly figures: Readonly<Record<string, number>>;
  readonly faults: readonly string[];
}

async function overloadOnce(
  kind: Kind,
  { seconds, clients, goodputShareMin, refusedMsMax }: Terms,
): Promise<Found> {
  const spellSeconds = seconds / 6;
  await using service = await startTorturedService(kind.settings, clients * (TIMES_MORE + 2));
  await using neighbour = kind.isLocked ? startLockHolder(service) : undefined;
  const ledger = new Ledger();
  const normal = new Creators(service.url, ledger);
  await normal.start(clients);
  await normal.measure(spellSeconds);
  const peak = await normal.measure(spellSeconds);
  const memoryBytesAtPeak = measureMemoryBytes(service.pid);

  const crowd = new Creators(service.url, ledger);
  await crowd.start(clients * TIMES_MORE);
  const first = joinSpells(
    await Promise.all([normal.measure(spellSeconds), crowd.measure(spellSeconds)]),
  );
  const memoryBytesMiddle = measureMemoryBytes(service.pid);
  const second = joinSpells(
    await Promise.all([normal.measure(spellSeconds), crowd.measure(spellSeconds)]),
  );
  const memoryBytesEnd = measureMemoryBytes(service.pid);
  await crowd.stop();
  await Bun.sleep(1_000);
  const after = await normal.measure(spellSeconds);
  await normal.stop();

  await neighbour?.[Symbol.asyncDispose]();
  const { exitCode, complaints } = await service.stop();
  const over = joinSpells([first, second], "after each other");
  const share = goodputOf(over) / goodputOf(peak);
  const shareAfter = goodputOf(after) / goodputOf(peak);
  const faults = [
    ...normal.faults,
    ...crowd.faults,
    ...complaints,
    ...ledger.findFaults(service.path),
  ];
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  expect(exitCode === 0, `the service ended with ${exitCode}`);
  expect(
    share >= (kind.isLocked ? goodputShareMin.slowStore : goodputShareMin.crowd),
    `${Math.round(share * 100)} % of the peak was left under overload (${Math.round(goodputOf(over))} of ${Math.round(goodputOf(peak))} a second)`,
  );
  expect(
    shareAfter >= goodputShareMin.after,
    `${Math.round(shareAfter * 100)} % of the peak was there a second after the overload`,
  );
  expect(peak.refusedMs.length === 0, `${peak.refusedMs.length} were refused at the peak`);
  expect(after.refusedMs.length === 0, `${after.refusedMs.length} were refused after the overload`);
  const refusedMs = quantile(over.refusedMs, 0.99);
  const refusedMsDue = Math.max(refusedMsMax, 1.5 * quantile(over.acceptedMs, 0.99));
  expect(refusedMs <= refusedMsDue, `refusals took up to ${Math.round(refusedMs)} ms (p99)`);
  expect(
    quantile(over.refusedMs, 0.5) <= quantile(over.acceptedMs, 0.99),
    "half of the refusals took longer than what was accepted",
  );
  expect(
    memoryBytesEnd - memoryBytesAtPeak <= MEMORY_BYTES_MORE_MAX &&
      memoryBytesEnd - memoryBytesMiddle <= MEMORY_BYTES_MORE_MAX / 2,
    `memory grew from ${memoryBytesAtPeak} by way of ${memoryBytesMiddle} to ${memoryBytesEnd} bytes`,
  );
  return {
    faults,
    figures: {
      "accepted a second at the peak": goodputOf(peak),
      "accepted a second under overload": goodputOf(over),
      "refused a second under overload": over.refusedMs.length / over.seconds,
      "offered, of the peak":
        (over.acceptedMs.length + over.refusedMs.length) / over.seconds / goodputOf(peak),
      "kept, of the peak": share,
      "back after a second, of the peak": shareAfter,
      "accepted, p99 ms": quantile(over.acceptedMs, 0.99),
      "refused, p99 ms": refusedMs,
      "memory at the peak, MB": memoryBytesAtPeak / 1e6,
      "memory under overload, MB": Math.max(memoryBytesMiddle, memoryBytesEnd) / 1e6,
      "acknowledged plants": ledger.acknowledged,
    },
  };
}

function joinSpells(spells: readonly [Spell, Spell], when?: "after each other"): Spell {
  const [one, other] = spells;
  return {
    seconds: when === undefined ? one.seconds : one.seconds + other.seconds,
    acceptedMs: one.acceptedMs.concat(other.acceptedMs),
    refusedMs: one.refusedMs.concat(other.refusedMs),
  };
}

function startLockHolder({ path }: TorturedService): AsyncDisposable {
  const child = Bun.spawn([
    process.execPath,
    Bun.fileURLToPath(new URL("./lock-holder.ts", import.meta.url)),
    path,
  ]);
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
