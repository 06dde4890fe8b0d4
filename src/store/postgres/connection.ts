/** One connection to one server: it answers in time, or it is closed. */

import { existsSync } from "node:fs";
import { SQL } from "bun";
import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { Value } from "../engine.ts";
import {
  describeHost,
  findSocketPath,
  type Host,
  isLocal,
  type SslMode,
  type Target,
} from "../../store-url.ts";
import { refuseBadFile, tlsOf } from "./tls.ts";

/** An array literal: one parameter holds a column of any number of rows. */
export const toArray = (values: readonly (string | bigint | undefined)[]): string =>
  `{${values.map(toElement).join(",")}}`;

const toElement = (value: string | bigint | undefined): string =>
  // Always quoted: a bare NULL or { has a meaning of its own.
  typeof value === "string" ? `"${value.replace(/["\\]/g, "\\$&")}"` : String(value ?? "NULL");

/** Nothing was done, and the request is not at fault: a retry may succeed. */
export class TransientError extends Error {}

/** A write was sent and its answer was lost: it may have been committed, or may still be until `validUntilMs`. */
export class LostAnswerError extends TransientError {
  readonly validUntilMs: number;

  constructor(validUntilMs: number, cause: unknown) {
    super(`the answer to a write was lost: ${messageOf(cause)}`, { cause });
    this.validUntilMs = validUntilMs;
  }
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

/**
 * `retry` may succeed on the same connection, `locked` too if there is time to wait for the lock, `reconnect` on another
 * one. `refused` and `full`, the server's disk, stay until an operator acts.
 */
type ErrorClass = "retry" | "locked" | "reconnect" | "bad row" | "refused" | "full" | "defect";

/** By SQLSTATE, or by the client's own code. The first match wins. */
const failures: readonly (readonly [codes: RegExp, failure: ErrorClass])[] = [
  // A cancelled query, serialization failures, deadlocks, unknown completions.
  [/^(57014|40)/, "retry"],
  [/^55P03$/, "locked"],
  // Data exceptions, constraints, and limits such as the size of a row.
  [/^(22|23|54)/, "bad row"],
  // A feature that the engine lacks; wrong user or password; no such database, schema, table or column, or one that is
  // not as we made it; no privilege.
  [/^(0A|28|3D|3F|42(501|P01|P10|703|804|809|883))/, "refused"],
  [/^53100$/, "full"],
  // A retry changes neither a certificate nor what the server offers.
  [/CERT|SIGNATURE|ERR_TLS|ERR_SSL|ERR_POSTGRES_TLS|^EPROTO$/, "refused"],
  // Connection, resources, operator, system; read-only: the server has become a standby.
  [/^(08|53|57|58|XX|25006)/, "reconnect"],
  // Connections lost, refused, timed out, or garbled.
  [/^(ERR_POSTGRES_|E[A-Z]+$)/, "reconnect"],
];

/** After these a statement may have been committed. Every other code means that nothing was done. */
const UNKNOWN_OUTCOME = /^(08|40003|57P|58|XX)/;

export const sqlStateOf = (error: unknown): string | undefined =>
  error instanceof SQL.PostgresError && typeof error.errno === "string" ? error.errno : undefined;

export function classify(error: unknown): ErrorClass {
  if (error instanceof TransientError) return "retry";
  if (error instanceof StoreOpenError) return "refused";
  const code = sqlStateOf(error) ?? String((error as { code?: unknown } | undefined)?.code);
  return failures.find(([codes]) => codes.test(code))?.[1] ?? "defect";
}

export function translate(error: unknown): Error {
  const failure = classify(error);
  if (error instanceof Error && (failure === "defect" || failure === "bad row")) return error;
  if (failure === "full") return new Refusal("disk_low", undefined, error);
  return new Refusal(
    failure === "refused" ? "store_refused" : "store_unavailable",
    undefined,
    error,
  );
}

/** For reads, and for writes that were not sent: a failure cannot have stored anything. */
export const asNotStored = (error: unknown): unknown =>
  error instanceof Refusal && error.reason === "store_unavailable"
    ? new Refusal("store_down", undefined, error.cause)
    : error;

export interface Wanted {
  readonly target: Target;
  readonly statementMsMax: number;
  /** Whether statements are prepared, as P0, P1 and so on. False once a pooler is detected. */
  isPrepared: boolean;
}

const settings = [
  "transaction_read_only",
  "synchronous_commit",
  "fsync",
  "synchronous_standby_names",
  "server_encoding",
  "plantstore.session",
] as const;

/**
 * Part of every statement that acknowledges plants: its commit waits for the disk and the standby even if the setting
 * was weakened under the open connection, or in a pooler's other session. True, also on engines without the setting.
 */
export const IS_SYNCED = `(SELECT CASE WHEN current_setting('synchronous_commit', true) IS NULL THEN ''
    ELSE set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
      WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) END) IS NOT NULL`;

export const NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/** The WAL position: it grows with every record, whatever the clock does. */
export const LSN = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";

/** How long the server's settings count as checked. A reload may change them under an open connection. */
const CHECK_MS = 1_000;

/** Settings that an engine does not know are null. */
type Greeting = Readonly<Record<(typeof settings)[number], string | null>> & {
  readonly now_ms: bigint;
};

const GREET = `SELECT ${settings.map((name) => `current_setting('${name}', true) AS "${name}"`).join(", ")},
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms`;

/**
 * The share of a statement's time that it may wait for a lock. The server then says that nothing was done. Otherwise we
 * would give the statement up, and its session would wait on the server until the lock is free: one more every few
 * seconds, until no connection is left.
 */
export const LOCK_SHARE = 0.8;

/** The SQLSTATEs of a pooler or an engine that refuses an unknown startup parameter. */
const PARAMETER_REFUSED = /^(08P01|42704)$/;

export class Connection {
  readonly host: Host;
  durability = "";
  /** The deadline of the current work, by `performance.now()`. */
  deadlineMs = 0;
  isLate = false;
  isLost = false;
  private readonly sql: SQL;
  private readonly statementMsMax: number;
  private readonly session: string | undefined;
  private clockOffsetMs = 0;
  private checkedAtMs = Number.NEGATIVE_INFINITY;
  /** The session on the server is not the one that we started. */
  private isPooled = false;

  /** `session` is a startup parameter: a server returns it, a pooler refuses or ignores it, and has its own others. */
  private constructor(
    { target, statementMsMax, isPrepared }: Wanted,
    host: Host,
    mode: SslMode,
    session: string | undefined,
  ) {
    const path = findSocketPath(host);
    this.host = host;
    this.statementMsMax = statementMsMax;
    this.session = session;
    this.sql = new SQL({
      adapter: "postgres",
      // With a URL that has an sslmode, the client reads nothing from the environment but PGPASSWORD, and that only if
      // the password is empty.
      url: "postgres://127.0.0.1/?sslmode=disable",
      ...(path === undefined ? { hostname: host.name, port: host.port } : { path }),
      username: target.user,
      password: target.password,
      database: target.database,
      tls: tlsOf(target, mode),
      max: 1,
      bigint: true,
      prepare: isPrepared,
      connectionTimeout: target.connectSeconds,
      idleTimeout: 0,
      maxLifetime: 0,
      connection: {
        application_name: target.applicationName,
        ...(session === undefined
          ? {}
          : {
              "plantstore.session": session,
              lock_timeout: Math.ceil(statementMsMax * LOCK_SHARE),
            }),
      },
      // The client would reconnect by itself, without checking which server answers.
      onclose: () => {
        this.isLost = true;
      },
    });
  }

  static async open(wanted: Wanted, host: Host, deadlineMs: number): Promise<Connection> {
    const { target } = wanted;
    let mode = target.sslMode ?? (isLocal(host) ? "prefer" : "verify-full");
    for (;;) {
      const detectsPooler = wanted.isPrepared && target.prepare === undefined;
      const session = detectsPooler ? crypto.randomUUID() : undefined;
      const connection = new Connection(wanted, host, mode, session);
      const connectedByMs = performance.now() + target.connectSeconds * 1000;
      connection.deadlineMs = Math.min(deadlineMs, connectedByMs);
      try {
        await connection.check();
        return connection;
      } catch (error) {
        connection.close();
        const { code } = error as { code?: unknown };
        if (code === "ERR_BORINGSSL") refuseBadFile(target);
        const isPooler = connection.isPooled || PARAMETER_REFUSED.test(sqlStateOf(error) ?? "");
        if (mode === "prefer" && code === "ERR_POSTGRES_TLS_NOT_AVAILABLE") mode = "disable";
        else if (session !== undefined && isPooler) wanted.isPrepared = false;
        else throw error;
      }
    }
  }

  /** Rejects after `msMax` or at the deadline, and then closes the connection. */
  async query<Row>(
    text: string,
    parameters: readonly Value[] = [],
    msMax = this.statementMsMax,
  ): Promise<readonly Row[]> {
    if (this.isLost) throw new TransientError("the connection was lost");
    // Closing rejects the query at once.
    const timer = setTimeout(() => {
      this.isLate = true;
      this.close();
    }, this.allowanceMs(msMax));
    try {
      return (await this.sql.unsafe(text, parameters as Value[])) as readonly Row[];
    } catch (error) {
      if (this.isLate)
        throw new TransientError(`no answer from ${describeHost(this.host)} in time`);
      if (classify(error) === "reconnect") this.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends a write. Its first parameter, added here, is our deadline by the server's clock: the statement changes
   * nothing after it.
   */
  async write<Row>(text: string, parameters: readonly Value[]): Promise<readonly Row[]> {
    if (this.isLost) throw new TransientError("the connection was lost");
    const validUntilMs = performance.now() + this.allowanceMs(this.statementMsMax);
    const validUntil = (validUntilMs + this.clockOffsetMs) / 1000;
    try {
      return await this.query<Row>(text, [validUntil.toFixed(3), ...parameters]);
    } catch (error) {
      if (await this.isRolledBack(error)) throw error;
      this.close();
      throw new LostAnswerError(validUntilMs, error);
    }
  }

  /** Checks the server's settings, unless that was done within CHECK_MS. Rejects with a StoreOpenError. */
  async check(): Promise<void> {
    if (performance.now() < this.checkedAtMs + CHECK_MS) return;
    const startedAtMs = performance.now();
    try {
      await this.greet();
    } catch (error) {
      this.close();
      throw error;
    }
    this.checkedAtMs = startedAtMs;
  }

  close(): void {
    this.isLost = true;
    this.sql.close({ timeout: 0 }).catch(() => undefined);
  }

  private allowanceMs(msMax: number): number {
    return Math.max(0, Math.min(msMax, this.deadlineMs - performance.now()));
  }

  /** A server that survives a full disk has rolled back. One that panics over its WAL may have written the commit. */
  private async isRolledBack(error: unknown): Promise<boolean> {
    const state = sqlStateOf(error);
    if (state === undefined || UNKNOWN_OUTCOME.test(state)) return false;
    if (classify(error) !== "full") return true;
    return this.query("SELECT 1").then(
      () => true,
      () => false,
    );
  }

  private async greet(): Promise<void> {
    const { session } = this;
    const [greeting] = await this.query<Greeting>(GREET);
    if (greeting === undefined) throw new TransientError("empty reply from the server");
    this.isPooled = session !== undefined && greeting["plantstore.session"] !== session;
    if (this.isPooled) throw new TransientError("a pooler has another session");
    const place = describeHost(this.host);
    // Measured after the round trip, so our estimate of the server's clock is early, never late: no statement is valid
    // for longer than we wait for it.
    this.clockOffsetMs = Number(greeting.now_ms) - performance.now();
    if (greeting.transaction_read_only !== "off")
      throw new TransientError(`${place} accepts no writes`);
    if (greeting.server_encoding !== "UTF8")
      throw new StoreOpenError(
        `The database at ${place} is encoded in ${greeting.server_encoding}, which cannot hold every name. Create one with the encoding UTF8.`,
      );
    this.durability = describeDurability(place, greeting);
  }
}

/** Without a standby, every level but `off` waits for the server's own disk. */
const WEAK_LEVELS: Readonly<Record<string, string>> = {
  local: "does not wait for the synchronous standby",
  remote_write: "does not wait until the synchronous standby has it on disk",
};

/** What a commit waits for. Throws a StoreOpenError if that is less than the disk of every server it should be on. */
function describeDurability(place: string, greeting: Greeting): string {
  const { synchronous_commit: level, synchronous_standby_names: standbys } = greeting;
  const off = (["synchronous_commit", "fsync"] as const).find((name) => greeting[name] === "off");
  if (off !== undefined)
    throw new StoreOpenError(
      `The server at ${place} runs with ${off}=off: it would lose plants that it has acknowledged. Set ${off} to on.`,
    );
  const weakness = standbys ? WEAK_LEVELS[level ?? ""] : undefined;
  if (weakness !== undefined)
    throw new StoreOpenError(
      `The server at ${place} runs with synchronous_commit=${level}: a commit ${weakness} (synchronous_standby_names=${standbys}), and a failover would lose plants that were acknowledged. Set synchronous_commit to on.`,
    );
  const applied = level === "remote_apply" ? ", and applied there" : "";
  const where = standbys
    ? `the server and on its synchronous standby${applied} (synchronous_standby_names=${standbys})`
    : "the server, which has no synchronous standby";
  return `every answer is sent after its commit is synced on ${where} (synchronous_commit=${level ?? "always"})`;
}

/** The client reports only that it could not connect, or that it did not understand. */
export async function explainFailure(target: Target, failure: Error): Promise<string> {
  if (sqlStateOf(failure) === "28P01" && !target.password && !process.env["PGPASSWORD"])
    return `${failure.message}. The password is missing: put it into the URL or into PGPASSWORD`;
  const code = String((failure as NodeJS.ErrnoException).code);
  const isRefused = code === "ERR_POSTGRES_CONNECTION_REFUSED";
  if (!/^ERR_POSTGRES_(CONNECTION|UNEXPECTED)/.test(code) && !(failure instanceof TransientError))
    return failure.message;
  const reasons = target.hosts.map(async (host) => {
    const path = findSocketPath(host);
    if (path !== undefined && !existsSync(path)) return `there is no socket ${path}`;
    const known = path === undefined && (await Bun.dns.lookup(host.name).catch(() => undefined));
    if (known === undefined) return `there is no host ${host.name}`;
    if (isRefused)
      return `${describeHost(host)} does not accept connections: the server is not running, or this is not its port`;
    return (await isForeign(host))
      ? `${describeHost(host)} answers, but not as a PostgreSQL server: this is not its port`
      : failure.message;
  });
  return [...new Set(await Promise.all(reasons))].join("; ");
}

/** The request for TLS, which every server answers with one of these bytes: yes, no, or an error. */
const SSL_REQUEST = new Uint8Array([0, 0, 0, 8, 4, 210, 22, 47]);
const SSL_ANSWERS = new Set("SNE");
const FOREIGN_MS_MAX = 1_000;

/** Whether something other than a PostgreSQL server answers there. */
async function isForeign(host: Host): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const path = findSocketPath(host);
  const socket = {
    open: (opened: Bun.Socket) => void opened.write(SSL_REQUEST),
    data: (_opened: Bun.Socket, [first]: Uint8Array) =>
      resolve(!SSL_ANSWERS.has(String.fromCharCode(first ?? 0))),
    close: () => resolve(false),
  };
  const place = path === undefined ? { hostname: host.name, port: host.port } : { unix: path };
  const opened = await Bun.connect({ ...place, socket } as Bun.TCPSocketConnectOptions).catch(
    () => undefined,
  );
  if (opened === undefined) return false;
  const timer = setTimeout(() => resolve(false), FOREIGN_MS_MAX);
  return promise.finally(() => {
    clearTimeout(timer);
    opened.terminate();
  });
}
