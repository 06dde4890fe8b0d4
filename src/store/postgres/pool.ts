/** A bounded number of connections to the server that takes writes, and the one place where work is retried. */

import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { StoreLimits } from "../../domain/store.ts";
import { within } from "../batcher.ts";
import type { ServerLimits } from "../open.ts";
import { classify, Connection, translate, type Wanted } from "./connection.ts";
import { describeTarget, type Host, type Target } from "./url.ts";

/** May be called again after a failure: it must do only what is left to do. */
type Work<Result> = (connection: Connection) => Promise<Result>;

interface Slot {
  connection: Connection | undefined;
  opening: Promise<Connection> | undefined;
  /** How many work on the connection. */
  users: number;
}

interface Limits {
  readonly connectionsMax: number;
  /** The time that work may take, with its retries, unless it is told another. */
  readonly secondsMax: number;
  /** How many work on one connection at a time: the server gets their statements together. Default 1. */
  readonly usersMax?: number;
  /** Callers that wait for a connection. */
  readonly waitingMax: number;
}

const RETRY_MS_FIRST = 10;
const RETRY_MS_MAX = 500;
/** After so many failed attempts another connection is tried: the server's clock may have been set. */
const ATTEMPTS_PER_CONNECTION = 3;

/** Of the time that a caller has. The rest is for its work: one that is late costs all its users the connection. */
const WAIT_SHARE = 0.8;

export class ConnectionPool {
  private readonly hosts: Hosts;
  private readonly slots: readonly Slot[];
  private readonly limits: Limits;
  private readonly waiting: PromiseWithResolvers<Slot>[] = [];
  private isClosed = false;

  constructor(hosts: Hosts, limits: Limits) {
    this.hosts = hosts;
    this.limits = limits;
    this.slots = Array.from({ length: limits.connectionsMax }, () => ({
      connection: undefined,
      opening: undefined,
      users: 0,
    }));
  }

  /**
   * Retries until the deadline what another attempt may settle. Rejects with a Refusal, except for what
   * PostgreSQL refuses about the data itself: that is thrown as it is.
   */
  async run<Result>(
    work: Work<Result>,
    deadlineMs = performance.now() + this.limits.secondsMax * 1000,
    attemptsMax = Number.POSITIVE_INFINITY,
  ): Promise<Result> {
    if (this.isClosed) throw new Refusal("shutting_down");
    const slot = this.findFree() ?? (await this.wait(deadlineMs));
    try {
      for (let attempts = 1; ; attempts++) {
        try {
          const connection = this.findUsable(slot) ?? (await this.connect(slot, deadlineMs));
          // Others may work on it too, until later.
          if (slot.users === 1 || deadlineMs > connection.deadlineMs)
            connection.deadlineMs = deadlineMs;
          return await work(connection);
        } catch (error) {
          // What the work found out is no failure of the connection, which others may be using.
          if (error instanceof Refusal) throw error;
          const failure = classify(error);
          const pauseMs = jitter(attempts);
          const isOver = attempts >= attemptsMax || performance.now() + pauseMs >= deadlineMs;
          const mayHelp = failure === "retry" || failure === "reconnect";
          if (!mayHelp || attempts % ATTEMPTS_PER_CONNECTION === 0) slot.connection?.close();
          if (!mayHelp || isOver || this.isClosed) throw translate(error);
          this.hosts.figures.retries++;
          await Bun.sleep(pauseMs);
        }
      }
    } finally {
      this.giveBack(slot);
    }
  }

  /** Cuts off what is under way. */
  close(): void {
    this.isClosed = true;
    for (const { connection } of this.slots) connection?.close();
    for (const { reject } of this.waiting.splice(0)) reject(new Refusal("shutting_down"));
  }

  /** The one with the fewest users. */
  private findFree(): Slot | undefined {
    let found: Slot | undefined;
    const { usersMax = 1 } = this.limits;
    for (const slot of this.slots) if (slot.users < (found?.users ?? usersMax)) found = slot;
    if (found?.users === 0) this.hosts.figures.connectionsInUse++;
    if (found !== undefined) found.users++;
    return found;
  }

  private findUsable({ connection }: Slot): Connection | undefined {
    if (connection === undefined || connection.isLost) return undefined;
    return this.hosts.isCurrent(connection) ? connection : undefined;
  }

  private connect(slot: Slot, deadlineMs: number): Promise<Connection> {
    if (slot.opening !== undefined) return slot.opening;
    if (slot.connection?.isLate) this.hosts.doubt(slot.connection);
    slot.connection?.close();
    slot.connection = undefined;
    slot.opening = this.hosts
      .connect(deadlineMs)
      .then((connection) => (slot.connection = connection))
      .finally(() => {
        slot.opening = undefined;
      });
    return slot.opening;
  }

  private async wait(deadlineMs: number): Promise<Slot> {
    if (this.waiting.length >= this.limits.waitingMax) throw new Refusal("overloaded");
    const turn = Promise.withResolvers<Slot>();
    this.waiting.push(turn);
    this.hosts.figures.callersWaiting++;
    const msMax = Math.max(0, deadlineMs - performance.now()) * WAIT_SHARE;
    try {
      const slot = await within(msMax, turn.promise);
      const place = this.waiting.indexOf(turn);
      // Its turn may have come together with the end of the time.
      if (slot !== undefined || place === -1) return slot ?? (await turn.promise);
      this.waiting.splice(place, 1);
      throw new Refusal("store_busy");
    } finally {
      this.hosts.figures.callersWaiting--;
    }
  }

  private giveBack(slot: Slot): void {
    if (this.isClosed) slot.connection?.close();
    const next = this.waiting.shift();
    if (next !== undefined) return next.resolve(slot);
    slot.users--;
    if (slot.users === 0) this.hosts.figures.connectionsInUse--;
  }
}

/** Half of it is random, so clients that failed together do not come back together. */
function jitter(attempts: number): number {
  const ms = Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * 2 ** (attempts - 1));
  return ms / 2 + (Math.random() * ms) / 2;
}

/** The server that was the right one last is asked alone for so long, before the others are asked too. */
const HEAD_START_MS = 300;

/** Finds the server that takes writes among those of the URL. */
export class Hosts {
  /** Of all pools together. */
  readonly figures = { connectionsInUse: 0, callersWaiting: 0, retries: 0, connects: 0 };
  private readonly wanted: Wanted;
  private current: Host | undefined;
  private doubted: Host | undefined;

  constructor(target: Target, { statementSecondsMax }: Pick<ServerLimits, "statementSecondsMax">) {
    const isPrepared = target.prepare ?? true;
    this.wanted = { target, statementMsMax: statementSecondsMax * 1000, isPrepared };
  }

  /** False if another server has taken over since: the old one may still answer, with old plants. */
  isCurrent(connection: Connection): boolean {
    return connection.host === this.current;
  }

  /**
   * This server is asked last, once: it may have been replaced without knowing it. It would still say that
   * it takes writes, and would acknowledge none, because its synchronous standby is gone.
   */
  doubt(connection: Connection): void {
    if (!this.isCurrent(connection)) return;
    this.current = undefined;
    this.doubted = connection.host;
  }

  /** A connection to the first server that says it takes writes. Rejects if none does in time. */
  async connect(deadlineMs: number): Promise<Connection> {
    const { hosts } = this.wanted.target;
    let isWon = false;
    const attempt = async (host: Host): Promise<Connection> => {
      const connection = await Connection.open(this.wanted, host, deadlineMs);
      if (isWon) connection.close();
      else {
        isWon = true;
        this.current = host;
        this.doubted = undefined;
        this.figures.connects++;
      }
      return connection;
    };
    const isFirst = (host: Host): boolean =>
      this.current === undefined ? host !== this.doubted : host === this.current;
    const others = hosts.filter((host) => !isFirst(host));
    const favourites = hosts.filter(isFirst).map(attempt);
    try {
      const favourite = Promise.any(favourites);
      await within(
        HEAD_START_MS,
        favourite.catch(() => undefined),
      );
      return await (isWon ? favourite : Promise.any([...favourites, ...others.map(attempt)]));
    } catch (error) {
      const { errors } = error as AggregateError;
      // That a password is wrong says more than that another server is a standby.
      throw errors.find((one) => classify(one) === "refused") ?? errors[0];
    }
  }
}

export type OpenLimits = Pick<
  StoreLimits & ServerLimits,
  "queueSecondsMax" | "statementSecondsMax"
>;

/**
 * Does something on a connection of its own. A server that is just starting is waited for as long as a
 * request would wait. Rejects with a StoreOpenError.
 */
export async function onServer<Result>(
  target: Target,
  limits: OpenLimits,
  work: Work<Result>,
): Promise<Result> {
  const pool = new ConnectionPool(new Hosts(target, limits), {
    connectionsMax: 1,
    secondsMax: limits.queueSecondsMax,
    waitingMax: 0,
  });
  try {
    return await pool.run(work);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    if (cause instanceof StoreOpenError) throw cause;
    throw new StoreOpenError(
      `${describeTarget(target)} cannot be opened: ${(cause as Error).message.replace(/\.$/, "")}.`,
      { cause },
    );
  } finally {
    pool.close();
  }
}
