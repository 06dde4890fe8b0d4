/** A bounded number of connections to the server that takes writes, and the one place where work is retried. */

import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { ServerLimits, StoreLimits } from "../../domain/store.ts";
import { within } from "../../tick.ts";
import { classify, Connection, explainFailure, translate, type Wanted } from "./connection.ts";
import { describeTarget, type Host, type Target } from "../../domain/store-url.ts";

/** May be called again after a failure: it must do only what is left to do. */
type Work<Result> = (connection: Connection) => Promise<Result>;

interface Slot {
  connection?: Connection;
  opening?: Promise<Connection>;
  /** How many work on the connection. */
  users: number;
}

interface Limits {
  readonly connectionsMax: number;
  /** The time that work may take, with its retries, unless it is told another. */
  readonly secondsMax: number;
  /** How many work on one connection at a time: the server gets their statements together. */
  readonly usersMax: number;
  /** Callers that wait for a connection. */
  readonly waitingMax: number;
}

const RETRY_MS_FIRST = 10;
const RETRY_MS_MAX = 500;
/** After this number of failed attempts another connection is tried: the server's clock may have been set. */
const ATTEMPTS_PER_CONNECTION = 3;

/** Of the time that a caller has. The rest is for its work: one that is late costs all its users the connection. */
const WAIT_SHARE = 0.8;

export type ConnectionPool = ReturnType<typeof createPool>;

export function createPool(hosts: Hosts, limits: Limits) {
  const { connectionsMax, usersMax, secondsMax, waitingMax } = limits;
  const { figures } = hosts;
  const slots = Array.from({ length: connectionsMax }, (): Slot => ({ users: 0 }));
  const waiting: PromiseWithResolvers<Slot>[] = [];
  let isClosed = false;

  /** The one with the fewest users. */
  function findFree(): Slot | undefined {
    let found: Slot | undefined;
    for (const slot of slots) if (slot.users < (found?.users ?? usersMax)) found = slot;
    if (found?.users === 0) figures.connectionsInUse++;
    if (found !== undefined) found.users++;
    return found;
  }

  async function waitForTurn(deadlineMs: number): Promise<Slot> {
    if (waiting.length >= waitingMax) throw new Refusal("overloaded");
    const turn = Promise.withResolvers<Slot>();
    waiting.push(turn);
    figures.callersWaiting++;
    const giveUp = (): void => {
      const place = waiting.indexOf(turn);
      if (place !== -1) waiting.splice(place, 1);
      // Without an effect if its turn has just come.
      turn.reject(new Refusal("store_busy"));
    };
    const timer = setTimeout(giveUp, Math.max(0, deadlineMs - performance.now()) * WAIT_SHARE);
    return turn.promise.finally(() => {
      clearTimeout(timer);
      figures.callersWaiting--;
    });
  }

  function giveBack(slot: Slot): void {
    if (isClosed) slot.connection?.close();
    const next = waiting.shift();
    if (next !== undefined) return next.resolve(slot);
    slot.users--;
    if (slot.users === 0) figures.connectionsInUse--;
  }

  function connect(slot: Slot, deadlineMs: number): Connection | Promise<Connection> {
    const { connection } = slot;
    if (connection !== undefined && !connection.isLost && hosts.isCurrent(connection))
      return connection;
    slot.opening ??= reconnect(slot, deadlineMs).finally(() => delete slot.opening);
    return slot.opening;
  }

  async function reconnect(slot: Slot, deadlineMs: number): Promise<Connection> {
    if (slot.connection?.isLate) hosts.doubt(slot.connection);
    slot.connection?.close();
    return (slot.connection = await hosts.connect(deadlineMs));
  }

  return {
    /**
     * Retries until the deadline what another attempt may settle. Rejects with a Refusal, except for what
     * PostgreSQL refuses about the data itself: that is thrown as it is.
     */
    async run<Result>(
      work: Work<Result>,
      deadlineMs = performance.now() + secondsMax * 1000,
      attemptsMax = Number.POSITIVE_INFINITY,
    ): Promise<Result> {
      if (isClosed) throw new Refusal("shutting_down");
      const slot = findFree() ?? (await waitForTurn(deadlineMs));
      try {
        for (let attempts = 1; ; attempts++) {
          try {
            const connection = await connect(slot, deadlineMs);
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
            if (!mayHelp || isOver || isClosed) throw translate(error);
            figures.retries++;
            await Bun.sleep(pauseMs);
          }
        }
      } finally {
        giveBack(slot);
      }
    },

    /** Cuts off what is under way. */
    close(): void {
      isClosed = true;
      for (const { connection } of slots) connection?.close();
      for (const { reject } of waiting.splice(0)) reject(new Refusal("shutting_down"));
    },
  };
}

/** Half of it is random, so clients that failed together do not come back together. */
function jitter(attempts: number): number {
  const ms = Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * 2 ** (attempts - 1));
  return ms / 2 + (Math.random() * ms) / 2;
}

/** The server that was the right one last is asked alone for so long, before the others are asked too. */
const HEAD_START_MS = 300;

/** Finds the server that takes writes among those of the URL. */
export type Hosts = ReturnType<typeof createHosts>;

export function createHosts(target: Target, { statementSecondsMax }: ServerLimits) {
  const isPrepared = target.prepare ?? true;
  const wanted: Wanted = { target, statementMsMax: statementSecondsMax * 1000, isPrepared };
  /** Of all pools together. */
  const figures = { connectionsInUse: 0, callersWaiting: 0, retries: 0, connects: 0 };
  let current: Host | undefined;
  let doubted: Host | undefined;
  const isFirst = (host: Host): boolean =>
    current === undefined ? host !== doubted : host === current;

  return {
    figures,

    /** False if another server has taken over since: the old one may still answer, with old plants. */
    isCurrent: ({ host }: Connection): boolean => host === current,

    /**
     * This server is asked last, once: it may have been replaced without knowing it. It would still say that
     * it takes writes, and would acknowledge none, because its synchronous standby is gone.
     */
    doubt({ host }: Connection): void {
      if (host !== current) return;
      current = undefined;
      doubted = host;
    },

    /** A connection to the first server that says it takes writes. Rejects if none does in time. */
    async connect(deadlineMs: number): Promise<Connection> {
      let isWon = false;
      const attempt = async (host: Host): Promise<Connection> => {
        const connection = await Connection.open(wanted, host, deadlineMs);
        if (isWon) connection.close();
        else {
          isWon = true;
          current = host;
          doubted = undefined;
          figures.connects++;
        }
        return connection;
      };
      const others = target.hosts.filter((host) => !isFirst(host));
      const favourites = target.hosts.filter(isFirst).map(attempt);
      await within(
        HEAD_START_MS,
        Promise.any(favourites).catch(() => undefined),
      );
      try {
        return await Promise.any(isWon ? favourites : [...favourites, ...others.map(attempt)]);
      } catch (error) {
        const { errors } = error as AggregateError;
        // That a password is wrong says more than that another server is a standby.
        throw errors.find((one) => classify(one) === "refused") ?? errors[0];
      }
    },
  };
}

export type OpenLimits = ServerLimits & Pick<StoreLimits, "queueSecondsMax">;

/**
 * Does something on a connection of its own. A server that is just starting is waited for as long as a
 * request would wait. Rejects with a StoreOpenError.
 */
export async function onServer<Result>(
  target: Target,
  limits: OpenLimits,
  work: Work<Result>,
): Promise<Result> {
  const bounds = { secondsMax: limits.queueSecondsMax, waitingMax: 0 };
  const hosts = createHosts(target, limits);
  const pool = createPool(hosts, { ...bounds, connectionsMax: 1, usersMax: 1 });
  try {
    return await pool.run(work);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    if (cause instanceof StoreOpenError) throw cause;
    const why = await explainFailure(target, cause as Error);
    throw new StoreOpenError(
      `${describeTarget(target)} cannot be opened: ${why.replace(/\.$/, "")}.`,
      { cause },
    );
  } finally {
    pool.close();
  }
}
