/** A bounded number of connections to the server that accepts writes, and the only place that retries. */

import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { ServerLimits, StoreLimits } from "../../domain/store.ts";
import { within } from "../../tick.ts";
import {
  asNotStored,
  classify,
  Connection,
  explainFailure,
  LOCK_SHARE,
  translate,
  type Wanted,
} from "./connection.ts";
import { describeTarget, type Host, type Target } from "../../store-url.ts";

/** Retried after a failure, so it must skip what is already done. */
type Work<Result> = (connection: Connection) => Promise<Result>;

interface Slot {
  connection?: Connection;
  opening?: Promise<Connection>;
  users: number;
  /** When the last attempt to connect failed. */
  failedAtMs: number;
}

export type OpenLimits = ServerLimits & Pick<StoreLimits, "queueSecondsMax" | "queueLengthMax">;

const RETRY_MS_FIRST = 10;
const RETRY_MS_MAX = 500;
/** Reconnects after this many failed attempts: the server's clock may have been set. */
const ATTEMPTS_PER_CONNECTION = 3;

/** A slot that could not connect is avoided for this long while another slot is connected. */
const AVOID_MS = 1_000;

/** The share of its deadline that a caller may queue: a timeout at work closes the connection for all its users. */
const WAIT_SHARE = 0.8;

export type ConnectionPool = ReturnType<typeof createPool>;

/** Up to `usersMax` callers share a connection, so the server gets their statements together. */
export function createPool(hosts: Hosts, limits: OpenLimits, connectionsMax = 1, usersMax = 1) {
  const slots = createSlots(hosts, limits, connectionsMax, usersMax);
  // Reads share connections, and acknowledge nothing.
  const isForReads = usersMax > 1;
  const lockMsMax = limits.statementSecondsMax * 1000 * LOCK_SHARE;

  return {
    /** Retries until the deadline. Rejects with a Refusal, except for errors about the data itself. */
    async run<Result>(
      work: Work<Result>,
      deadlineMs = performance.now() + limits.queueSecondsMax * 1000,
      attemptsMax = Number.POSITIVE_INFINITY,
    ): Promise<Result> {
      let slot = await slots.take(deadlineMs);
      try {
        for (let attempts = 1; ; attempts++) {
          try {
            const connection = await slots.connect(slot, deadlineMs);
            // Others may share it, with a later deadline.
            if (slot.users === 1 || deadlineMs > connection.deadlineMs)
              connection.deadlineMs = deadlineMs;
            if (!isForReads) await connection.check();
            return await work(connection);
          } catch (error) {
            // A Refusal is a result of the work. The connection is fine, and others may be using it.
            if (error instanceof Refusal) throw error;
            if (slots.isAvoided(slot) && performance.now() < deadlineMs) {
              const other = await slots.take(deadlineMs);
              slots.giveBack(slot);
              slot = other;
              continue;
            }
            const failure = classify(error);
            const pauseMs = jitter(attempts);
            // Given up while it waits for a lock, a write would leave its outcome open.
            const neededMs = failure === "locked" ? lockMsMax : 0;
            const isLate = performance.now() + pauseMs + neededMs >= deadlineMs;
            const isOver = attempts >= attemptsMax || isLate;
            const mayHelp = /^(retry|locked|reconnect)$/.test(failure);
            const isWorn = !mayHelp || attempts % ATTEMPTS_PER_CONNECTION === 0;
            if (isWorn && failure !== "full") slot.connection?.close();
            if (!mayHelp || isOver || slots.isClosed)
              throw isForReads ? asNotStored(translate(error)) : translate(error);
            hosts.figures.retries++;
            await Bun.sleep(pauseMs);
          }
        }
      } finally {
        slots.giveBack(slot);
      }
    },

    close: (): void => slots.close(),
  };
}

/** The places for connections, and the callers that wait for one. */
function createSlots(hosts: Hosts, limits: OpenLimits, connectionsMax: number, usersMax: number) {
  const { figures } = hosts;
  const slots = Array.from({ length: connectionsMax }, (): Slot => ({
    users: 0,
    failedAtMs: Number.NEGATIVE_INFINITY,
  }));
  const waiting: PromiseWithResolvers<Slot>[] = [];
  let isClosed = false;

  const isConnected = ({ connection }: Slot): boolean =>
    connection !== undefined && !connection.isLost && hosts.isCurrent(connection);

  /** The server may have no connection left for us, or a new password: those that are open still work. */
  const isAvoided = (slot: Slot): boolean =>
    performance.now() < slot.failedAtMs + AVOID_MS && !isConnected(slot) && slots.some(isConnected);

  function findFree(): Slot | undefined {
    let found: Slot | undefined;
    for (const slot of slots)
      if (slot.users < (found?.users ?? usersMax) && !isAvoided(slot)) found = slot;
    if (found?.users === 0) figures.connectionsInUse++;
    if (found !== undefined) found.users++;
    return found;
  }

  async function waitForSlot(deadlineMs: number): Promise<Slot> {
    if (waiting.length >= limits.queueLengthMax) throw new Refusal("overloaded");
    const caller = Promise.withResolvers<Slot>();
    waiting.push(caller);
    figures.callersWaiting++;
    const giveUp = (): void => {
      const place = waiting.indexOf(caller);
      if (place !== -1) waiting.splice(place, 1);
      // No effect if it has just got a slot.
      caller.reject(new Refusal("store_busy"));
    };
    const timer = setTimeout(giveUp, Math.max(0, deadlineMs - performance.now()) * WAIT_SHARE);
    return caller.promise.finally(() => {
      clearTimeout(timer);
      figures.callersWaiting--;
    });
  }

  return {
    get isClosed(): boolean {
      return isClosed;
    },

    isAvoided,

    async take(deadlineMs: number): Promise<Slot> {
      if (isClosed) throw new Refusal("shutting_down");
      return findFree() ?? waitForSlot(deadlineMs);
    },

    giveBack(slot: Slot): void {
      if (isClosed) slot.connection?.close();
      const next = isAvoided(slot) ? undefined : waiting.shift();
      if (next !== undefined) return next.resolve(slot);
      slot.users--;
      if (slot.users === 0) figures.connectionsInUse--;
    },

    connect(slot: Slot, deadlineMs: number): Connection | Promise<Connection> {
      const { connection } = slot;
      if (connection !== undefined && isConnected(slot)) return connection;
      const reconnect = async (): Promise<Connection> => {
        if (connection?.isLate) hosts.doubt(connection);
        connection?.close();
        slot.failedAtMs = Number.NEGATIVE_INFINITY;
        try {
          return (slot.connection = await hosts.connect(deadlineMs));
        } catch (error) {
          slot.failedAtMs = performance.now();
          throw error;
        }
      };
      slot.opening ??= reconnect().finally(() => delete slot.opening);
      return slot.opening;
    },

    close(): void {
      isClosed = true;
      for (const { connection } of slots) connection?.close();
      for (const { reject } of waiting.splice(0)) reject(new Refusal("shutting_down"));
    },
  };
}

/** Half of the delay is random, so callers that failed together do not retry together. */
function jitter(attempts: number): number {
  const ms = Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * 2 ** (attempts - 1));
  return ms / 2 + (Math.random() * ms) / 2;
}

/** The last server that accepted writes is tried alone for this long before the others. */
const HEAD_START_MS = 300;

export type Hosts = ReturnType<typeof createHosts>;

export function createHosts(target: Target, { statementSecondsMax }: ServerLimits) {
  const isPrepared = target.prepare ?? true;
  const wanted: Wanted = { target, statementMsMax: statementSecondsMax * 1000, isPrepared };
  const figures = { connectionsInUse: 0, callersWaiting: 0, retries: 0, connects: 0 };
  let current: Host | undefined;
  let doubted: Host | undefined;
  const isFirst = (host: Host): boolean =>
    current === undefined ? host !== doubted : host === current;

  return {
    figures,

    /** False after a failover: the old server may still answer, with stale plants. */
    isCurrent: ({ host }: Connection): boolean => host === current,

    /** Tries it last, once: a replaced primary may claim to accept writes and have no standby to acknowledge them. */
    doubt({ host }: Connection): void {
      if (host !== current) return;
      current = undefined;
      doubted = host;
    },

    /** A connection to the first server that says it accepts writes. Rejects if none does in time. */
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
      const favourite = Promise.any(favourites).catch(() => undefined);
      await within(HEAD_START_MS, favourite);
      try {
        return await Promise.any(isWon ? favourites : [...favourites, ...others.map(attempt)]);
      } catch (error) {
        const { errors } = error as AggregateError;
        // A wrong password says more than that another server is a standby.
        throw errors.find((one) => classify(one) === "refused") ?? errors[0];
      }
    },
  };
}

/** Runs the work on its own connection. Waits for a server that is starting. Rejects with a StoreOpenError. */
export async function onServer<Result>(
  target: Target,
  limits: OpenLimits,
  work: Work<Result>,
): Promise<Result> {
  const pool = createPool(createHosts(target, limits), limits);
  try {
    return await pool.run(work);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    if (cause instanceof StoreOpenError) throw cause;
    const why = await explainFailure(target, cause as Error);
    const message = `${describeTarget(target)} cannot be opened: ${why.replace(/\.$/, "")}.`;
    throw new StoreOpenError(message, { cause });
  } finally {
    pool.close();
  }
}
