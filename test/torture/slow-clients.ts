/** Slow and idle clients beside normal ones: the normal ones are almost unaffected, the others are cut off in time. */

import type { Socket } from "bun";
import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { makeStore, readPlants } from "../support/stores.ts";
import { Creators, goodputOf, makePlantsFrom, quantile, type Spell } from "./creators.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import {
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
} from "./service.ts";

/** `waitMsMax` is the longest that a client of the normal load waits, from the moment at which the slow ones come. */
const LONG = {
  count: 1_000,
  goodputShareMin: 0.7,
  waitMsMax: 1_000,
  readSecondsMax: 6,
  idleSecondsMax: 11,
};
/** Without heads that do not end: the runtime gives them twelve seconds, whatever is configured. */
const SHORT = {
  count: 130,
  goodputShareMin: 0.01,
  waitMsMax: Infinity,
  readSecondsMax: 10,
  idleSecondsMax: 15,
};

const CLIENTS = 64;
/** Until the buffers of clients that do not read are full. Before that they are readers like any other. */
const SETTLING_SECONDS_MAX = 15;
const SETTLING_SPELL_SECONDS = 0.5;
const BESIDE_SECONDS = 3;
/** A head has about 12 seconds, which the runtime fixes; the machine may be busy. */
const SECONDS_MAX = 120;
const SECONDS_TO_READ_MAX = 60;
/** More than the buffers of sockets hold. */
const PLANTS = 500_000;
const READERS_EVERY = 64;
/** Of each slow client: buffers of its socket, a body in part, a page of an export. */
const MEMORY_BYTES_EACH_MAX = 256 * 1024;
/** Exports and a load at once work the garbage collector harder than the load alone. */
const MEMORY_BYTES_MORE_MAX = 96 * 1024 ** 2;
const DESCRIPTORS_MORE_MAX = 10;

export const slowClients: Scenario = {
  title: "1,000 clients that are idle or never come to an end, beside a normal load",
  missing: missingFigures,
  run,
};

async function run({ seconds, tell, isShort = false }: Budget): Promise<Finding> {
  const terms = isShort ? SHORT : LONG;
  const { count, goodputShareMin, waitMsMax, readSecondsMax, idleSecondsMax } = terms;
  const secondsBefore = seconds / 4;
  await using service = await startTorturedService(
    {
      ...limits({ readSecondsMax, queueSecondsMax: readSecondsMax, idleSecondsMax }),
    },
    count + CLIENTS,
    (path) => makeStore(path, PLANTS),
  );
  const ledger = new Ledger();
  const normal = new Creators(service.url, ledger, makePlantsFrom(PLANTS + 1));
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
  clients.push(
    ...(await openSlowly(
      service.url,
      count - clients.length,
      isShort ? habits.filter(({ isHead }) => isHead !== true) : habits,
    )),
  );
  const beside = await normal.measure(BESIDE_SECONDS);
  const left = clients.filter(({ isOpen }) => isOpen).length;
  const leaving = clients.filter(({ habit }) => habit.readsEveryMs === undefined);
  await Promise.race([
    Promise.all(leaving.map(({ closed }) => closed)),
    Bun.sleep(SECONDS_MAX * 1000),
  ]);
  const tookSeconds = (performance.now() - startedAtMs) / 1000;
  clearInterval(watch);
  // A client that does not read does not notice that it was cut off. Beside writes its buffers may fill slowly.
  const staying = clients.filter(({ habit }) => habit.mayStay === true).length;
  const deadlineMs = startedAtMs + (idleSecondsMax + SECONDS_MAX) * 1000;
  while (
    countDescriptors(service.pid) > descriptorsBefore + staying &&
    performance.now() < deadlineMs
  )
    await Bun.sleep(100);
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
  faults.push(
    ...normal.faults,
    ...complaints,
    ...ledger.compare(readPlants(service.path, BigInt(PLANTS + 1))),
  );
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
      "acknowledged plants": ledger.listCertain().length,
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

const TRICKLE_MS = 250;

const CREDENTIALS = `Host: plants.example\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n`;
const POST = `POST /plants HTTP/1.1\r\n${CREDENTIALS}Content-Type: application/json\r\n`;

const EXPORT = `GET /plants HTTP/1.1\r\n${CREDENTIALS}Accept: application/x-ndjson\r\n\r\n`;

interface Habit {
  readonly name: string;
  /** Sent at once. */
  readonly start: string;
  /** Sent byte by byte, over and over. */
  readonly trickle: string;
  /** Reads for a moment each so many milliseconds. */
  readonly readsEveryMs?: number;
  /** As long as it takes something it may stay. */
  readonly mayStay?: true;
  readonly isHead?: true;
  /** What the last words to it must be; undefined where none are promised. */
  readonly farewell?: RegExp;
}

const habits: readonly Habit[] = [
  { name: "a head that trickles", isHead: true, start: POST, trickle: "X-Slow: a\r\n" },
  { name: "a head that stops", isHead: true, start: POST, trickle: "" },
  { name: "nothing", isHead: true, start: "", trickle: "" },
  {
    name: "nothing after an answer",
    start: `GET /token HTTP/1.1\r\n${CREDENTIALS}\r\n`,
    trickle: "",
    farewell: /^HTTP\/1\.1 200 /,
  },
  {
    name: "a body that trickles",
    start: `${POST}Content-Length: 500\r\n\r\n{"id":-1,"name":"`,
    trickle: "slow",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
  {
    name: "chunks that trickle",
    start: `${POST}Transfer-Encoding: chunked\r\n\r\n`,
    trickle: "1\r\n \r\n",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
  {
    name: "a body that stops",
    start: `${POST}Content-Length: 500\r\n\r\n{"id":-1,`,
    trickle: "",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
];

/** Fewer, because the buffers of each take megabytes of the system's. */
const readers: readonly Habit[] = [
  {
    name: "an export that is read very slowly",
    start: EXPORT,
    trickle: "",
    readsEveryMs: 2_000,
    mayStay: true,
  },
  { name: "an export that is never read", start: EXPORT, trickle: "", readsEveryMs: Infinity },
];

interface SlowClient {
  readonly habit: Habit;
  readonly closed: Promise<void>;
  isOpen: boolean;
  /** The beginning of all that came. */
  text: string;
  abandon: () => void;
  readOn: () => void;
}

async function openSlowly(
  url: string,
  count: number,
  among: readonly Habit[],
): Promise<SlowClient[]> {
  const { hostname, port } = new URL(url);
  const clients: SlowClient[] = [];
  for (let nth = 0; nth < count; nth++) {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const habit = among[nth % among.length] as Habit;
    const client: SlowClient = {
      habit,
      closed,
      isOpen: true,
      text: "",
      abandon: () => undefined,
      readOn: () => undefined,
    };
    let timer: Timer | undefined;
    let readsOn = false;
    const end = (): void => {
      clearInterval(timer);
      client.isOpen = false;
      resolve();
    };
    const socket: Socket = await Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        data(reading, bytes) {
          if (client.text.length < 1_000) client.text += bytes.toString("latin1", 0, 1_000);
          if (habit.readsEveryMs !== undefined && !readsOn) reading.pause();
        },
        close: end,
        error: end,
      },
    });
    client.abandon = () => socket.terminate();
    client.readOn = () => {
      readsOn = true;
      socket.resume();
    };
    socket.write(habit.start);
    let at = 0;
    let ticks = 0;
    timer = setInterval(() => {
      if (habit.trickle !== "") socket.write(habit.trickle[at++ % habit.trickle.length] ?? "");
      if ((++ticks * TRICKLE_MS) % (habit.readsEveryMs ?? Infinity) === 0) socket.resume();
    }, TRICKLE_MS);
    clients.push(client);
  }
  return clients;
}
