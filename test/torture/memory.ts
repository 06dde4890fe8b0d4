/** Clients that read nothing of their answers, or finish nothing that they send: memory stays bounded, others are served. */

import { Database } from "bun:sqlite";
import type { Socket } from "bun";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { makeStore } from "../support/stores.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import { batchHead, chunk, formatRequest, getHead } from "../support/wire.ts";
import { type Budget, endsAfter, type Finding, runEach, type Scenario } from "./scenario.ts";
import {
  ask,
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
  type TorturedService,
} from "./service.ts";

/** A small container's. */
const MEMORY_BYTES_MAX = 256 * 1024 ** 2;
const PLANTS = 5_000;
const NAME_LENGTH = 10_000;
/** Behind the others: names of a megabyte, in the form that takes the most memory. */
const LARGE_PLANTS = 10;
const LARGE_LENGTH = 349_000;
const LARGE_CHANGES = 60;

export const memory: Scenario = {
  title: "clients that read or finish nothing cannot take more than 256 MB",
  missing: missingFigures,
  run: async (budget) => {
    using folder = makeTemporaryFolder();
    const model = join(folder.path, "model.db");
    makeModel(model);
    // Not without waiting: the model would be gone.
    return await runEach(Object.keys(attacks), budget, (name, each) => {
      each.tell(name);
      return attack(attacks[name] as Attack, each, model);
    });
  },
};

/** The store that every attack begins with. */
function makeModel(path: string): void {
  makeStore(path, PLANTS, "n".repeat(NAME_LENGTH));
  using db = new Database(path);
  db.run("INSERT INTO plants (id, name) SELECT id + ?1, ?2 FROM plants WHERE id <= ?3", [
    PLANTS,
    "€".repeat(LARGE_LENGTH),
    LARGE_PLANTS,
  ]);
  db.run(
    `INSERT INTO changes (last, first, at_ms, entries)
      SELECT id + newest, id + newest, ?1, json_array('c', NULL, id, ?2, NULL)
      FROM plants, (SELECT max(last) AS newest FROM changes) WHERE id <= ?3`,
    [Date.now(), "€".repeat(LARGE_LENGTH), LARGE_CHANGES],
  );
}

/** What each client sends: one request, or any of these. */
type Attack = (url: string) => string | readonly string[] | Promise<string>;

/** On a service of its own: memory that one attack took does not count for the next. */
async function attack(
  sends: Attack,
  { random, isShort = false }: Budget,
  model: string,
): Promise<Finding> {
  const clients = isShort ? 60 : 500;
  await using service = await startTorturedService({}, clients + 200, model);
  const faults: string[] = [];
  const requests = [await sends(service.url)].flat();
  const before = countDescriptors(service.pid);
  const opening = Array.from({ length: clients }, () =>
    openDeaf(service.url, random.pick(requests)),
  );
  const opened = await Promise.all(opening);
  const countServed = (): number =>
    opened.filter(({ status }) => status > 0 && status < 500).length;
  const isHeld = endsAfter(isShort ? 0.5 : 8);
  // Longer if the machine is so busy that none was answered yet.
  const isTooLate = endsAfter(PATIENCE_MS / 1_000);
  do {
    faults.push(...(await findFaults(service.url)));
    await Bun.sleep(100);
  } while ((!isHeld() || (countServed() === 0 && !isTooLate())) && service.isAlive());
  const served = countServed();
  for (const { socket } of opened) socket.terminate();
  // After they left: how much the service does until it answers depends on the machine.
  const linesBefore = await countLines(service.url);
  if (!service.isAlive()) return { figures: {}, faults: [...faults, ...(await service.stop())] };
  await untilAllIsWell(service, before).catch((error: Error) => faults.push(error.message));
  const peakBytes = measureMemoryBytes(service.pid, "VmHWM");
  const lines = (await countLines(service.url)) - linesBefore;
  if (served === 0) faults.push("none was answered, so nothing was shown");
  if (lines > clients * LINES_LATE_MAX)
    faults.push(`worked on ${lines} lines of clients that left`);
  if (peakBytes > MEMORY_BYTES_MAX)
    faults.push(`took ${Math.round(peakBytes / 1024 ** 2)} MB of memory`);
  return {
    figures: { "not refused for want of room": served, "memory at most, MB": peakBytes / 1e6 },
    faults: [...faults, ...(await service.stop())],
  };
}

/** The first three need no token, those that read one that may read, and the batches one that may write. */
const attacks: Readonly<Record<string, Attack>> = {
  "unread description": () => "GET /openapi.json HTTP/1.1\r\nHost: plants.example\r\n\r\n",
  "unread script": async (url) => {
    const page = await (await fetch(`${url}/docs`)).text();
    const script = /<script[^>]* src="([^"]+)"/.exec(page)?.[1];
    if (script === undefined) throw new Error("the reference page has no script");
    const { pathname } = new URL(script, `${url}/docs`);
    return `GET ${pathname} HTTP/1.1\r\nHost: plants.example\r\n\r\n`;
  },
  "bodies without a token": () => formatBatch("1\n".repeat(2_000_000)).replace("Bearer", "Basic"),
  "unread metrics": () => formatRequest("GET", "/metrics"),
  "unread pages of 60 kB": () => formatRequest("GET", "/plants?limit=6"),
  "unread pages": () => formatRequest("GET", "/plants?limit=1000"),
  "unread exports": () => formatAs("application/x-ndjson", "/plants"),
  "unread exports as CSV": () => formatAs("text/csv", "/plants"),
  "unread changes": () => formatAs("application/x-ndjson", "/changes"),
  "unread events": () => formatAs("text/event-stream", "/changes"),
  "unread pages of changes": () => formatRequest("GET", "/changes?limit=1000"),
  "unread large plants": () => formatRequest("GET", `/plants/${PLANTS + 1}`),
  "unread pages of large plants": () => formatRequest("GET", `/plants?after=${PLANTS}`),
  "unfinished batches": () => formatBatch(`{"id":1,"name":"${"n".repeat(1_000_000)}`),
  "unread results": () => formatBatch("1\n".repeat(2_000_000)),
  "unfinished plants in chunks": () => formatChunked(`{"id":-2,"name":"${"n".repeat(60_000)}`),
  "large plants at once": () => formatCreate("n".repeat(1_000_000)),
  // One wide character doubles the memory of the others.
  "plants of 60 kB at once": () => formatCreate(`€${"n".repeat(60_000)}`),
  "plants of 250 kB at once": () => formatCreate(`\\u20ac${"n".repeat(250_000)}`),
  "batches of short lines at once": () => formatLines(45_000),
  // As many as the store gets of a batch at one time. All are let in, because their bodies are small.
  "small batches at once": () => formatLines(512),
  "arrays of short plants at once": () => formatArray(),
  "bodies of many values at once": () =>
    formatRequest("POST", "/plants", `{"id":1.5,"z":[${"1,".repeat(500_000)}1]}`),
  "a mix": () => [
    formatArray(),
    formatRequest("POST", "/plants", `{"id":1.5,"z":${"[1,".repeat(900)}1${"]".repeat(900)}}`),
    formatRequest("POST", "/plants", `{"id":1.5,"z":[${"[12345678901],".repeat(74_000)}1]}`),
    formatRequest("GET", "/plants?q=nnn&limit=1000"),
    formatRequest("GET", `/plants?name=€&after=${PLANTS - 1}`),
    formatRequest("GET", `/plants/${PLANTS + 1}`),
    formatAs("text/event-stream", "/changes"),
    formatAs("application/x-ndjson", "/changes"),
    formatAs("application/x-ndjson", "/plants"),
    formatAs("text/csv", "/plants"),
  ],
};

const formatCreate = (name: string): string =>
  formatRequest("POST", "/plants", `{"id":-2,"name":"${name}"}`);

/** Without its end. */
const formatChunked = (text: string): string =>
  formatRequest("POST", "/plants").replace(
    /\r\n$/,
    `Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunk(text)}`,
  );

const formatArray = (): string =>
  formatRequest("POST", "/plants/batch", `[${'{"id":-3,"name":"n"},'.repeat(45_000)}1]`);

const NDJSON = "Content-Type: application/x-ndjson\r\n";

const formatLines = (count: number): string =>
  formatRequest("POST", "/plants/batch", '{"id":-3,"name":"n"}\n'.repeat(count), NDJSON);

const formatAs = (type: string, path: string): string => getHead(path, `Accept: ${type}`);

/** Without its end. */
const formatBatch = (lines: string): string => batchHead() + chunk(lines);

/** Where the status ends in the first line of an answer. */
const STATUS_END = "HTTP/1.1 200".length;

interface DeafClient {
  readonly socket: Socket;
  /** The status of the answer, once it has begun. */
  status: number;
}

/** Sends as much of the request as the service takes, and reads nothing. */
async function openDeaf(url: string, request: string): Promise<DeafClient> {
  const { hostname, port } = new URL(url);
  let unsent: Uint8Array = Buffer.from(request);
  let head = "";
  const write = (socket: Socket): void => {
    unsent = unsent.subarray(Math.max(0, socket.write(unsent)));
  };
  const socket: Socket = await Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      data(reading, bytes) {
        // A busy runtime sends the head in small pieces.
        head += bytes.toString("latin1");
        if (head.length < STATUS_END) return;
        client.status = Number(head.slice(STATUS_END - 3, STATUS_END));
        reading.pause();
      },
      drain: write,
    },
  });
  const client: DeafClient = { socket, status: 0 };
  write(socket);
  return client;
}

/** The statuses of /livez, a small page and a create: 0 where there is no answer. */
async function askAll(url: string): Promise<{ live: number; page: number; created: number }> {
  const headers = { "content-type": "application/json" };
  const body = '{"id":-1,"name":"beside"}';
  const signal = AbortSignal.timeout(PATIENCE_MS);
  return {
    live: (await ask(`${url}/livez`, { signal })).status,
    page: (await ask(`${url}/plants?limit=10`, { signal })).status,
    created: (await ask(`${url}/plants`, { method: "POST", headers, body, signal })).status,
  };
}

/** Others are answered meanwhile. A page and a create may be refused for now. */
async function findFaults(url: string): Promise<string[]> {
  const found = await askAll(url);
  const isServed = [found.page, found.created].every((status) => status === 200 || status === 503);
  return found.live === 200 && isServed ? [] : [`others were answered ${JSON.stringify(found)}`];
}

/** Lines of batches that the service has worked on; 0 if it does not answer. */
async function countLines(url: string): Promise<number> {
  const { text } = await ask(`${url}/metrics`);
  const counts = text.matchAll(/^plantstore_batch_lines_total\{[^}]*\} (\d+)$/gm);
  return counts.reduce((sum, [, count]) => sum + Number(count), 0);
}

/** For each client that left: a block in work, and one or two more. */
const LINES_LATE_MAX = 1_536;

/** When they are gone, everything is served again, and their descriptors are given back. */
async function untilAllIsWell({ url, pid }: TorturedService, descriptors: number): Promise<void> {
  await until("all is served again", async () => {
    const { page, created } = await askAll(url);
    return page === 200 && created === 200;
  });
  await until(
    "the connections are closed",
    () => countDescriptors(pid) <= descriptors + DESCRIPTORS_MORE_MAX,
  );
}

/** Connections that the harness itself keeps. */
const DESCRIPTORS_MORE_MAX = 3;
