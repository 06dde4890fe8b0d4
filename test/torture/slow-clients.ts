/** Clients that take for ever, beside others that do not: the others hardly notice, and the slow ones are cut off in their time. */

import { makeStore } from "../support/stores.ts";
import { Creators, goodputOf, quantile, type Spell } from "./creators.ts";
import { Ledger } from "./ledger.ts";
import type { Finding, Scenario } from "./scenario.ts";
import {
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
} from "./service.ts";
import { habits, openSlowly, readers, type SlowClient } from "./slow-client.ts";
import { limits } from "../support/limits.ts";

interface Terms {
  readonly slowClients: number;
  readonly secondsBefore: number;
  readonly goodputShareMin: number;
  /** The longest that anyone of the normal load waits, from the moment at which the slow ones come. */
  readonly waitMsMax: number;
  readonly tell: (line: string) => void;
}

const CLIENTS = 64;
const READ_SECONDS_MAX = 6;
const IDLE_SECONDS_MAX = 11;
/** Until the buffers of those who do not read are full: as long as they are not, they are readers like any other. */
const SETTLING_SECONDS_MAX = 15;
const SETTLING_SPELL_SECONDS = 0.5;
const BESIDE_SECONDS = 3;
/** A head has about 12 seconds, which the runtime fixes; the machine may be busy. */
const SECONDS_MAX = 30;
/** After it has taken nothing for so long, a reader has been cut off. */
const CUT_OFF_SECONDS = IDLE_SECONDS_MAX + 5;
const SECONDS_TO_READ_MAX = 5;
/** Beyond what buffers of sockets hold, so that a reader who does not read is felt. */
const PLANTS = 500_000;
const READERS_EVERY = 64;
/** Of each slow client: buffers of its socket, a body in part, a page of an export. */
const MEMORY_BYTES_EACH_MAX = 256 * 1024;
/** Exports and a load at once work the garbage collector harder than the load alone. */
const MEMORY_BYTES_MORE_MAX = 96 * 1024 ** 2;
const DESCRIPTORS_MORE_MAX = 10;

export const slowClients: Scenario = {
  title: "1,000 clients that never come to an end, beside a normal load",
  missing: missingFigures,
  run: ({ seconds, tell }) =>
    runSlowClients({
      slowClients: 1_000,
      secondsBefore: seconds / 4,
      goodputShareMin: 0.7,
      waitMsMax: 1_000,
      tell,
    }),
};

export async function runSlowClients(terms: Terms): Promise<Finding> {
  const { slowClients: count, secondsBefore, goodputShareMin, waitMsMax, tell } = terms;
  await using service = await startTorturedService(
    {
      ...limits({ readSecondsMax: READ_SECONDS_MAX }),
      PLANTSTORE_IDLE_SECONDS_MAX: String(IDLE_SECONDS_MAX),
    },
    count + CLIENTS,
    (path) => makeStore(path, PLANTS),
  );
  const ledger = new Ledger(PLANTS + 1);
  const normal = new Creators(service.url, ledger);
  await normal.start(CLIENTS);
  await normal.measure(secondsBefore / 2);
  const before = await normal.measure(secondsBefore);
  const descriptorsBefore = countDescriptors(service.pid);
  const memoryBytesBefore = measureMemoryBytes(service.pid);

  tell(`${count} slow clients come`);
  let memoryBytesMax = 0;
  const watch = setInterval(() => {
    memoryBytesMax = Math.max(memoryBytesMax, measureMemoryBytes(service.pid));
  }, 100);
  const cameAtMs = performance.now();
  const clients = await openSlowly(service.url, Math.ceil(count / READERS_EVERY), readers);
  const settling: Spell[] = [];
  do settling.push(await normal.measure(SETTLING_SPELL_SECONDS));
  while (
    goodputOf(settling.at(-1) as Spell) < goodputShareMin * goodputOf(before) &&
    performance.now() - cameAtMs < SETTLING_SECONDS_MAX * 1000
  );
  const startedAtMs = performance.now();
  clients.push(...(await openSlowly(service.url, count - clients.length, habits)));
  const beside = await normal.measure(BESIDE_SECONDS);
  const left = clients.filter(({ isOpen }) => isOpen).length;
  const leaving = clients.filter(({ habit }) => habit.readsEveryMs === undefined);
  await Promise.race([
    Promise.all(leaving.map(({ closed }) => closed)),
    Bun.sleep(SECONDS_MAX * 1000),
  ]);
  const tookSeconds = (performance.now() - startedAtMs) / 1000;
  clearInterval(watch);
  // Whoever does not read does not notice that it was cut off.
  await Bun.sleep(Math.max(0, CUT_OFF_SECONDS - tookSeconds) * 1000);
  for (const client of clients) client.readOn();
  const stuck = clients.filter(({ habit }) => habit.mayStay === undefined);
  await Promise.race([
    Promise.all(stuck.map(({ closed }) => closed)),
    Bun.sleep(SECONDS_TO_READ_MAX * 1000),
  ]);
  const faults = stuck.flatMap((client) => findFault(client));
  for (const client of clients) client.abandon();
  await normal.stop();
  // Connections are closed one turn after the other.
  for (
    let tries = 0;
    tries < 50 &&
    countDescriptors(service.pid) > descriptorsBefore - CLIENTS + DESCRIPTORS_MORE_MAX;
    tries++
  )
    await Bun.sleep(100);
  const descriptorsAfter = countDescriptors(service.pid);
  const { exitCode, complaints } = await service.stop();

  const share = goodputOf(beside) / goodputOf(before);
  faults.push(...normal.faults, ...complaints, ...ledger.findFaults(service.path));
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  const waitedMs = Math.max(
    ...[...settling, beside].map(({ acceptedMs }) => quantile(acceptedMs, 1)),
  );
  expect(waitedMs <= waitMsMax, `others waited up to ${Math.round(waitedMs)} ms`);
  expect(exitCode === 0, `the service ended with ${exitCode}`);
  expect(beside.refusedMs.length === 0, `${beside.refusedMs.length} others were refused`);
  expect(
    share >= goodputShareMin,
    `${Math.round(share * 100)} % of the goodput was left to the others`,
  );
  expect(
    left >= count * 0.9,
    `only ${left} of ${count} slow clients were there while it was measured`,
  );
  expect(
    descriptorsAfter <= descriptorsBefore - CLIENTS + DESCRIPTORS_MORE_MAX,
    `${descriptorsAfter} descriptors were open in the end, and ${descriptorsBefore - CLIENTS} before`,
  );
  expect(
    memoryBytesMax - memoryBytesBefore <= MEMORY_BYTES_MORE_MAX + count * MEMORY_BYTES_EACH_MAX,
    `memory grew by ${memoryBytesMax - memoryBytesBefore} bytes`,
  );
  return {
    faults: summarize(faults),
    figures: {
      "slow clients": count,
      "accepted a second before": goodputOf(before),
      "accepted a second beside them": goodputOf(beside),
      "kept, of the goodput": share,
      "others waited at most, ms": waitedMs,
      "until buffers were full, seconds": (startedAtMs - cameAtMs) / 1000,
      "the last was cut off after, seconds": tookSeconds,
      "memory before, MB": memoryBytesBefore / 1e6,
      "memory at most, MB": memoryBytesMax / 1e6,
      "descriptors before, without the normal load": descriptorsBefore - CLIENTS,
      "descriptors in the end": descriptorsAfter,
      "acknowledged plants": ledger.acknowledged,
    },
  };
}

function findFault({ habit, isOpen, text }: SlowClient): string[] {
  if (isOpen) return [`${habit.name}: not cut off within ${SECONDS_MAX} seconds`];
  if (habit.farewell !== undefined && !habit.farewell.test(text))
    return [`${habit.name}: cut off with ${JSON.stringify(text)}`];
  return [];
}

/** A thousand times the same is one fault. */
function summarize(faults: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const fault of faults) counts.set(fault, (counts.get(fault) ?? 0) + 1);
  return [...counts].map(([fault, count]) => (count === 1 ? fault : `${fault} (${count} times)`));
}
