/** Runs one round of load, and checks its answers and the stored plants. */

import { join } from "node:path";
import { readCpuSeconds, waitUntilIdle } from "./processes.ts";
import type { Sample } from "./results.ts";
import { ask, checkPlant, headers, plant, type Server, WrongAnswer } from "./servers.ts";
import { ANSWER_SECONDS_MAX, BULK_ROWS, CONNECTIONS, LOAD_CORE, STORED } from "./settings.ts";

export interface Load {
  readonly kind: "create" | "create-tagged" | "create-random" | "get" | "list";
  readonly connections?: number;
  readonly threads?: number;
  readonly listPath?: string;
  /** Sent instead of the service's own token. */
  readonly token?: string;
  /** The load shares all cores with the server. */
  readonly isShared?: boolean;
  /** The number of clients that follow the changes meanwhile. */
  readonly readers?: number;
  /** One more client creates plants meanwhile. */
  readonly hasWriter?: boolean;
  /** Reads pick a random id below this number. */
  readonly stored?: number;
  /** The server answers without storing. */
  readonly storesNothing?: boolean;
}

/** The result that requests.lua prints. */
interface Counted {
  readonly requests: number;
  readonly durationUs: number;
  /** Requests that were refused, cut off or timed out. */
  readonly failed: number;
  /** The number of creates sent, by thread. */
  readonly issued: readonly number[];
  readonly latency: Pick<Sample, "p50Ms" | "p99Ms" | "p999Ms">;
}

/** Each round has its own range of ids, above those of filled stores. */
const IDS_PER_ROUND = 100_000_000;

let rounds = 0;

/** `created` is the number of creates sent. All but those in flight at the end were acknowledged. */
export async function load(
  server: Server,
  about: Load,
  seconds: number,
): Promise<Sample & { readonly created: number }> {
  const first = ++rounds * IDS_PER_ROUND;
  const endReaders = await followChanges(server, about.readers ?? 0);
  const cpuBefore = readCpuSeconds(server.pids);
  const writer: Load = { ...about, kind: "create", connections: 1, threads: 1 };
  const [counted, beside] = await Promise.all([
    runWrk(server, about, first, seconds),
    about.hasWriter === true ? runWrk(server, writer, first, seconds) : undefined,
  ]).finally(endReaders);
  const { requests, durationUs, latency, loadUs } = counted;
  const failed = counted.failed + (beside?.failed ?? 0);
  const { issued } = beside ?? counted;
  const cpuSeconds = readCpuSeconds(server.pids) - cpuBefore;
  const rssMb = server.rssMb();
  if (failed > 0 || requests === 0 || beside?.requests === 0)
    throw new WrongAnswer(
      `${failed} of ${requests} requests were refused, cut off or timed out after ${ANSWER_SECONDS_MAX} s`,
    );
  await waitUntilIdle(server.pids);
  const ids = listIds(first, issued, about.kind);
  if (!about.storesNothing && ids.length > 0) await readBack(server, ids, about.kind);
  return {
    value: requests / (durationUs / 1e6),
    ...latency,
    rssMb,
    cpuUs: (cpuSeconds * 1e6) / requests,
    loadCores: loadUs / durationUs,
    ...(beside === undefined ? {} : { writes: beside.requests / (beside.durationUs / 1e6) }),
    created: ids.length,
  };
}

async function runWrk(
  { url, api }: Server,
  about: Load,
  first: number,
  seconds: number,
): Promise<Counted & { readonly loadUs: number }> {
  const { kind, connections = CONNECTIONS, threads = 1, isShared } = about;
  const { listPath = api.page, stored = STORED, token = api.token } = about;
  const child = Bun.spawn(
    [
      ...(isShared ? [] : ["taskset", "-c", LOAD_CORE]),
      "wrk",
      `-t${threads}`,
      `-c${connections}`,
      `-d${seconds}s`,
      `--timeout=${ANSWER_SECONDS_MAX}s`,
      `-s${join(import.meta.dir, "requests.lua")}`,
      url,
    ],
    {
      env: {
        ...process.env,
        BENCH_KIND: kind,
        BENCH_TOKEN: token,
        BENCH_FIRST: String(first),
        BENCH_IDS_PER_THREAD: String(idsPerThread(threads)),
        BENCH_STORED: String(stored),
        BENCH_LIST_PATH: listPath,
        BENCH_PATH: api.plants,
        BENCH_ID: api.isIdText === true ? '"%d"' : "%d",
      },
      stdout: "pipe",
    },
  );
  const output = await new Response(child.stdout).text();
  await child.exited;
  const line = /^RESULT (.*)$/m.exec(output)?.[1];
  if (line === undefined) throw new Error(`wrk printed no result:\n${output}`);
  const loadUs = Number(child.resourceUsage()?.cpuTime.total ?? 0n);
  return { ...(JSON.parse(line) as Counted), loadUs };
}

const idsPerThread = (threads: number): number => Math.floor(IDS_PER_ROUND / threads);

/** The formula of requests.lua, in the same doubles. */
const scatter = (number: number): number =>
  ((number * 40_503) % 2 ** 16) * 2 ** 36 + ((number * 69_069) % 2 ** 36);

/** The ids that were sent. `issued` is the number by thread. */
function listIds(first: number, issued: readonly number[], kind: Load["kind"]): number[] {
  const numbers = issued.flatMap((count, thread) => {
    const firstOfThread = first + thread * idsPerThread(issued.length);
    return Array.from({ length: count }, (_, index) => firstOfThread + index);
  });
  return kind === "create-random" ? numbers.map(scatter) : numbers;
}

const OK = "HTTP/1.1 200 ";

/** Starts clients that follow and read all changes from the newest on. Returns a function that stops them. */
async function followChanges({ url }: Server, count: number): Promise<() => void> {
  if (count === 0) return () => {};
  const newest = (await ask(`${url}/changes`, { method: "HEAD" })).headers.get("last-change");
  const { hostname, port } = new URL(url);
  const head = `GET /changes?after=${newest} HTTP/1.1\r\nHost: ${hostname}\r\nAccept: text/event-stream\r\n`;
  const follow = async () => {
    const { promise: answered, resolve, reject } = Promise.withResolvers<string>();
    let answer = "";
    const socket = await Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        // A busy runtime sends the head in small pieces.
        data: (_socket, bytes) => {
          if (answer.length < OK.length) answer += bytes.toString("latin1");
          if (answer.length >= OK.length) resolve(answer);
        },
        close: () => reject(new WrongAnswer("a reader of the changes was cut off")),
      },
    });
    socket.write(`${head}Authorization: ${headers.authorization}\r\n\r\n`);
    if (!(await answered).startsWith(OK)) throw new WrongAnswer(`the changes answer ${answer}`);
    return socket;
  };
  const sockets = await Promise.all(Array.from({ length: count }, follow));
  return () => sockets.forEach((socket) => socket.end());
}

const READ_BACK = 20;

/**
 * Reads a sample of the plants that were sent. A plant may be missing if it was in flight when the round ended; those
 * that are found must be as they were sent. Counting all rows detects a lost plant.
 */
async function readBack(
  { url, api }: Pick<Server, "url" | "api">,
  ids: readonly number[],
  kind: Load["kind"],
): Promise<void> {
  let found = 0;
  for (let trial = 0; trial < READ_BACK; trial++) {
    const id = ids[Math.floor(Math.random() * ids.length)] ?? Number.NaN;
    const response = await ask(`${url}${api.plants}/${id}`, {}, api.token);
    const answer: unknown = await response.json();
    if (response.status === 404) continue;
    if (!response.ok) throw new WrongAnswer(`GET of plant ${id} answers ${response.status}`);
    // wrk draws the tags of create-tagged at random.
    checkPlant(answer, kind === "create-tagged" ? undefined : plant.tag);
    found++;
  }
  if (found === 0) throw new WrongAnswer(`none of ${READ_BACK} plants that were sent is stored`);
}

/** Plants as NDJSON, from this id on. */
export const makeLines = (first = 0, rows = BULK_ROWS, name: string = plant.name): Buffer => {
  const ids = Array.from({ length: rows }, (_, index) => first + index);
  const lines = ids.map((id) => `{"id":${id},"name":"${name}","tag":"tag ${id % 50}"}\n`);
  return Buffer.from(lines.join(""));
};

/** Sends the lines to a server that has none of these plants. The query may name the batch. */
export const importInto = (
  server: Server,
  lines: Buffer,
  query = "",
  rows = BULK_ROWS,
  /** The end of a result, if the lines do more than create. */
  done = '"status":200}',
): Promise<Sample> =>
  timeBulk(server, rows, async () => {
    const response = await fetch(`${server.url}/plants/batch${query}`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/x-ndjson" },
      body: lines,
    });
    const results = await response.text();
    return () => results.split(done).length - 1;
  });

/** Changes the tag of all plants that have one, by one request. */
export const changeTag = (
  server: Server,
  from: string,
  to: string,
  rows: number,
): Promise<Sample> =>
  timeBulk(server, rows, async () => {
    const response = await fetch(`${server.url}/plants?tag=${encodeURIComponent(from)}`, {
      method: "PATCH",
      headers,
      body: JSON.stringify({ tag: to }),
    });
    const lines = (await response.text()).trim().split("\n");
    const { replaced, complete } = JSON.parse(lines.at(-1) ?? "") as Record<string, unknown>;
    return () => (complete === true ? Number(replaced) : 0);
  });

export const exportFrom = (server: Server, count: number): Promise<Sample> =>
  timeBulk(server, count, async () => {
    const response = await fetch(`${server.url}/plants`, {
      headers: { ...headers, accept: "application/x-ndjson", "accept-encoding": "identity" },
    });
    const chunks = await Array.fromAsync(response.body as ReadableStream<Uint8Array>);
    return () => {
      let lines = 0;
      for (const chunk of chunks) for (const byte of chunk) if (byte === 10) lines++;
      return lines;
    };
  });

/** Times from the first byte sent to the last byte received, then counts the plants. */
export async function timeBulk(
  server: Server,
  expected: number,
  act: () => Promise<() => number>,
): Promise<Sample> {
  const cpuBefore = readCpuSeconds(server.pids);
  const startedMs = performance.now();
  const count = await act();
  const seconds = (performance.now() - startedMs) / 1000;
  const cpuSeconds = readCpuSeconds(server.pids) - cpuBefore;
  const good = count();
  if (good !== expected) throw new WrongAnswer(`${good} of ${expected} plants succeeded`);
  return {
    value: expected / seconds,
    rssMb: server.rssMb(),
    cpuUs: (cpuSeconds * 1e6) / expected,
  };
}
