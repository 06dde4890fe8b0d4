/** More than the service can do, beside a normal load: each client gets what it is promised, and it recovers. */

import { Database } from "bun:sqlite";
import { fixedLimits } from "../../src/config.ts";
import { limits } from "../support/limits.ts";
import { fork } from "../support/random.ts";
import { readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";
import { Creators, quantile, startControl } from "./creators.ts";
import { type Budget, type Finding, noticing, runEach, type Scenario } from "./scenario.ts";
import {
  ask,
  measureCpuMs,
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
/** A queued write is answered by its deadline. The rest is for the way there and back. */
const ANSWER_MS_MAX = 1_000 * fixedLimits.queueSecondsMax.value + 1_000;
/** A refusal costs the service about as much as an acceptance, however many clients there are. */
const CPU_TIMES_MAX = 2;
/** Of each spell, for enough ticks of the CPU clock. */
const ANSWERS_MIN = 5_000;
/**
 * Clients of the normal load: enough to have the service do all it can. With ten times as many more, the runtime
 * always finds more than 1,024 sockets ready, which is as much as it takes at once.
 */
const CLIENTS = 128;

/** With a slow store, another process holds the lock on it for most of the time. */
const kinds = ["crowd", "slow store"];

/** A setup that cannot keep a promise. */
interface Cheat {
  readonly queueLengthMax?: number;
  /** Of the crowd's plants. */
  readonly nameLengthMax?: number;
  readonly isFrozen?: boolean;
  /** What has to be noticed. */
  readonly fault: RegExp;
}

export const overload: Scenario = {
  title: "under ten times its load the service answers in time, refuses properly, and recovers",
  missing: missingFigures,
  run: (budget) => runEach(kinds, budget, (kind, each) => overloadOnce(kind, each)),
};

const cheats: Readonly<Record<string, Cheat>> = {
  "a queue without a bound": { queueLengthMax: 1_000_000, fault: /^nothing was refused/ },
  "a process that stands still": { isFrozen: true, fault: /^an answer took/ },
  "answers that cost more": { nameLengthMax: 20_000, fault: /^an answer cost/ },
};

export const overloadCheat: Scenario = {
  title: "a service that does not keep this is found out",
  missing: missingFigures,
  run: (budget) =>
    runEach(Object.keys(cheats), budget, (name, each) => {
      const cheat = cheats[name] as Cheat;
      return noticing((given) => overloadOnce("crowd", given, cheat), cheat.fault)(each);
    }),
};

async function overloadOnce(
  kind: string,
  { seconds, random, tell }: Budget,
  cheat?: Cheat,
): Promise<Finding> {
  const { queueLengthMax = CLIENTS * QUEUE_PER_CLIENT } = cheat ?? {};
  const { value: queueSecondsMax } = fixedLimits.queueSecondsMax;
  await using service = await startTorturedService(
    limits({ queueLengthMax, queueSecondsMax }),
    CLIENTS * (TIMES_MORE + 2),
  );
  await using neighbour = kind === "slow store" ? startLockHolder(service) : undefined;
  await using control = await startControl(fork(random));
  const creators = new Creators(service.url, fork(random));
  const measure = async () => {
    const cpuMs = measureCpuMs(service.pid);
    const startedAtMs = performance.now();
    const spell = await creators.measure(seconds / 6, ANSWERS_MIN);
    const spellSeconds = (performance.now() - startedAtMs) / 1_000;
    const answers = spell.acceptedMs.length + spell.refusedMs.length;
    return {
      ...spell,
      acceptedPerSecond: spell.acceptedMs.length / spellSeconds,
      refusedPerSecond: spell.refusedMs.length / spellSeconds,
      cpuMsPerAnswer: (measureCpuMs(service.pid) - cpuMs) / answers,
      memoryBytes: measureMemoryBytes(service.pid),
    };
  };
  const endNormal = await creators.start(CLIENTS);
  await measure();
  const peak = await measure();

  tell(`${kind}: it begins`);
  const endCrowd = await creators.start(CLIENTS * TIMES_MORE, cheat?.nameLengthMax);
  if (cheat?.isFrozen === true)
    await freeze(service, () => 2 * (ANSWER_MS_MAX + control.findMsMax()));
  const measuring = measure();
  if (neighbour === undefined) await holdUntilRefused(service, creators);
  const over = await measuring;
  await endCrowd();
  const after = await measure();
  // A busy machine may hold up the probe of the store for a second.
  const isReady = async (): Promise<boolean> => (await ask(`${service.url}/readyz`)).status === 200;
  const unready = await until("it is ready afterwards", isReady).catch((error: Error) => error);
  await endNormal();
  await neighbour?.[Symbol.asyncDispose]();
  const faults = [...creators.faults, ...(await service.stop())];
  faults.push(...creators.ledger.compare(readPlants(service.path)));

  const answerMsMax = ANSWER_MS_MAX + control.findMsMax();
  const acceptedMs = quantile(over.acceptedMs, 0.99);
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  expect(
    creators.answerMsMax <= answerMsMax,
    `an answer took ${Math.round(creators.answerMsMax)} ms, and ${Math.round(answerMsMax)} are allowed`,
  );
  expect(over.acceptedMs.length > 0, "nothing was accepted meanwhile");
  expect(over.overloaded > 0, "nothing was refused for want of room");
  expect(peak.overloaded === 0, `${peak.overloaded} were refused at the peak`);
  expect(after.overloaded === 0, `${after.overloaded} were refused afterwards`);
  expect(unready === undefined, String(unready?.message));
  expect(
    quantile(over.refusedMs, 0.5) <= acceptedMs,
    "half of the refusals took longer than what was accepted",
  );
  for (const [when, { cpuMsPerAnswer }] of Object.entries({ meanwhile: over, afterwards: after })) {
    const times = cpuMsPerAnswer / peak.cpuMsPerAnswer;
    expect(times <= CPU_TIMES_MAX, `an answer cost ${times.toFixed(1)} times the CPU time ${when}`);
  }
  expect(
    over.memoryBytes - peak.memoryBytes <= MEMORY_BYTES_MORE_MAX,
    `memory grew from ${peak.memoryBytes} to ${over.memoryBytes} bytes`,
  );
  return {
    faults,
    figures: {
      "accepted a second at the peak": peak.acceptedPerSecond,
      "accepted a second meanwhile": over.acceptedPerSecond,
      "refused a second meanwhile": over.refusedPerSecond,
      "accepted a second afterwards": after.acceptedPerSecond,
      "CPU time of an answer at the peak, ms": peak.cpuMsPerAnswer,
      "CPU time of an answer meanwhile, ms": over.cpuMsPerAnswer,
      "CPU time of an answer afterwards, ms": after.cpuMsPerAnswer,
      "accepted, p99 ms": acceptedMs,
      "refused, p99 ms": quantile(over.refusedMs, 0.99),
      "answered, ms at most": creators.answerMsMax,
      "answered by the control, ms at most": control.findMsMax(),
      "memory at the peak, MB": peak.memoryBytes / 1e6,
      "memory meanwhile, MB": over.memoryBytes / 1e6,
      "acknowledged plants": creators.ledger.listCertain().length,
    },
  };
}

async function freeze({ pid }: TorturedService, findMs: () => number): Promise<void> {
  const sinceMs = performance.now();
  process.kill(pid, "SIGSTOP");
  await until("it stood still", () => performance.now() - sinceMs > findMs());
  process.kill(pid, "SIGCONT");
}

/**
 * On a single core this process may send too slowly to fill the queue. While nothing is committed it does; with a queue
 * without a bound, for half of the time that a write may wait.
 */
async function holdUntilRefused({ path }: TorturedService, { refusals }: Creators): Promise<void> {
  using db = new Database(path, { readwrite: true, create: false });
  db.run("PRAGMA busy_timeout = 60000");
  db.run("BEGIN IMMEDIATE");
  const isRefused = (): boolean => refusals.some((count) => count > 0);
  const msMax = 500 * fixedLimits.queueSecondsMax.value;
  await until("one is refused", isRefused, msMax).catch(() => undefined);
  db.run("ROLLBACK");
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
