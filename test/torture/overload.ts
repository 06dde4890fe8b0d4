/** Ten times more than the service can do: it goes on doing what it can, refuses the rest at once, and is well after it. */

import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { readPlants } from "../support/stores.ts";
import { Creators, goodputOf, makePlantsFrom, quantile, type Spell } from "./creators.ts";
import type { Scenario } from "./scenario.ts";
import {
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
  type TorturedService,
} from "./service.ts";

interface Terms {
  readonly seconds: number;
  /** What is left of the peak under overload, with many clients and with a slow store, and a second after it. */
  readonly goodputShareMin: {
    readonly crowd: number;
    readonly slowStore: number;
    readonly after: number;
  };
  /** A refusal says “come back in a second”, and should itself take less (p99), unless everything is slow. */
  readonly refusedMsMax: number;
}

interface Kind {
  readonly name: string;
  /** Another process holds the lock on the store for most of the time. */
  readonly isLocked: boolean;
}

const TIMES_MORE = 10;
/** More than the normal load, and less than the overload: refusals are due. */
const QUEUE_PER_CLIENT = 2;
/** What the overload's connections and answers may take beside what the normal load takes. */
const MEMORY_BYTES_MORE_MAX = 64 * 1024 ** 2;

/**
 * Clients of the normal load: enough to have the service do all it can. With ten times as many more, the runtime
 * always finds more than 1,024 sockets ready, which is as much as it takes at once.
 */
const CLIENTS = 128;

/** A refusal costs the service about as much as an acceptance, so a little is lost to them. */
const LONG = { goodputShareMin: { crowd: 0.8, slowStore: 0.8, after: 0.8 }, refusedMsMax: 1_000 };
/** Spells of a second on a machine with other tests: only a standstill can be told. */
const SHORT = {
  goodputShareMin: { crowd: 0.01, slowStore: 0.01, after: 0.01 },
  refusedMsMax: Infinity,
};

const kinds: readonly Kind[] = [
  { name: "crowd", isLocked: false },
  { name: "slow store", isLocked: true },
];

export const overload: Scenario = {
  title: "ten times more requests than can be served, sent again at once when refused",
  missing: missingFigures,
  run: async ({ seconds, tell, isShort = false }) => {
    const figures: Record<string, number> = {};
    const faults: string[] = [];
    for (const kind of kinds) {
      tell(`${kind.name}: the peak, ${TIMES_MORE} times more, and after it`);
      const terms = { ...(isShort ? SHORT : LONG), seconds: seconds / kinds.length };
      const found = await overloadOnce(kind, terms);
      for (const [name, figure] of Object.entries(found.figures))
        figures[`${kind.name}: ${name}`] = figure;
      faults.push(...found.faults.map((fault) => `${kind.name}: ${fault}`));
    }
    return { figures, faults };
  },
};

interface Found {
  readonly figures: Readonly<Record<string, number>>;
  readonly faults: readonly string[];
}

async function overloadOnce(
  kind: Kind,
  { seconds, goodputShareMin, refusedMsMax }: Terms,
): Promise<Found> {
  const spellSeconds = seconds / 6;
  await using service = await startTorturedService(
    limits({ queueLengthMax: CLIENTS * QUEUE_PER_CLIENT }),
    CLIENTS * (TIMES_MORE + 2),
  );
  await using neighbour = kind.isLocked ? startLockHolder(service) : undefined;
  const ledger = new Ledger();
  const plants = makePlantsFrom(1);
  const normal = new Creators(service.url, ledger, plants);
  await normal.start(CLIENTS);
  await normal.measure(spellSeconds);
  const peak = await normal.measure(spellSeconds);
  const memoryBytesAtPeak = measureMemoryBytes(service.pid);

  const crowd = new Creators(service.url, ledger, plants);
  await crowd.start(CLIENTS * TIMES_MORE);
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
    ...ledger.compare(readPlants(service.path)),
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
      "acknowledged plants": ledger.listCertain().length,
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

/** Holds the lock on the store for most of the time, as a slow neighbour does. */
const LOCK_HOLDER = `
  const { Database } = require("bun:sqlite");
  const db = new Database(process.argv[1], { readwrite: true, create: false });
  db.run("PRAGMA busy_timeout = 5000");
  for (;;) {
    db.run("BEGIN IMMEDIATE");
    await Bun.sleep(40);
    db.run("ROLLBACK");
    await Bun.sleep(10);
  }`;

function startLockHolder({ path }: TorturedService): AsyncDisposable {
  const child = Bun.spawn([process.execPath, "-e", LOCK_HOLDER, path]);
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
