/** Clients that take nothing of what they ask for, or send nothing more of what they began: memory stays bounded. */

import { Database } from "bun:sqlite";
import type { Socket } from "bun";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { makeStore } from "../support/stores.ts";
import { formatRequest } from "./connection.ts";
import { type Budget, type Finding, runEach, type Scenario } from "./scenario.ts";
import { measurePeakMemoryBytes, missingFigures, startTorturedService } from "./service.ts";

/** A small container's. */
const MEMORY_BYTES_MAX = 256 * 1024 ** 2;
const PLANTS = 5_000;
const NAME_LENGTH = 10_000;
/** Behind the others: names of a megabyte, in the form that takes the most memory. */
const LARGE_PLANTS = 10;
const LARGE_LENGTH = 349_000;
const LARGE_CHANGES = 60;
const LONG = { clients: 500, holdSeconds: 8 };
const SHORT = { clients: 60, holdSeconds: 0.5 };
const OPENED_TOGETHER = 50;
const ANSWER_MS_MAX = 60_000;

export const memory: Scenario = {
  title: "unread downloads and pages, and unfinished batches, in 256 MB",
  missing: missingFigures,
  run,
};

async function run(budget: Budget): Promise<Finding> {
  const limiter = findLimiter();
  using folder = makeTemporaryFolder();
  const model = join(folder.path, "model.db");
  makeModel(model);
  const { figures, faults } = await runEach(
    Object.keys(attacks),
    budget,
    (name, { tell, isShort }) => {
      tell(`${(isShort ? SHORT : LONG).clients} clients: ${name}`);
      return attack(attacks[name] as Attack, isShort ? SHORT : LONG, model, limiter);
    },
  );
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
  findRequest: Attack,
  { clients, holdSeconds }: typeof LONG,
  model: string,
  limiter: readonly string[],
): Promise<Finding> {
  const prepare = (path: string): void => copyFileSync(model, path);
  await using service = await startTorturedService({}, clients + 200, prepare, limiter);
  const faults: string[] = [];
  const requests = [await findRequest(service.url)].flat();
  const sockets: Socket[] = [];
  let served = 0;
  const onAnswer = (status: number): void => void (served += status < 500 ? 1 : 0);
  while (sockets.length < clients && service.isAlive()) {
    const length = Math.min(OPENED_TOGETHER, clients - sockets.length);
    const opened = Array.from({ length }, (_, index) =>
      openDeaf(
        service.url,
        requests[(sockets.length + index) % requests.length] as string,
        onAnswer,
      ),
    );
    sockets.push(...(await Promise.all(opened)));
  }
  const heldAtMs = performance.now();
  // Longer if the machine is so busy that none was answered yet.
  const isEnough = (): boolean =>
    performance.now() - heldAtMs > (served > 0 ? holdSeconds * 1_000 : ANSWER_MS_MAX);
  do {
    faults.push(...(await findFaults(service.url)));
    await Bun.sleep(100);
  } while (!isEnough() && service.isAlive());
  for (const socket of sockets) socket.terminate();
  if (!service.isAlive()) return { figures: {}, faults: [...faults, "the process died"] };
  faults.push(...(await findRefusalAfter(service.url)));
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

/** What each client sends: one request, or these in turns. */
type Attack = (url: string) => string | readonly string[] | Promise<string>;

/** The first two need no token, those that read one that may read, and the batches one that may write. */
const attacks: Readonly<Record<string, Attack>> = {
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
  "arrays of short plants at once": () =>
    formatRequest("POST", "/plants/batch", `[${'{"id":-3,"name":"n"},'.repeat(45_000)}1]`),
  "bodies of many values at once": () =>
    formatRequest("POST", "/plants", `{"id":1.5,"z":[${"1,".repeat(500_000)}1]}`),
  "a mix": () => [
    formatRequest("POST", "/plants/batch", `[${'{"id":-3,"name":"n"},'.repeat(45_000)}1]`),
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

/** Sends as much of the request as the service takes, and reads nothing. */
async function openDeaf(
  url: string,
  request: string,
  onAnswer: (status: number) => void,
): Promise<Socket> {
  const { hostname, port } = new URL(url);
  let unsent: Uint8Array = Buffer.from(request);
  const write = (socket: Socket): void => {
    unsent = unsent.subarray(Math.max(0, socket.write(unsent)));
  };
  const socket: Socket = await Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      data(reading, bytes) {
        onAnswer(Number(bytes.toString("latin1", 9, 12)));
        reading.pause();
      },
      drain: write,
      close() {},
      error() {},
    },
  });
  write(socket);
  return socket;
}

const HEADERS = { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" };

/** The statuses of /livez, a small page and a create, or why there are none. */
async function askAll(
  url: string,
): Promise<{ live: number; page: number; created: number } | string> {
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
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

/** When they are gone, everything is served again. */
async function findRefusalAfter(url: string): Promise<string[]> {
  const endsAtMs = performance.now() + ANSWER_MS_MAX;
  for (;;) {
    const found = await askAll(url);
    if (typeof found !== "string" && found.page === 200 && found.created === 200) return [];
    if (performance.now() > endsAtMs) return [`afterwards: ${JSON.stringify(found)}`];
    await Bun.sleep(100);
  }
}
