/** What the thread that owns the store and those that accept requests tell each other. */

import type { MessagePort } from "node:worker_threads";
import type { Config } from "../config.ts";
import type { StoreDescription } from "../domain/store.ts";

/** What an acceptor is started with. */
export interface AcceptorSetup {
  /** With the port that has been chosen for all. */
  readonly config: Config;
  readonly store: StoreDescription;
  /** What it counts in, and others read. */
  readonly metricsMemory: SharedArrayBuffer;
  /** Calls of the store go this way, and their results come back. */
  readonly calls: MessagePort;
}

export interface Listening {
  readonly url: string;
  readonly hasConsole: boolean;
  /** What the counters in its memory are of. */
  readonly metricsPaths: readonly string[];
}

export type FromAcceptor =
  { readonly logLine: string } | { readonly listening: Listening } | "stopped";

export type ToAcceptor = "stop";
