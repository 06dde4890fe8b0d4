/** More than the service can do, beside a normal load: it keeps doing what it can, and recovers afterwards. */

import { limits } from "../support/limits.ts";
import { readPlants } from "../support/stores.ts";
import { Creators, goodputOf, quantile } from "./creators.ts";
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
/** What is left of the peak meanwhile. A refusal costs the service about as much as an acceptance. */
const GOODPUT_SHARE_MIN = 0.8;
/**
 * Clients of the normal load: enough to have the service do all it can. With ten times as many more, the runtime
 * always finds more than 1,024 sockets ready, which is as much as it takes at once.
 */
const CLIENTS = 128;

/** With a slow store, another process holds the lock on it for most of the time. */
const kinds = ["crowd", "slow store"];

export const overload: Scenario = {
  title: "under ten times its load the service keeps working, refuses properly, and recovers",
  missing: missingFigures,
  run: (budget) => runEach(kinds, budget, overloadOnce),
};

async function overloadOnce(kind: string, { seconds, tell, isShort }: Budget): Promise<Finding> {
  const spellSeconds = seconds / 6;
  await using service = await startTorturedService(
    limits({ queueLengthMax: CLIENTS * QUEUE_PER_CLIENT }),
    CLIENTS * (TIMES_MORE + 2),
  );
  await using neighbour = kind === "slow store" ? startLockHolder(service) : undefined;
  const creators = new Creators(service.url);
  const endNormal = await creators.start(CLIENTS);
  await creators.measure(spellSeconds);
  const peak = await creators.measure(spellSeconds);
  const memoryBytesAtPeak = measureMemoryBytes(service.pid);

  tell(`${kind}: it begins`);
  const endCrowd = await creators.start(CLIENTS * TIMES_MORE);
  const over = await creators.measure(2 * spellSeconds);
  const memoryBytesOver = measureMemoryBytes(service.pid);
  await endCrowd();
  await Bun.sleep(1_000);
  const after = await creators.measure(spellSeconds);
  await endNormal();
  await neighbour?.[Symbol.asyncDispose]();
  const faults = [...creators.faults, ...(await service.stop())];

  const share = goodputOf(over) / goodputOf(peak);
  const shareAfter = goodputOf(after) / goodputOf(peak);
  const [acceptedMs, refusedMs] = [quantile(over.acceptedMs, 0.99), quantile(over.refusedMs, 0.99)];
  faults.push(...creators.ledger.compare(readPlants(service.path)));
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  // In spells of a second on a machine with other tests, only a standstill can be told.
  const shareDue = isShort ? 0.01 : GOODPUT_SHARE_MIN;
  expect(share >= shareDue, `${Math.round(share * 100)} % of the peak was left`);
  expect(shareAfter >= shareDue, `${Math.round(shareAfter * 100)} % was there a second afterwards`);
  expect(peak.refusedMs.length === 0, `${peak.refusedMs.length} were refused at the peak`);
  expect(after.refusedMs.length === 0, `${after.refusedMs.length} were refused afterwards`);
  // A refusal says “come back in a second”, and should itself take less, unless everything is slow.
  const refusedMsDue = isShort ? Infinity : Math.max(1_000, 1.5 * acceptedMs);
  expect(refusedMs <= refusedMsDue, `refusals took up to ${Math.round(refusedMs)} ms (p99)`);
  expect(
    quantile(over.refusedMs, 0.5) <= acceptedMs,
    "half of the refusals took longer than what was accepted",
  );
  expect(
    memoryBytesOver - memoryBytesAtPeak <= MEMORY_BYTES_MORE_MAX,
    `memory grew from ${memoryBytesAtPeak} to ${memoryBytesOver} bytes`,
  );
  return {
    faults,
    figures: {
      "accepted a second at the peak": goodputOf(peak),
      "accepted a second meanwhile": goodputOf(over),
      "refused a second meanwhile": over.refusedMs.length / over.seconds,
      "kept, of the peak": share,
      "back after a second, of the peak": shareAfter,
      "accepted, p99 ms": acceptedMs,
      "refused, p99 ms": refusedMs,
      "memory at the peak, MB": memoryBytesAtPeak / 1e6,
      "memory meanwhile, MB": memoryBytesOver / 1e6,
      "acknowledged plants": creators.ledger.listCertain().length,
    },
  };
}

/** Holds the lock on the store for most of the time, as a slow neighbour does. */
const LOCK_HOLDER = `
  const { Database } = require("bun:sqlite");
  const db = new Database(process.argv[1], { readwrite: true, create: false });
  db.run("PRAGMA busy_timeout = 60000");
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
