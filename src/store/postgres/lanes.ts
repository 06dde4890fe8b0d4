/** A bounded number of connections, and the work done on them: tried again where that can help. */

import { Refusal } from "../../domain/errors.ts";
import type { Connection } from "./connection.ts";
import { judge, LateError, translate } from "./failure.ts";
import type { Hosts } from "./hosts.ts";

/** Does something by statements that may be sent twice: an attempt may have been done, and its answer lost. */
export type Work<Result> = (connection: Connection) => Promise<Result>;

interface Lane {
  connection: Connection | undefined;
}

interface Limits {
  readonly lanesMax: number;
  /** Those who wait for a lane. */
  readonly waitingMax: number;
}

const RETRY_MS_FIRST = 10;
const RETRY_MS_MAX = 500;

export class Lanes {
  private readonly hosts: Hosts;
  private readonly limits: Limits;
  private readonly idle: Lane[] = [];
  private readonly busy = new Set<Lane>();
  private readonly waiting: PromiseWithResolvers<Lane>[] = [];
  private closed = false;

  constructor(hosts: Hosts, limits: Limits) {
    this.hosts = hosts;
    this.limits = limits;
  }

  /**
   * Rejects with a Refusal where the deadline passes first, or where no further attempt would help.
   * What PostgreSQL finds fault with in the data itself is thrown as it is.
   */
  async run<Result>(
    deadlineMs: number,
    work: Work<Result>,
    attemptsMax = Number.POSITIVE_INFINITY,
  ): Promise<Result> {
    const lane = await this.take(deadlineMs);
    try {
      for (let attempts = 1; ; attempts++) {
        try {
          return await work(await this.connected(lane, deadlineMs));
        } catch (error) {
          const verdict = judge(error);
          if (error instanceof LateError && lane.connection !== undefined)
            this.hosts.doubt(lane.connection);
          if (verdict !== "again" && verdict !== "row") disconnect(lane);
          if (verdict !== "again" && verdict !== "anew") throw translate(error);
          const waitMs = jitter(attempts);
          const isOver = attempts >= attemptsMax || performance.now() + waitMs >= deadlineMs;
          if (isOver || this.closed) throw translate(error);
          await Bun.sleep(waitMs);
        }
      }
    } finally {
      this.giveBack(lane);
    }
  }

  /** Cuts off what is under way. */
  close(): void {
    this.closed = true;
    for (const lane of [...this.idle, ...this.busy]) disconnect(lane);
    for (const { reject } of this.waiting.splice(0)) reject(new Refusal("shutting_down"));
  }

  private async connected(lane: Lane, deadlineMs: number): Promise<Connection> {
    const { connection } = lane;
    if (connection !== undefined && !connection.isLost && this.hosts.isCurrent(connection))
      return connection;
    disconnect(lane);
    lane.connection = await this.hosts.connect(deadlineMs);
    return lane.connection;
  }

  private async take(deadlineMs: number): Promise<Lane> {
    if (this.closed) throw new Refusal("shutting_down");
    const lane = this.idle.pop() ?? this.findRoom() ?? (await this.wait(deadlineMs));
    this.busy.add(lane);
    return lane;
  }

  private findRoom(): Lane | undefined {
    return this.busy.size < this.limits.lanesMax ? { connection: undefined } : undefined;
  }

  private async wait(deadlineMs: number): Promise<Lane> {
    if (this.waiting.length >= this.limits.waitingMax) throw new Refusal("overloaded");
    const turn = Promise.withResolvers<Lane>();
    this.waiting.push(turn);
    const timer = setTimeout(() => {
      this.waiting.splice(this.waiting.indexOf(turn), 1);
      turn.reject(new Refusal("store_busy"));
    }, deadlineMs - performance.now());
    try {
      return await turn.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  private giveBack(lane: Lane): void {
    const next = this.waiting.shift();
    if (next !== undefined) return next.resolve(lane);
    this.busy.delete(lane);
    if (this.closed) disconnect(lane);
    else this.idle.push(lane);
  }
}

function disconnect(lane: Lane): void {
  lane.connection?.close();
  lane.connection = undefined;
}

/** Half of it by chance, so that those who failed together do not come back together. */
function jitter(attempts: number): number {
  const ms = Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * 2 ** (attempts - 1));
  return ms / 2 + (Math.random() * ms) / 2;
}
