/**
 * Clients that take nothing of what they ask for, send nothing more of what they began, or do so very slowly: memory
 * stays bounded, others are served meanwhile, and the slow ones are cut off.
 */

import { Database } from "bun:sqlite";
import type { Socket } from "bun";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { makeStore } from "../support/stores.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import { formatRequest } from "./connection.ts";
import {
  type Budget,
  endsAfter,
  type Finding,
  runEach,
  type Scenario,
  within,
} from "./scenario.ts";
import {
  countDescriptors,
  measurePeakMemoryBytes,
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
const OPENED_TOGETHER = 50;

interface Terms {
  readonly clients: number;
  readonly holdSeconds: number;
  readonly settings: Readonly<Record<string, string>>;
}

/** What each client does. */
interface Attack {
  /** One request, or these in turns. */
  readonly sends: (url: string) => string | readonly string[] | Promise<string>;
  /** Sent byte by byte behind it, over and over. */
  readonly trickle?: string;
  /** Reads what comes. The service then ends the connection by itself, and says so if this is more than nothing. */
  readonly farewell?: RegExp;
}

export const memory: Scenario = {
  title: "clients that read or finish nothing cannot take more than 256 MB",
  missing: missingFigures,
  run: (budget) =>
    run(
      Object.fromEntries(Object.entries(attacks).map(([name, sends]) => [name, { sends }])),
      budget,
      {
        clients: budget.isShort ? 60 : 500,
        holdSeconds: budget.isShort ? 0.5 : 8,
        settings: {},
      },
    ),
};

export const slowClients: Scenario = {
  title: "slow and idle clients are cut off, and others are served meanwhile",
  missing: missingFigures,
  run: (budget) =>
    run(slow, budget, {
      clients: budget.isShort ? 60 : 1_000,
      holdSeconds: 0,
      settings: {
        ...limits({ readSecondsMax: 4, queueSecondsMax: 4, idleSecondsMax: 9 }),
      },
    }),
};

async function run(
  all: Readonly<Record<string, Attack>>,
  budget: Budget,
  terms: Terms,
): Promise<Finding> {
  const limiter = findLimiter();
  using folder = makeTemporaryFolder();
  const model = join(folder.path, "model.db");
  makeModel(model);
  const { figures, faults } = await runEach(Object.keys(all), budget, (name, { tell }) => {
    tell(`${terms.clients} clients: ${name}`);
    return attack(all[name] as Attack, terms, model, limiter);
  });
  const isLimited = Number(limiter.length > 0);
  return { figures: { "in a control group of 256 MB": isLimited, ...figures }, faults };
}

/**
 * A command that runs another in a control group, where the kernel ends it past the limit. Empty where there is no
 * systemd to make one: then only the resident memory is watched. It includes the pages of the program, which a
 * container can drop, and leaves out the buffers of sockets, which the kernel bounds by itself.
 */
function findLimiter(): readonly string[] {
  const scope = ["--scope", "--quiet", "--collect", "-p", "MemorySwapMax=0"];
  const limit = ["-p", `MemoryMax=${MEMORY_BYTES_MAX}`];
  const commands = [
    ["systemd-run", "--user", ...scope, ...limit],
    ["systemd-run", ...scope, ...limit],
  ];
  const works = (command: string[]): boolean =>
    Bun.which("systemd-run") !== null &&
    Bun.spawnSync([...command, "true"], { stdout: "ignore", stderr: "ignore" }).success;
  return commands.find(works) ?? [];
}

/** The store that every attack begins with. */
function makeModel(path: string): void {
  makeStore(path, PLANTS, "n".repeat(NAME_LENGTH));
  using db = new Database(path);
  db.run("INSERT INTO plants SELECT id + ?1, ?2, NULL FROM plants WHERE id <= ?3", [
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

/** On a service of its own: memory that one attack took does not count for the next. */
async function attack(
  kind: Attack,
  { clients, holdSeconds, settings }: Terms,
  model: string,
  limiter: readonly string[],
): Promise<Finding> {
  const prepare = (path: string): void => copyFileSync(model, path);
  await using service = await startTorturedService(settings, clients + 200, prepare, limiter);
  const faults: string[] = [];
  const requests = [await kind.sends(service.url)].flat();
  const before = countDescriptors(service.pid);
  const opened: SlowClient[] = [];
  while (opened.length < clients && service.isAlive()) {
    const length = Math.min(OPENED_TOGETHER, clients - opened.length);
    const opening = Array.from({ length }, (_, index) => {
      const request = requests[(opened.length + index) % requests.length] as string;
      return openSlow(service.url, request, kind);
    });
    opened.push(...(await Promise.all(opening)));
  }
  const countServed = (): number =>
    opened.filter(({ status }) => status > 0 && status < 500).length;
  const isHeld = endsAfter(holdSeconds);
  // Longer if the machine is so busy that none was answered yet.
  const isTooLate = endsAfter(PATIENCE_MS / 1_000);
  do {
    faults.push(...(await findFaults(service.url)));
    await Bun.sleep(100);
  } while ((!isHeld() || (countServed() === 0 && !isTooLate())) && service.isAlive());
  if (kind.farewell !== undefined) faults.push(...(await findUncut(opened, kind.farewell)));
  const served = countServed();
  for (const { socket } of opened) socket.terminate();
  if (!service.isAlive()) return { figures: {}, faults: [...faults, "the process died"] };
  faults.push(...(await findRefusalAfter(service, before)));
  const peakBytes = measurePeakMemoryBytes(service.pid);
  if (served === 0) faults.push("none was answered, so nothing was shown");
  if (peakBytes > MEMORY_BYTES_MAX)
    faults.push(`took ${Math.round(peakBytes / 1024 ** 2)} MB of memory`);
  const { exitCode, complaints } = await service.stop();
  if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  return {
    figures: { "not refused for want of room": served, "memory at most, MB": peakBytes / 1e6 },
    faults: [...faults, ...complaints],
  };
}

/** Those that the service has not ended, or not with these words. */
async function findUncut(opened: readonly SlowClient[], farewell: RegExp): Promise<string[]> {
  await within(PATIENCE_MS, Promise.all(opened.map(({ closed }) => closed)));
  const uncut = opened.filter(({ isOpen }) => isOpen).length;
  const others = opened.filter(({ text }) => !farewell.test(text));
  return [
    ...(uncut > 0 ? [`${uncut} are not cut off after ${PATIENCE_MS} ms`] : []),
    ...(others.length > 0 ? [`${others.length} were told ${others[0]?.text}`] : []),
  ];
}

/** The first two need no token, those that read one that may read, and the batches one that may write. */
const attacks: Readonly<Record<string, Attack["sends"]>> = {
  "unread script": async (url) => {
    const page = await (await fetch(`${url}/docs`)).text();
    const script = /<script[^>]* src="([^"]+)"/.exec(page)?.[1];
    if (script === undefined) throw new Error("the reference page has no script");
    const { pathname } = new URL(script, `${url}/docs`);
    return `GET ${pathname} HTTP/1.1\r\nHost: plants.example\r\n\r\n`;
  },
  "bodies without a token": () => formatBatch("1\n".repeat(2_000_000)).replace("Bearer", "Basic"),
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
  "large plants at once": () =>
    formatRequest("POST", "/plants", `{"id":-2,"name":"${"n".repeat(1_000_000)}"}`),
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

const TOO_SLOW = /^HTTP\/1\.1 408 [^]*"error":4008/;
const POST = formatRequest("POST", "/plants", "", "Content-Type: application/json\r\n");
const withLength = (body: string): string =>
  POST.replace("Content-Length: 0", "Content-Length: 500") + body;

/** The runtime gives a head about twelve seconds, whatever is configured. */
const slow: Readonly<Record<string, Attack>> = {
  "a head that trickles": {
    sends: () => [POST.replace(/\r\n\r\n$/, "\r\n"), formatRequest("GET", "/token")],
    trickle: "X-Slow: a\r\n",
    farewell: /^/,
  },
  "nothing after an answer": {
    sends: () => formatRequest("GET", "/token"),
    farewell: /^HTTP\/1\.1 200 /,
  },
  "a body that trickles": {
    sends: () => withLength('{"id":-1,"name":"'),
    trickle: "slow",
    farewell: TOO_SLOW,
  },
  "chunks that trickle": {
    sends: () => POST.replace("Content-Length: 0", "Transfer-Encoding: chunked"),
    trickle: "1\r\n \r\n",
    farewell: TOO_SLOW,
  },
  "a body that stops": { sends: () => withLength('{"id":-1,'), farewell: TOO_SLOW },
};

const formatArray = (): string =>
  formatRequest("POST", "/plants/batch", `[${'{"id":-3,"name":"n"},'.repeat(45_000)}1]`);

const formatLines = (count: number): string =>
  formatRequest(
    "POST",
    "/plants/batch",
    '{"id":-3,"name":"n"}\n'.repeat(count),
    "Content-Type: application/x-ndjson\r\n",
  );

const formatAs = (type: string, path: string): string =>
  formatRequest("GET", path).replace(/\r\n$/, `Accept: ${type}\r\n\r\n`);

/** Without its end. */
const formatBatch = (lines: string): string =>
  formatRequest("POST", "/plants/batch").replace(
    /\r\n$/,
    "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" +
      `${lines.length.toString(16)}\r\n${lines}\r\n`,
  );

const TRICKLE_MS = 250;

interface SlowClient {
  readonly socket: Socket;
  readonly closed: Promise<void>;
  isOpen: boolean;
  /** Of its answer, when it has begun. */
  status: number;
  /** The beginning of all that came. */
  text: string;
}

/** Sends as much of the request as the service takes. Reads nothing unless it waits for a farewell. */
async function openSlow(
  url: string,
  request: string,
  { trickle = "", farewell }: Attack,
): Promise<SlowClient> {
  const { hostname, port } = new URL(url);
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  let unsent: Uint8Array = Buffer.from(request);
  const write = (socket: Socket): void => {
    unsent = unsent.subarray(Math.max(0, socket.write(unsent)));
  };
  let at = 0;
  const timer = setInterval(() => {
    if (trickle !== "") client.socket.write(trickle[at++ % trickle.length] ?? "");
  }, TRICKLE_MS);
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
        client.status ||= Number(bytes.toString("latin1", 9, 12));
        if (client.text.length < 1_000) client.text += bytes.toString("latin1", 0, 1_000);
        if (farewell === undefined) reading.pause();
      },
      drain: write,
      close: end,
      error: end,
    },
  });
  const client: SlowClient = { socket, closed, isOpen: true, status: 0, text: "" };
  write(socket);
  return client;
}

const HEADERS = { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" };

/** The statuses of /livez, a small page and a create, or why there are none. */
async function askAll(
  url: string,
): Promise<{ live: number; page: number; created: number } | string> {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const statusOf = async (path: string, init: RequestInit = {}): Promise<number> => {
    const response = await fetch(url + path, { headers: HEADERS, signal, ...init });
    await response.bytes();
    return response.status;
  };
  try {
    return {
      live: await statusOf("/livez"),
      page: await statusOf("/plants?limit=10"),
      created: await statusOf("/plants", { method: "POST", body: '{"id":-1,"name":"beside"}' }),
    };
  } catch (error) {
    return `no answer: ${(error as Error).message}`;
  }
}

/** Others are answered meanwhile. A page and a create may be refused for now. */
async function findFaults(url: string): Promise<string[]> {
  const found = await askAll(url);
  if (typeof found === "string") return [found];
  const isServed = [found.page, found.created].every((status) => status === 200 || status === 503);
  return found.live === 200 && isServed ? [] : [`others were answered ${JSON.stringify(found)}`];
}

/** When they are gone, everything is served again, and their descriptors are given back. */
async function findRefusalAfter(
  { url, pid }: TorturedService,
  descriptorsBefore: number,
): Promise<string[]> {
  try {
    await until("all is served again", async () => {
      const found = await askAll(url);
      return typeof found !== "string" && found.page === 200 && found.created === 200;
    });
    await until(
      "the connections are closed",
      () => countDescriptors(pid) <= descriptorsBefore + DESCRIPTORS_MORE_MAX,
    );
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

/** Of the harness itself, which keeps some connections. */
const DESCRIPTORS_MORE_MAX = 10;
