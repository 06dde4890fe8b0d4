/** Searches by name. They run on a thread of their own, because each looks at many plants. */

import type { Worker } from "node:worker_threads";
import { Refusal } from "../../domain/errors.ts";
import type { PlantPage, PlantQuery } from "../../domain/page.ts";

export interface SearchSetup {
  readonly path: string;
  readonly queueSecondsMax: number;
  readonly scanRowsMax: number;
}

export interface SearchQuestion {
  readonly number: number;
  readonly query: PlantQuery;
}

export type SearchOrder = SearchQuestion | "close";

export type SearchAnswer =
  | { readonly number: number; readonly page: PlantPage }
  | { readonly number: number; readonly error: Error };

/** Each search takes a bounded time, so this bounds the wait of the last one. */
const SEARCHES_WAITING_MAX = 64;
const CLOSE_MS_MAX = 2_000;

export class Searcher {
  private readonly setup: SearchSetup;
  private readonly waiting = new Map<number, PromiseWithResolvers<PlantPage>>();
  private worker: Worker | undefined;
  private count = 0;

  constructor(setup: SearchSetup) {
    this.setup = setup;
  }

  search(query: PlantQuery): Promise<PlantPage> {
    if (this.waiting.size >= SEARCHES_WAITING_MAX) return Promise.reject(new Refusal("overloaded"));
    // Started by the first search: many services never search, and a thread takes memory.
    this.worker ??= this.startWorker();
    const number = ++this.count;
    const answer = Promise.withResolvers<PlantPage>();
    this.waiting.set(number, answer);
    const late = setTimeout(
      () => this.fail(new Refusal("store_busy")),
      this.setup.queueSecondsMax * 1000,
    );
    this.worker.postMessage({ number, query } satisfies SearchQuestion);
    return answer.promise.finally(() => clearTimeout(late));
  }

  /** Resolves when the thread has closed the file: the last connection to close folds the log in. */
  async close(): Promise<void> {
    const { worker } = this;
    this.worker = undefined;
    this.rejectAll(new Refusal("shutting_down"));
    if (worker === undefined) return;
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    worker.postMessage("close" satisfies SearchOrder);
    await Promise.race([ended, Bun.sleep(CLOSE_MS_MAX)]);
    await worker.terminate();
  }

  private startWorker(): Worker {
    const threads = process.getBuiltinModule("node:worker_threads");
    const worker = new threads.Worker(new URL("search-worker.ts", import.meta.url), {
      workerData: this.setup,
    });
    worker.on("message", (answer: SearchAnswer) => this.settle(answer));
    worker.on("error", (error) => this.fail(new Refusal("store_unavailable", undefined, error)));
    return worker;
  }

  private settle(answer: SearchAnswer): void {
    const waiting = this.waiting.get(answer.number);
    this.waiting.delete(answer.number);
    if ("page" in answer) waiting?.resolve(answer.page);
    else waiting?.reject(new Refusal("store_unavailable", undefined, answer.error));
  }

  /** A thread that does not answer in time is ended, with all its searches. The next search starts another. */
  private fail(refusal: Refusal): void {
    void this.worker?.terminate();
    this.worker = undefined;
    this.rejectAll(refusal);
  }

  private rejectAll(refusal: Refusal): void {
    for (const waiting of this.waiting.values()) waiting.reject(refusal);
    this.waiting.clear();
  }
}
