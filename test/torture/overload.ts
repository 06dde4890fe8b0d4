/** More than the service can do, beside a normal load: it keeps doing what it can, and recovers afterwards. */

import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { makeStore, readPlants } from "../support/stores.ts";
import { Creators, goodputOf, makePlantsFrom, quantile, type Spell } from "./creators.ts";
import { type Budget, type Finding, runEach, type Scenario } from "./scenario.ts";
import {
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
  type TorturedService,
} from "./service.ts";

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
const READERS = 8;
const PAGE_LENGTH = 1_000;

interface Disturbance {
  /** Stops it, and resolves to what it found. */
  readonly stop: () => Promise<Finding>;
  /** What happened to its own creates. */
  readonly measure?: (seconds: number) => Promise<Spell>;
}

interface Kind {
  /** What is left of the peak meanwhile. A refusal costs the service about as much as an acceptance. */
  readonly goodputShareMin: number;
  readonly plants?: { readonly long: number; readonly short: number };
  readonly workers?: string;
  /** Another process holds the lock on the store for most of the time. */
  readonly isLocked?: true;
  readonly disturb: (service: TorturedService, ledger: Ledger) => Promise<Disturbance>;
}

const pages = {
  goodputShareMin: 0.25,
  plants: { long: 2_000_000, short: 200_000 },
  disturb: readPages,
} as const;

const kinds: Readonly<Record<string, Kind>> = {
  crowd: { goodputShareMin: 0.8, disturb: comeInCrowds },
  "slow store": { goodputShareMin: 0.8, isLocked: true, disturb: comeInCrowds },
  "large pages": pages,
  // Several need Linux. For a second or two they say nothing on two cores.
  ...(process.platform === "linux" && { "large pages, 2 workers": { ...pages, workers: "2" } }),
};

export const overload: Scenario = {
  title: "ten times more requests than can be served, and readers of large pages",
  missing: missingFigures,
  run: (budget) => runEach(Object.keys(kinds), budget, overloadOnce),
};

async function overloadOnce(name: string, { seconds, tell, isShort }: Budget): Promise<Finding> {
  const kind = kinds[name] as Kind;
  if (isShort && kind.workers !== undefined) return { figures: {}, faults: [] };
  const count = kind.plants?.[isShort ? "short" : "long"] ?? 0;
  const spellSeconds = seconds / 6;
  await using service = await startTorturedService(
    {
      PLANTSTORE_WORKERS: kind.workers ?? "1",
      ...limits({ queueLengthMax: CLIENTS * QUEUE_PER_CLIENT }),
    },
    CLIENTS * (TIMES_MORE + 2),
    (path) => {
      if (count > 0) makeStore(path, count);
    },
  );
  await using neighbour = kind.isLocked ? startLockHolder(service) : undefined;
  const ledger = new Ledger();
  const normal = new Creators(service.url, ledger, makePlantsFrom(count + 1));
  await normal.start(CLIENTS);
  await normal.measure(spellSeconds);
  const peak = await normal.measure(spellSeconds);
  const memoryBytesAtPeak = measureMemoryBytes(service.pid);

  tell(`${name}: it begins`);
  const disturbance = await kind.disturb(service, ledger);
  const measure = async (): Promise<Spell> => {
    const own = disturbance.measure?.(spellSeconds);
    const spell = await normal.measure(spellSeconds);
    return joinSpells(own === undefined ? [spell] : [spell, await own]);
  };
  const first = await measure();
  const memoryBytesMiddle = measureMemoryBytes(service.pid);
  const second = await measure();
  const memoryBytesEnd = measureMemoryBytes(service.pid);
  const found = await disturbance.stop();
  await Bun.sleep(1_000);
  const after = await normal.measure(spellSeconds);
  await normal.stop();

  await neighbour?.[Symbol.asyncDispose]();
  const { exitCode, complaints } = await service.stop();
  const over = { ...joinSpells([first, second]), seconds: first.seconds + second.seconds };
  const share = goodputOf(over) / goodputOf(peak);
  const shareAfter = goodputOf(after) / goodputOf(peak);
  const refusedMs = quantile(over.refusedMs, 0.99);
  const faults = [
    ...normal.faults,
    ...found.faults,
    ...complaints,
    ...ledger.compare(readPlants(service.path, BigInt(count + 1))),
  ];
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  // In spells of a second on a machine with other tests, only a standstill can be told.
  const due = (least: number): number => (isShort ? 0.01 : least);
  expect(exitCode === 0, `the service ended with ${exitCode}`);
  expect(
    share >= due(kind.goodputShareMin),
    `${Math.round(share * 100)} % of the peak was left (${Math.round(goodputOf(over))} of ${Math.round(goodputOf(peak))} a second)`,
  );
  expect(
    shareAfter >= due(0.8),
    `${Math.round(shareAfter * 100)} % of the peak was there a second afterwards`,
  );
  expect(peak.refusedMs.length === 0, `${peak.refusedMs.length} were refused at the peak`);
  expect(after.refusedMs.length === 0, `${after.refusedMs.length} were refused afterwards`);
  // A refusal says “come back in a second”, and should itself take less, unless everything is slow.
  const refusedMsDue = isShort ? Infinity : Math.max(1_000, 1.5 * quantile(over.acceptedMs, 0.99));
  expect(refusedMs <= refusedMsDue, `refusals took up to ${Math.round(refusedMs)} ms (p99)`);
  expect(
    quantile(over.refusedMs, 0.5) <= quantile(over.acceptedMs, 0.99),
    "half of the refusals took longer than what was accepted",
  );
  expect(
    (memoryBytesEnd - memoryBytesAtPeak <= MEMORY_BYTES_MORE_MAX || count > 0) &&
      memoryBytesEnd - memoryBytesMiddle <= MEMORY_BYTES_MORE_MAX / 2,
    `memory grew from ${memoryBytesAtPeak} by way of ${memoryBytesMiddle} to ${memoryBytesEnd} bytes`,
  );
  return {
    faults,
    figures: {
      "accepted a second at the peak": goodputOf(peak),
      "accepted a second meanwhile": goodputOf(over),
      "refused a second meanwhile": over.refusedMs.length / over.seconds,
      "kept, of the peak": share,
      "back after a second, of the peak": shareAfter,
      "accepted, p99 ms": quantile(over.acceptedMs, 0.99),
      "refused, p99 ms": refusedMs,
      "memory at the peak, MB": memoryBytesAtPeak / 1e6,
      "memory meanwhile, MB": Math.max(memoryBytesMiddle, memoryBytesEnd) / 1e6,
      "acknowledged plants": ledger.listCertain().length,
      ...found.figures,
    },
  };
}

const joinSpells = (spells: readonly Spell[]): Spell => ({
  seconds: spells[0]?.seconds ?? 0,
  acceptedMs: spells.flatMap(({ acceptedMs }) => acceptedMs),
  refusedMs: spells.flatMap(({ refusedMs }) => refusedMs),
});

/** Each comes back at once when it is refused. */
async function comeInCrowds({ url }: TorturedService, ledger: Ledger): Promise<Disturbance> {
  const crowd = new Creators(url, ledger, makePlantsFrom(2 ** 40));
  await crowd.start(CLIENTS * TIMES_MORE);
  return {
    measure: (seconds) => crowd.measure(seconds),
    stop: async () => {
      await crowd.stop();
      return { figures: {}, faults: crowd.faults };
    },
  };
}

/** Clients that read large pages by tag, without a pause. */
async function readPages({ url }: TorturedService): Promise<Disturbance> {
  const faults: string[] = [];
  const reading = { isOver: false, pages: 0 };
  const headers = { authorization: `Bearer ${TEST_TOKEN}` };
  const readers = Array.from({ length: READERS }, async (_, nth) => {
    const first = `${url}/plants?tag=${encodeURIComponent(`tag ${nth % 7}`)}&limit=${PAGE_LENGTH}`;
    for (let target = first; !reading.isOver; reading.pages++) {
      const response = await fetch(target, { headers });
      const page = (await response.json()) as unknown[];
      if (response.status !== 200) faults.push(`a page was answered ${response.status}`);
      const next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
      if (next !== undefined && page.length !== PAGE_LENGTH)
        faults.push(`a page had ${page.length} plants`);
      target = next === undefined ? first : new URL(next, target).href;
    }
  });
  return {
    stop: async () => {
      reading.isOver = true;
      await Promise.all(readers);
      if (reading.pages < READERS) faults.push(`only ${reading.pages} pages were read`);
      return { figures: { "pages read": reading.pages }, faults };
    },
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
