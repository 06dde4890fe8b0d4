/** One connection to one server: it answers in time, or it is closed. */

import { existsSync, readFileSync } from "node:fs";
import { SQL } from "bun";
import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { Value } from "../records.ts";
import {
  describeHost,
  findSocketPath,
  type Host,
  isLocal,
  type SslMode,
  type Target,
} from "../../domain/store-url.ts";

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
    super("the answer to a write was lost", { cause });
    this.validUntilMs = validUntilMs;
  }
}

/** `retry` may succeed on the same connection, `reconnect` on another one. `refused` stays until an operator acts. */
type ErrorClass = "retry" | "reconnect" | "bad row" | "refused" | "defect";

/** By SQLSTATE, or by the client's own code. The first match wins. */
const failures: readonly (readonly [codes: RegExp, failure: ErrorClass])[] = [
  // A cancelled query, a lock that was not available, serialization failures, deadlocks, unknown completions.
  [/^(57014|55P03|40)/, "retry"],
  // Data exceptions, constraints, and limits such as the size of a row.
  [/^(22|23|54)/, "bad row"],
  // A feature that the engine lacks; wrong user or password; no such database, schema or table; no privilege.
  [/^(0A|28|3D|3F|42501|42P01|42703)/, "refused"],
  // A retry changes neither a certificate nor what the server offers.
  [/CERT|SIGNATURE|ERR_TLS|ERR_SSL|ERR_POSTGRES_TLS|^EPROTO$/, "refused"],
  // Connection, resources, operator, system; read-only: the server has become a standby.
  [/^(08|53|57|58|XX|25006)/, "reconnect"],
  // Connections lost, refused, timed out, or garbled.
  [/^(ERR_POSTGRES_|E[A-Z]+$)/, "reconnect"],
];

/** After these a statement may have been committed. Every other code means that nothing was done. */
const UNKNOWN_OUTCOME = /^(08|40003|53100|57P|58|XX)/;

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
  const isOurs = error instanceof Error && (failure === "defect" || failure === "bad row");
  return isOurs ? error : new Refusal("store_unavailable", undefined, error);
}

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

/** Settings that an engine does not know are null. */
type Greeting = Readonly<Record<(typeof settings)[number], string | null>> & {
  readonly now_ms: bigint;
};

const GREET = `SELECT ${settings.map((name) => `current_setting('${name}', true) AS "${name}"`).join(", ")},
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms`;

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
  private clockOffsetMs = 0;
  /** The session on the server is not the one that we started. */
  private isPooled = false;

  /** `session` is a startup parameter: a server returns it, a pooler refuses or ignores it. */
  private constructor(
    { target, statementMsMax, isPrepared }: Wanted,
    host: Host,
    mode: SslMode,
    session: string | undefined,
  ) {
    const path = findSocketPath(host);
    this.host = host;
    this.statementMsMax = statementMsMax;
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
        ...(session === undefined ? {} : { "plantstore.session": session }),
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
      const isAsked = wanted.isPrepared && target.prepare === undefined;
      const session = isAsked ? crypto.randomUUID() : undefined;
      const connection = new Connection(wanted, host, mode, session);
      const connectedByMs = performance.now() + target.connectSeconds * 1000;
      connection.deadlineMs = Math.min(deadlineMs, connectedByMs);
      try {
        await connection.greet(session);
        return connection;
      } catch (error) {
        connection.close();
        const { code } = error as { code?: unknown };
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
      const state = sqlStateOf(error);
      if (state !== undefined && !UNKNOWN_OUTCOME.test(state)) throw error;
      this.close();
      throw new LostAnswerError(validUntilMs, error);
    }
  }

  close(): void {
    this.isLost = true;
    this.sql.close({ timeout: 0 }).catch(() => undefined);
  }

  private allowanceMs(msMax: number): number {
    return Math.max(0, Math.min(msMax, this.deadlineMs - performance.now()));
  }

  private async greet(session: string | undefined): Promise<void> {
    const [greeting] = await this.query<Greeting>(GREET);
    if (greeting === undefined) throw new TransientError("the server said nothing");
    this.isPooled = session !== undefined && greeting["plantstore.session"] !== session;
    if (this.isPooled) throw new TransientError("a pooler has another session");
    const place = describeHost(this.host);
    // Measured after the round trip, so our estimate of the server's clock is early, never late: no statement is valid
    // for longer than we wait for it.
    this.clockOffsetMs = Number(greeting.now_ms) - performance.now();
    if (greeting.transaction_read_only !== "off")
      throw new TransientError(`${place} takes no writes`);
    if (greeting.server_encoding !== "UTF8")
      throw new StoreOpenError(
        `The database at ${place} is encoded in ${greeting.server_encoding}, which cannot hold every name. Create one with the encoding UTF8.`,
      );
    const isOff = (name: keyof Greeting): boolean => greeting[name] === "off";
    const off = (["synchronous_commit", "fsync"] as const).find(isOff);
    if (off !== undefined)
      throw new StoreOpenError(
        `The server at ${place} runs with ${off}=off: it would lose plants that it has acknowledged. Set ${off} to on.`,
      );
    const hasStandbys = Boolean(greeting.synchronous_standby_names);
    const standbys = hasStandbys ? " on the server and its synchronous standby" : "";
    this.durability = `every answer is sent after its commit is synced${standbys} (synchronous_commit=${greeting.synchronous_commit ?? "always"})`;
  }
}

/** The client reports only that it could not connect. */
export async function explainFailure({ hosts }: Target, failure: Error): Promise<string> {
  const isRefused = (failure as NodeJS.ErrnoException).code === "ERR_POSTGRES_CONNECTION_REFUSED";
  if (!isRefused && !(failure instanceof TransientError)) return failure.message;
  const reasons = hosts.map(async (host) => {
    const path = findSocketPath(host);
    if (path !== undefined && !existsSync(path)) return `there is no socket ${path}`;
    const known = path === undefined && (await Bun.dns.lookup(host.name).catch(() => undefined));
    if (known === undefined) return `there is no host ${host.name}`;
    return isRefused
      ? `${describeHost(host)} does not take connections: the server is not running, or this is not its port`
      : failure.message;
  });
  return [...new Set(await Promise.all(reasons))].join("; ");
}

/** As in libpq: `require` verifies only with a root certificate, and `verify-ca` does not check the host name. */
function tlsOf(target: Target, mode: SslMode): false | Bun.TLSOptions {
  if (mode === "disable") return false;
  const { rootCertificate, certificate, key } = target;
  const isVerified = mode !== "prefer" && (mode !== "require" || rootCertificate !== undefined);
  return {
    rejectUnauthorized: isVerified,
    ...(mode !== "verify-full" ? { checkServerIdentity: () => undefined } : {}),
    ...readPem("ca", "sslrootcert", rootCertificate),
    ...readPem("cert", "sslcert", certificate),
    ...readPem("key", "sslkey", key),
  };
}

function readPem(option: string, name: string, path: string | undefined): Bun.TLSOptions {
  if (path === undefined) return {};
  try {
    return { [option]: readFileSync(path, "utf8") };
  } catch (error) {
    const message = `${name}: ${path} cannot be read: ${(error as Error).message}.`;
    throw new StoreOpenError(message, { cause: error });
  }
}
