/** The listener of one thread. It closes while the process has more connections than its memory is for. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import type { Config } from "../config.ts";
import type { Log } from "../observe/log.ts";

type Options = Parameters<typeof Bun.serve<undefined>>[0] & { port: number };
type Server = ReturnType<typeof Bun.serve<undefined>>;

const LOOK_MS = 100;
/** It opens again below this, so it does not flap. */
const OPEN_SHARE = 0.875;
/** For files and threads that are opened later. */
const DESCRIPTORS_SPARE = 64;

/**
 * The runtime has no bound of its own. At the limit of descriptors it polls a connection that waits without a pause, so
 * the listener closes before that too. A new connection is refused then, connections without a request are closed, and
 * requests in flight are answered.
 */
export class Listener {
  private readonly options: Options;
  private readonly log: Log;
  private readonly connectionsMax: number;
  private readonly descriptorsOwn = countDescriptors();
  private readonly looking: ReturnType<typeof setInterval>;
  /** Those before it may still have connections. */
  private readonly servers: Set<Server>;
  private isOpen = true;
  /** Methods that concern a request work on any server. */
  server: Server;

  constructor(options: Options, { connectionsMax }: Pick<Config, "connectionsMax">, log: Log) {
    this.server = Bun.serve(options);
    this.servers = new Set([this.server]);
    this.options = { ...options, port: this.server.port ?? options.port };
    this.log = log;
    const descriptors = findDescriptorsMax() - this.descriptorsOwn - DESCRIPTORS_SPARE;
    this.connectionsMax = Math.max(1, Math.min(connectionsMax, descriptors));
    this.looking = setInterval(() => this.look(), LOOK_MS);
    this.looking.unref();
  }

  get requestsInFlight(): number {
    return this.servers.values().reduce((sum, { pendingRequests }) => sum + pendingRequests, 0);
  }

  /** Resolves when every connection has ended. */
  async stop(isAtOnce: boolean): Promise<void> {
    clearInterval(this.looking);
    await Promise.all(Array.from(this.servers, (server) => server.stop(isAtOnce)));
  }

  private look(): void {
    const connections = countDescriptors() - this.descriptorsOwn;
    if (this.isOpen && connections > this.connectionsMax) this.close(connections);
    else if (!this.isOpen && connections < this.connectionsMax * OPEN_SHARE) this.open();
  }

  private close(connections: number): void {
    const { server, connectionsMax } = this;
    this.isOpen = false;
    this.log.warn("connections_full", { connections, connectionsMax });
    void server.stop().then(() => this.servers.delete(server));
  }

  private open(): void {
    try {
      this.server = Bun.serve(this.options);
      this.servers.add(this.server);
      this.isOpen = true;
    } catch (cause) {
      // Another process has the port now. It is tried again.
      this.log.error("port_lost", { cause });
    }
  }
}

/** Sockets are nearly all of them. */
function countDescriptors(): number {
  const folder = process.platform === "linux" ? "/proc/self/fd" : "/dev/fd";
  try {
    // Linux tells since 6.2.
    return statSync(folder).size || readdirSync(folder).length;
  } catch {
    // None is left to look with.
    return Number.POSITIVE_INFINITY;
  }
}

function findDescriptorsMax(): number {
  try {
    const limits = readFileSync("/proc/self/limits", "latin1");
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
