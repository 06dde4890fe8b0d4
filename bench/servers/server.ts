/** Any server that is measured: started, asked until it gives the right answer, stopped. */

import { readFileSync } from "node:fs";
import { findFreePort } from "../../test/support/postgres-files.ts";
import { takeTrialId } from "../ids.ts";
import { readRssMb } from "../processes.ts";
import { ANSWER_SECONDS_MAX, SERVER_CORE, TOKEN } from "../settings.ts";
import { makePath } from "../stores.ts";

/** How a server is to be asked, and what its right answers are. */
export interface Api {
  readonly createPath: string;
  readonly createStatus: number;
  /** An id is put behind it, after a slash. */
  readonly getPath: string;
  readonly listPath: string;
  /** A plant as it stands in an answer. */
  readonly findPlant: (answer: unknown) => unknown;
}

export const plantsApi: Api = {
  createPath: "/plants",
  createStatus: 200,
  getPath: "/plants",
  listPath: "/plants?limit=100",
  findPlant: (answer) => answer,
};

export interface Server {
  readonly url: string;
  readonly api: Api;
  /** From the start of its process to its first right answer to a create. */
  readonly startMs: number;
  /** Everything that works for a request: the server, and a database behind it. */
  readonly pids: readonly number[];
  readonly rssMb: () => number;
  readonly durability: string;
  readonly stop: () => Promise<void>;
}

export interface ServerOptions {
  readonly command: readonly string[];
  /** PORT is added. */
  readonly env?: Readonly<Record<string, string>>;
  readonly port?: number;
  readonly cwd?: string;
  readonly api?: Api;
  /** No core of its own, but all of them, with everyone else. */
  readonly isShared?: boolean;
  /** Of a database behind it. */
  readonly supportingPids?: readonly number[];
  /** How it keeps what it acknowledges: told by the line that it prints at the start, where it prints one. */
  readonly durability?: string | ((line: string) => string);
}

const START_MS_MAX = 60_000;
export const name = "Monstera deliciosa";
export const tag = "tropical";
export const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };

const running = new Set<Bun.Subprocess>();
/** However the benchmark ends, nothing of it goes on. */
process.on("exit", () => {
  for (const child of running) child.kill();
});

/** Resolves when the server has answered a create as it should. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { command, env = {}, port = findFreePort(), api = plantsApi, isShared = false } = options;
  const { supportingPids = [], durability = "" } = options;
  const outputPath = makePath("output.txt");
  const errorsPath = makePath("errors.txt");
  const startedMs = performance.now();
  const child = Bun.spawn([...(isShared ? [] : ["taskset", "-c", SERVER_CORE]), ...command], {
    env: { ...process.env, ...env, PORT: String(port) },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    stdout: Bun.file(outputPath),
    stderr: Bun.file(errorsPath),
  });
  running.add(child);
  const url = `http://127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    child.kill();
    await child.exited;
    running.delete(child);
  };
  try {
    await answerCreate(url, api, child);
    const startMs = performance.now() - startedMs;
    const errors = readFileSync(errorsPath, "utf8");
    // Whoever measures a setting has to know that there is one.
    if (errors.includes("unknown_setting")) throw new Error("it does not know a setting");
    return {
      url,
      api,
      startMs,
      pids: [child.pid, ...supportingPids],
      rssMb: () => readRssMb([child.pid]),
      durability:
        typeof durability === "string" ? durability : durability(await readLine(outputPath)),
      stop,
    };
  } catch (error) {
    await stop();
    const last = readFileSync(errorsPath, "utf8").trim().split("\n").slice(-5).join(" ");
    throw new Error(`${(error as Error).message}${last === "" ? "" : `: ${last}`}`, {
      cause: error,
    });
  }
}

async function answerCreate(url: string, api: Api, child: Bun.Subprocess): Promise<void> {
  const body = JSON.stringify({ id: takeTrialId(), name, tag });
  const startedMs = performance.now();
  let last = "nothing";
  while (performance.now() - startedMs < START_MS_MAX) {
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Error(`ended with ${child.exitCode ?? child.signalCode} before it answered`);
    try {
      const response = await ask(url + api.createPath, { method: "POST", body });
      const text = await response.text();
      last = `${response.status} ${text.slice(0, 200)}`;
      if (response.status === api.createStatus) return checkPlant(api, JSON.parse(text), tag);
      if (response.ok) break;
    } catch (error) {
      // Refused connections are to be expected; one that is taken and left unanswered is not.
      if (error instanceof WrongAnswer || (error as Error).name === "TimeoutError") throw error;
    }
    await Bun.sleep(1);
  }
  throw new Error(`answered a create with ${last}`);
}

/** A server may answer before it has printed. */
async function readLine(path: string): Promise<string> {
  const untilMs = performance.now() + ANSWER_SECONDS_MAX * 1000;
  while (performance.now() < untilMs) {
    const [line = "", ...rest] = readFileSync(path, "utf8").split("\n");
    if (rest.length > 0) return line;
    await Bun.sleep(5);
  }
  throw new Error("it printed nothing");
}

/** One request of our own, which has to be answered in time. */
export const ask = (url: string, init: RequestInit = {}): Promise<Response> =>
  fetch(url, { ...init, headers, signal: AbortSignal.timeout(ANSWER_SECONDS_MAX * 1000) });

export class WrongAnswer extends Error {}

/** Throws where an answer does not show the plant that was sent. */
export function checkPlant(api: Api, answer: unknown, expectedTag: string | undefined): void {
  const plant = api.findPlant(answer) as { name?: unknown; tag?: unknown } | undefined;
  const isRight = plant?.name === name && (expectedTag === undefined || plant.tag === expectedTag);
  if (!isRight) throw new WrongAnswer(`a plant came back as ${JSON.stringify(answer)}`);
}
