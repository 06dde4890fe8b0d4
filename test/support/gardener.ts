/** Tends plants that nobody else touches, on a service that may fail: what each of them has to be is known. */

import { entityTagOf } from "../../src/domain/plant.ts";
import { isSamePlant, type StoredPlant, toBody } from "./plants.ts";
import type { Random } from "./random.ts";
import { TEST_TOKEN } from "./service.ts";

/** Undefined where there is no plant. */
type State = StoredPlant | undefined;

interface Task {
  readonly method: "POST" | "PUT" | "DELETE";
  readonly id: bigint;
  readonly before: State;
  readonly after: State;
  readonly isConditional: boolean;
}

interface Surroundings {
  /** Where the next request goes. */
  readonly findUrl: () => string;
  /** Resolves when what was cut off has had its effect, or never will have. */
  readonly untilQuiet?: () => Promise<void>;
  readonly onAcknowledged?: (sentAtMs: number) => void;
  readonly onUnsettled?: () => void;
  /** New plants that are now and then sent together; none are where this is missing. */
  readonly batchLengthMax?: number;
  /** Names are as long as that, or shorter. */
  readonly nameLengthMax?: number;
  /** No whole answer came from there. */
  readonly onLost?: (url: string) => void;
}

/** What a task is answered when it is done, and, where an earlier answer was lost, when it was done then. */
const answers = {
  POST: { done: 200, wasDone: 200 },
  PUT: { done: 200, wasDone: 412 },
  DELETE: { done: 204, wasDone: 404 },
};

const RETRY_MS = 20;
/** Far beyond what the service promises: whoever waits so long would wait for ever. */
const ANSWER_MS_MAX = 20_000;
const PLANTS_MAX = 50;

class Gardener {
  /** By id, all that the plant may be: one thing, unless the last answer about it is missing. */
  readonly expected = new Map<bigint, readonly State[]>();
  readonly faults: string[] = [];
  acknowledged = 0;
  /** Requests that may have been done or not: refused for now, or cut off. */
  unsettled = 0;
  answerMsMax = 0;
  private readonly surroundings: Surroundings;
  private readonly random: Random;
  private readonly ids: Iterator<bigint>;
  private plants: StoredPlant[] = [];
  private serial = 0;

  constructor(surroundings: Surroundings, random: Random, ids: Iterator<bigint>) {
    this.surroundings = surroundings;
    this.random = random;
    this.ids = ids;
  }

  async work(isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const plant = this.plants.length === 0 ? undefined : this.random.pick(this.plants);
      if (plant !== undefined && this.random.chance(15)) await this.look(plant);
      else if (this.surroundings.batchLengthMax !== undefined && this.random.chance(10))
        await this.performTogether(this.surroundings.batchLengthMax, isOver);
      else await this.perform(this.nextTask(plant), isOver);
    }
  }

  /** Mostly a new plant; else the given one is replaced or removed, or made again where it was removed. */
  private nextTask(plant: State): Task {
    const { random } = this;
    const isNew = plant === undefined || random.chance(50);
    const id = isNew ? (this.ids.next().value as bigint) : plant.id;
    const before = isNew ? undefined : plant;
    const after = this.imaginePlant(id);
    if (before === undefined) return { method: "POST", id, before, after, isConditional: false };
    return random.chance(60)
      ? { method: "PUT", id, before, after, isConditional: true }
      : { method: "DELETE", id, before, after: undefined, isConditional: random.chance(50) };
  }

  /** No two are alike, in any part of their names. */
  private imaginePlant(id: bigint): StoredPlant {
    const { random } = this;
    const name = `${id} ${this.serial++}`;
    const { nameLengthMax = 0 } = this.surroundings;
    const length = nameLengthMax === 0 ? 0 : random.below(nameLengthMax);
    return { id, name: name.padEnd(length, ` ${name}`), tag: random.chance(30) ? null : "tended" };
  }

  private async perform(task: Task, isOver: () => boolean): Promise<void> {
    const { id, before, after } = task;
    const { done, wasDone } = answers[task.method];
    // Until it is known again, nobody builds on it.
    this.plants = this.plants.filter((plant) => plant.id !== id);
    this.expected.set(id, [before, after]);
    for (let attempts = 1; ; attempts++) {
      const sentAtMs = performance.now();
      const status = (await this.send(task))?.status;
      const isDone = status === done || (attempts > 1 && status === wasDone);
      if (isDone) return this.settle(id, after, sentAtMs);
      if (status !== undefined && status !== 503) {
        this.faults.push(`${id}: ${task.method} (attempt ${attempts}) was answered ${status}`);
        return;
      }
      this.unsettled++;
      this.surroundings.onUnsettled?.();
      if (isOver()) return;
      await this.surroundings.untilQuiet?.();
      await Bun.sleep(RETRY_MS);
    }
  }

  /** New plants, each of which is done or not by itself. */
  private async performTogether(lengthMax: number, isOver: () => boolean): Promise<void> {
    let left = Array.from({ length: 1 + this.random.below(lengthMax) }, () =>
      this.imaginePlant(this.ids.next().value as bigint),
    );
    for (const plant of left) this.expected.set(plant.id, [undefined, plant]);
    for (;;) {
      const sentAtMs = performance.now();
      const statuses = await this.sendTogether(left);
      const judged = left.map((plant, index) => ({ plant, status: statuses[index] }));
      for (const { plant, status } of judged) {
        if (status === 200) this.settle(plant.id, plant, sentAtMs);
        else if (status !== undefined && status !== 503)
          this.faults.push(`${plant.id}: in a batch, was answered ${status}`);
      }
      left = judged
        .filter(({ status }) => status === undefined || status === 503)
        .map(({ plant }) => plant);
      if (left.length === 0) return;
      this.unsettled += left.length;
      this.surroundings.onUnsettled?.();
      if (isOver()) return;
      await this.surroundings.untilQuiet?.();
      await Bun.sleep(RETRY_MS);
    }
  }

  private settle(id: bigint, after: State, sentAtMs: number): void {
    this.expected.set(id, [after]);
    if (after !== undefined) this.plants = [...this.plants, after].slice(-PLANTS_MAX);
    this.acknowledged++;
    this.surroundings.onAcknowledged?.(sentAtMs);
  }

  /** What was acknowledged is read, never what was there before. */
  private async look(plant: StoredPlant): Promise<void> {
    const response = await this.send({ method: "GET", id: plant.id });
    if (response === undefined || response.status === 503) return;
    const read = response.status === 200 ? (response.body as { name: string; tag?: string }) : {};
    if (!isSamePlant(plant, { name: "", tag: null, ...read, id: plant.id }))
      this.faults.push(`${plant.id}: read otherwise than it was acknowledged`);
  }

  /** Undefined where the connection was lost. */
  private async send(
    task: Task | { readonly method: "GET"; readonly id: bigint },
  ): Promise<{ readonly status: number; readonly body: unknown } | undefined> {
    const { method, id } = task;
    const headers: Record<string, string> = { authorization: `Bearer ${TEST_TOKEN}` };
    const init: RequestInit = { method, headers, signal: AbortSignal.timeout(ANSWER_MS_MAX) };
    if (method !== "GET" && task.after !== undefined) {
      headers["content-type"] = "application/json";
      init.body = toBody(task.after);
    }
    if (method !== "GET" && task.isConditional && task.before !== undefined)
      headers["if-match"] = entityTagOf({ ...task.before, tag: task.before.tag ?? undefined });
    const url = this.surroundings.findUrl();
    const sentAtMs = performance.now();
    try {
      const path = method === "POST" ? "/plants" : `/plants/${id}`;
      const response = await fetch(url + path, init);
      const text = await response.text();
      if (response.status === 503 && !/^[1-9]\d*$/.test(response.headers.get("retry-after") ?? ""))
        this.faults.push(`${id}: refused for now, without saying for how long`);
      return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
    } catch (error) {
      if ((error as Error).name === "TimeoutError") this.faults.push(`${id}: no answer at all`);
      this.surroundings.onLost?.(url);
      return undefined;
    } finally {
      this.answerMsMax = Math.max(this.answerMsMax, performance.now() - sentAtMs);
    }
  }

  private async sendTogether(
    plants: readonly StoredPlant[],
  ): Promise<readonly (number | undefined)[]> {
    const url = this.surroundings.findUrl();
    const sentAtMs = performance.now();
    try {
      const signal = AbortSignal.timeout(ANSWER_MS_MAX);
      const { statuses, whole } = await sendBatch(url, plants, signal);
      if (whole !== undefined && whole.status !== 503)
        this.faults.push(`a batch was answered ${whole.status}`);
      return statuses;
    } catch {
      this.faults.push(`a batch of ${plants.length}: no answer at all`);
      return [];
    } finally {
      this.answerMsMax = Math.max(this.answerMsMax, performance.now() - sentAtMs);
    }
  }
}

const shorten = (text: string): string => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

/** Everything in which these rows differ from what the gardeners were told. */
export function compareGardens(
  gardeners: readonly Gardener[],
  rows: readonly StoredPlant[],
): string[] {
  const stored = new Map(rows.map((row) => [row.id, row]));
  const faults = gardeners.flatMap((gardener) => gardener.faults);
  for (const { expected } of gardeners)
    for (const [id, states] of expected) {
      const row = stored.get(id);
      stored.delete(id);
      const isExpected = states.some((state) =>
        state === undefined || row === undefined ? state === row : isSamePlant(state, row),
      );
      if (isExpected) continue;
      if (row === undefined) faults.push(`${id}: acknowledged, and lost`);
      else if (states.every((state) => state === undefined))
        faults.push(`${id}: removed, and back again`);
      else faults.push(`${id}: acknowledged, and otherwise: ${shorten(row.name)}`);
    }
  for (const id of stored.keys()) faults.push(`${id}: stored, and never sent`);
  return faults;
}

/** Several at one time. */
export class Gardeners implements AsyncDisposable {
  readonly all: readonly Gardener[];
  private readonly working: Promise<void>;
  private readonly acknowledging = new Countdowns();
  private readonly unsettling = new Countdowns();
  private isOver = false;

  constructor(length: number, surroundings: Surroundings, random: Random) {
    const here: Surroundings = {
      ...surroundings,
      onAcknowledged: (sentAtMs) => this.acknowledging.count(sentAtMs),
      onUnsettled: () => this.unsettling.count(performance.now()),
    };
    this.all = Array.from(
      { length },
      (_, index) => new Gardener(here, random, countFrom(index, length)),
    );
    const isOver = (): boolean => this.isOver;
    this.working = Promise.all(this.all.map((gardener) => gardener.work(isOver))).then(() => {});
  }

  get unsettled(): number {
    return sum(this.all.map((gardener) => gardener.unsettled));
  }

  get answerMsMax(): number {
    return Math.max(...this.all.map((gardener) => gardener.answerMsMax));
  }

  /** Resolves when so many writes that are sent from now on have been acknowledged. */
  untilAcknowledged(count: number): Promise<void> {
    return this.acknowledging.until(count);
  }

  /** Resolves when the next one is refused for now, or cut off. */
  untilUnsettled(): Promise<void> {
    return this.unsettling.until(1);
  }

  /** Resolves when everything that was sent has been answered, or will never be. */
  async stop(): Promise<void> {
    this.isOver = true;
    await this.working;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

const sum = (numbers: readonly number[]): number => numbers.reduce((one, other) => one + other, 0);

/** Those of different gardeners lie side by side, so that their plants share pages and commits. */
function* countFrom(first: number, step: number): Generator<bigint, never> {
  for (let id = first; ; id += step) yield BigInt(id);
}

/** The status of each plant, in their order: undefined where none arrived, and `whole` where the service judged no line. */
interface BatchAnswer {
  readonly statuses: readonly (number | undefined)[];
  readonly whole: Response | undefined;
}

async function sendBatch(
  url: string,
  plants: readonly StoredPlant[],
  signal: AbortSignal,
): Promise<BatchAnswer> {
  const statuses: (number | undefined)[] = plants.map(() => undefined);
  try {
    const response = await fetch(`${url}/plants/batch`, {
      method: "POST",
      headers: { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/x-ndjson" },
      body: plants.map((plant) => `${toBody(plant)}\n`).join(""),
      signal,
    });
    if (response.status !== 200) return { statuses, whole: response };
    for await (const { line, status } of readResults(response)) statuses[line - 1] = status;
  } catch (error) {
    if ((error as Error).name === "TimeoutError") throw error;
  }
  return { statuses, whole: undefined };
}

async function* readResults(response: Response): AsyncGenerator<{ line: number; status: number }> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line) as { line: number; status: number };
  }
}

class Countdowns {
  private readonly waiting = new Set<{
    left: number;
    readonly sinceMs: number;
    readonly resolve: () => void;
  }>();

  until(left: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.waiting.add({ left, sinceMs: performance.now(), resolve });
    return promise;
  }

  count(atMs: number): void {
    for (const waiter of this.waiting) {
      if (atMs < waiter.sinceMs) continue;
      waiter.left--;
      if (waiter.left > 0) continue;
      this.waiting.delete(waiter);
      waiter.resolve();
    }
  }
}
