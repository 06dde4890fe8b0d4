/** Searches and counts. They run on a thread of their own, one at a time, because each looks at many plants. */

import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { Refusal } from "../../domain/errors.ts";
import type { CountPage, PlantPage, PlantQuery } from "../../domain/page.ts";

interface SearchSetup {
  readonly path: string;
  readonly queueSecondsMax: number;
  readonly scanRowsMax: number;
}

export interface SearchWorkerSetup extends SearchSetup {
  /** Set by the thread when it has started. */
  readonly started: Int32Array;
}

interface Task {
  readonly kind: "list" | "count";
  readonly query: PlantQuery;
}

export type SearchOrder = Task | "close";

type Result = PlantPage | CountPage;

export type SearchAnswer = Result | Error;

interface Search {
  readonly task: Task;
  readonly settle: (result: Result | Refusal) => void;
}

/** Of each kind. Each search takes a bounded time, so this bounds the wait of the last one. */
const WAITING_MAX = 64;
const CLOSE_MS_MAX = 2_000;
const START_MS_MAX = 2_000;
/** The runtime ends the process if a thread cannot have descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;
/** So many connections do not come while a thread starts. */
const DESCRIPTORS_AMPLE = 256;

export class Searcher {
  private readonly setup: SearchSetup;
  private queue: Search[] = [];
  private current: Search | undefined;
  private worker: Worker | undefined;
  private overrun: Timer | undefined;

  constructor(setup: SearchSetup) {
    this.setup = setup;
  }

  search(query: PlantQuery): Promise<PlantPage> {
    return this.run({ kind: "list", query }) as Promise<PlantPage>;
  }

  count(query: PlantQuery): Promise<CountPage> {
    return this.run({ kind: "count", query }) as Promise<CountPage>;
  }

  private run(task: Task): Promise<Result> {
    const alike = this.queue.filter(({ task: { kind } }) => kind === task.kind);
    if (alike.length >= WAITING_MAX) return Promise.reject(new Refusal("overloaded"));
    return new Promise((resolve, reject) => {
      const search: Search = {
        task,
        settle: (result) => {
          clearTimeout(late);
          if (result instanceof Refusal) reject(result);
          else resolve(result);
        },
      };
      const late = setTimeout(() => {
        this.queue = this.queue.filter((waiting) => waiting !== search);
        search.settle(new Refusal("store_busy"));
      }, this.setup.queueSecondsMax * 1000);
      this.queue.push(search);
      this.startNext();
    });
  }

  /** Resolves when the thread has closed the file: the last connection to close folds the log in. */
  async close(): Promise<void> {
    const { worker, queue, current } = this;
    this.worker = undefined;
    this.queue = [];
    clearTimeout(this.overrun);
    for (const search of [...(current ? [current] : []), ...queue])
      search.settle(new Refusal("shutting_down"));
    if (worker === undefined) return;
    await new Promise((resolve) => {
      worker.once("exit", resolve);
      worker.postMessage("close" satisfies SearchOrder);
      // Does not keep a command alive that has closed its store.
      setTimeout(resolve, CLOSE_MS_MAX).unref();
    });
    await worker.terminate();
  }

  private startNext(): void {
    if (this.current !== undefined) return;
    // A person waits for a list. Many counts at once must not take its place.
    const list = this.queue.findIndex(({ task: { kind } }) => kind === "list");
    const [search] = this.queue.splice(Math.max(0, list), 1);
    if (search === undefined) return;
    this.current = search;
    try {
      // Started by the first search: many services never search, and a thread takes memory.
      this.worker ??= this.startWorker();
    } catch (error) {
      return this.finish(new Refusal("store_unavailable", undefined, error));
    }
    this.worker.postMessage(search.task satisfies SearchOrder);
    this.overrun = setTimeout(
      () => this.replaceWorker(new Refusal("store_busy")),
      this.setup.queueSecondsMax * 1000,
    );
  }

  private finish(result: Result | Refusal): void {
    clearTimeout(this.overrun);
    this.current?.settle(result);
    this.current = undefined;
    this.startNext();
  }

  /** A thread that hangs, or has failed, is ended. Only the search that it was doing is refused. */
  private replaceWorker(refusal: Refusal): void {
    void this.worker?.terminate();
    this.worker = undefined;
    this.finish(refusal);
  }

  private startWorker(): Worker {
    const free = countFreeDescriptors();
    if (free < DESCRIPTORS_NEEDED)
      throw new Error(`a thread cannot start: ${free} descriptors are free`);
    const started = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const threads = process.getBuiltinModule("node:worker_threads");
    const worker = new threads.Worker(join(import.meta.dir, "store-worker"), {
      workerData: { ...this.setup, started } satisfies SearchWorkerSetup,
    });
    // This thread takes no connection, and so no descriptor, until the other has what it needs.
    if (free < DESCRIPTORS_AMPLE) Atomics.wait(started, 0, 0, START_MS_MAX);
    worker.on("message", (answer: SearchAnswer) => {
      if (worker !== this.worker) return;
      const isError = answer instanceof Error;
      this.finish(isError ? new Refusal("store_unavailable", undefined, answer) : answer);
    });
    worker.on("error", (error) => {
      if (worker !== this.worker) return;
      this.replaceWorker(new Refusal("store_unavailable", undefined, error));
    });
    return worker;
  }
}

/** Up to DESCRIPTORS_AMPLE. */
function countFreeDescriptors(): number {
  const opened: number[] = [];
  try {
    while (opened.length < DESCRIPTORS_AMPLE) opened.push(openSync("/dev/null", "r"));
  } catch {
    // The limit of the process, or of the system.
  }
  for (const descriptor of opened) closeSync(descriptor);
  return opened.length;
}
