/** Ten thousand idle connections beside busy ones: they cost little, stay usable, and are closed in time. */

import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { readPlants } from "../support/stores.ts";
import { Connection, formatRequest } from "./connection.ts";
import { Creators, goodputOf, makePlantsFrom } from "./creators.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import {
  connectionsMax,
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
} from "./service.ts";

/** The idle time is long enough to open them all and to measure. */
const LONG = { count: 10_000, idleSecondsMax: 30, goodputShareMin: 0.7 };
const SHORT = { count: 1_000, idleSecondsMax: 15, goodputShareMin: 0.01 };

const CLIENTS = 64;
/** The runtime looks every few seconds, and the machine may be busy. */
const SECONDS_LATE_MAX = 60;
const MEMORY_BYTES_EACH_MAX = 8 * 1024;
/** The heap of the busy ones goes up and down by as much. */
const HEAP_BYTES_MORE_MAX = 16 * 1024 ** 2;
const TOGETHER = 250;
const SAMPLE_EVERY = 10;
const DESCRIPTORS_MORE_MAX = 10;

export const idleConnections: Scenario = {
  title: `${LONG.count.toLocaleString("en")} connections that were used once, beside a normal load`,
  missing: () =>
    connectionsMax() < LONG.count + CLIENTS
      ? `${LONG.count} connections need a higher limit of file descriptors (ulimit -Hn)`
      : missingFigures(),
  run,
};

const ASK = formatRequest("GET", "/token");

async function run({ seconds, tell, isShort = false }: Budget): Promise<Finding> {
  const { count, idleSecondsMax, goodputShareMin } = isShort ? SHORT : LONG;
  const spellSeconds = Math.min(8, seconds / 5);
  const closedSecondsMax = idleSecondsMax + SECONDS_LATE_MAX;
  await using service = await startTorturedService(
    {
      PLANTSTORE_IDLE_SECONDS_MAX: String(idleSecondsMax),
      ...limits({ readSecondsMax: 4, queueSecondsMax: 4 }),
    },
    count + CLIENTS,
  );
  const ledger = new Ledger();
  const normal = new Creators(service.url, ledger, makePlantsFrom(1));
  await normal.start(CLIENTS);
  await normal.measure(spellSeconds / 2);
  const before = await normal.measure(spellSeconds);
  const descriptorsBefore = countDescriptors(service.pid);
  const memoryBytesBefore = measureMemoryBytes(service.pid);

  tell(`${count} connections are opened, and used once`);
  const faults: string[] = [];
  const use = async (connection: Connection, when: string): Promise<void> => {
    const answer = await connection.ask(ASK);
    if (answer?.status !== 200)
      faults.push(`${when}: ${answer?.status ?? "closed without an answer"}`);
  };
  const idle: Connection[] = [];
  while (idle.length < count) {
    const length = Math.min(TOGETHER, count - idle.length);
    const opened = await Promise.all(Array.from({ length }, () => Connection.open(service.url)));
    await Promise.all(opened.map((connection) => use(connection, "first use")));
    idle.push(...opened);
  }
  const openedAtMs = performance.now();
  const beside = await normal.measure(spellSeconds);
  const memoryBytes = measureMemoryBytes(service.pid);
  const open = idle.filter(({ isOpen }) => isOpen);
  const descriptors = countDescriptors(service.pid);

  const sample = open.filter((_, index) => index % SAMPLE_EVERY === 0);
  await Promise.all(sample.map((connection) => use(connection, "used again")));
  tell("they are left alone until they are closed");
  const allClosed = Promise.all(idle.map(({ closed }) => closed));
  await Promise.race([allClosed, Bun.sleep(closedSecondsMax * 1000)]);
  const closedSeconds = (performance.now() - openedAtMs) / 1000;
  const left = idle.filter(({ isOpen }) => isOpen);
  for (const connection of left) connection.abort();
  const after = await normal.measure(spellSeconds / 2);
  const descriptorsAfter = countDescriptors(service.pid);
  await normal.stop();
  const { exitCode, complaints } = await service.stop();

  const share = goodputOf(beside) / goodputOf(before);
  const memoryBytesEach = (memoryBytes - memoryBytesBefore) / count;
  faults.push(...normal.faults, ...complaints, ...ledger.compare(readPlants(service.path)));
  const expect = (holds: boolean, fault: string): void => void (holds || faults.push(fault));
  expect(exitCode === 0, `the service ended with ${exitCode}`);
  expect(open.length === count, `${count - open.length} were closed before their time`);
  expect(left.length === 0, `${left.length} were still open after ${closedSecondsMax} seconds`);
  expect(
    share >= goodputShareMin,
    `${Math.round(share * 100)} % of the goodput was left beside them`,
  );
  expect(
    memoryBytes - memoryBytesBefore <= MEMORY_BYTES_EACH_MAX * count + HEAP_BYTES_MORE_MAX,
    `each took ${Math.round(memoryBytesEach)} bytes of memory`,
  );
  expect(
    descriptorsAfter <= descriptorsBefore + DESCRIPTORS_MORE_MAX,
    `${descriptorsAfter} descriptors were open in the end, and ${descriptorsBefore} before`,
  );
  return {
    faults,
    figures: {
      "idle connections": count,
      "accepted a second before": goodputOf(before),
      "accepted a second beside them": goodputOf(beside),
      "accepted a second after them": goodputOf(after),
      "kept, of the goodput": share,
      "memory of each, bytes": memoryBytesEach,
      "used again": sample.length,
      "all closed after, seconds": closedSeconds,
      "descriptors before, beside and after them": `${descriptorsBefore}, ${descriptors}, ${descriptorsAfter}`,
      "acknowledged plants": ledger.listCertain().length,
    },
  };
}
