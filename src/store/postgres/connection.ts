/** One connection to one server: it answers in time, or it is given up. */

import { readFileSync } from "node:fs";
import { SQL } from "bun";
import { StoreOpenError } from "../../domain/errors.ts";
import { LateError, NotWritableError } from "./failure.ts";
import {
  describeHost,
  findSocketPath,
  type Host,
  isLocal,
  type SslMode,
  type Target,
} from "./url.ts";

export type Parameter = string | number | bigint | boolean | null;

export interface Wanted {
  readonly target: Target;
  /** The time that any one statement may take. */
  readonly statementMsMax: number;
}

/** What a server says of itself when we come. */
interface Greeting {
  readonly read_only: string;
  readonly synchronous_commit: string | null;
  readonly fsync: string | null;
  readonly standbys: string | null;
  readonly encoding: string;
  readonly now_ms: bigint;
}

/** Settings that an engine does not know are null. */
const GREET = `SELECT current_setting('transaction_read_only') AS read_only,
  current_setting('synchronous_commit', true) AS synchronous_commit,
  current_setting('fsync', true) AS fsync,
  current_setting('synchronous_standby_names', true) AS standbys,
  current_setting('server_encoding') AS encoding,
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms`;

export class Connection {
  readonly host: Host;
  /** How the server keeps a commit, for people. */
  durability = "";
  private readonly sql: SQL;
  private readonly statementMsMax: number;
  private clockOffsetMs = 0;
  private lost = false;

  private constructor(sql: SQL, host: Host, statementMsMax: number) {
    this.sql = sql;
    this.host = host;
    this.statementMsMax = statementMsMax;
  }

  /** Resolves when the server has said that it takes writes and keeps them. */
  static async open(wanted: Wanted, host: Host, deadlineMs: number): Promise<Connection> {
    const mode = wanted.target.sslMode ?? (isLocal(host) ? "prefer" : "verify-full");
    try {
      return await Connection.openWith(mode, wanted, host, deadlineMs);
    } catch (error) {
      const hasNoTls = (error as { code?: unknown }).code === "ERR_POSTGRES_TLS_NOT_AVAILABLE";
      if (mode !== "prefer" || !hasNoTls) throw error;
      return Connection.openWith("disable", wanted, host, deadlineMs);
    }
  }

  private static async openWith(
    mode: SslMode,
    { target, statementMsMax }: Wanted,
    host: Host,
    deadlineMs: number,
  ): Promise<Connection> {
    // The client would open a lost connection again by itself, and would not look where to.
    const onclose = (): void => {
      connection.lost = true;
    };
    const path = findSocketPath(host);
    const sql = new SQL({
      adapter: "postgres",
      // With a URL, and this parameter in it, nothing is taken from the environment behind our back.
      url: "postgres://127.0.0.1/?sslmode=disable",
      ...(path === undefined ? { hostname: host.name, port: host.port } : { path }),
      username: target.user,
      password: target.password,
      database: target.database,
      tls: tlsOf(target, mode),
      max: 1,
      bigint: true,
      // Named statements do not survive a pooler that hands out another server for each transaction.
      prepare: false,
      connectionTimeout: target.connectSeconds,
      idleTimeout: 0,
      maxLifetime: 0,
      connection: { application_name: target.applicationName },
      onclose,
    });
    const connection = new Connection(sql, host, statementMsMax);
    const connectDeadlineMs = performance.now() + target.connectSeconds * 1000;
    try {
      await connection.greet(Math.min(deadlineMs, connectDeadlineMs));
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  get isLost(): boolean {
    return this.lost;
  }

  /** The server's time of day, so many milliseconds from now. */
  serverTimeIn(ms: number): bigint {
    return BigInt(Math.round(performance.now() + this.clockOffsetMs + ms));
  }

  /** How long a statement that is sent now may take. */
  allowanceMs(deadlineMs: number): number {
    return Math.max(0, Math.min(this.statementMsMax, deadlineMs - performance.now()));
  }

  /** Rejects at the deadline, or after the time that any statement may take, and is of no more use then. */
  query<Row>(
    text: string,
    parameters: readonly Parameter[],
    deadlineMs: number,
  ): Promise<readonly Row[]> {
    return this.queryWithin<Row>(this.allowanceMs(deadlineMs), text, parameters);
  }

  /** For statements that take long by their nature. */
  queryPatiently<Row>(text: string, deadlineMs: number): Promise<readonly Row[]> {
    return this.queryWithin<Row>(deadlineMs - performance.now(), text, []);
  }

  private async queryWithin<Row>(
    ms: number,
    text: string,
    parameters: readonly Parameter[],
  ): Promise<readonly Row[]> {
    if (this.lost) throw new LateError("the connection was lost");
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      reject(new LateError(`no answer from ${describeHost(this.host)} in time`));
      this.close();
    }, ms);
    try {
      return (await Promise.race([this.sql.unsafe(text, [...parameters]), late])) as Row[];
    } finally {
      clearTimeout(timer);
    }
  }

  /** At once, whatever is under way. */
  close(): void {
    this.lost = true;
    this.sql.close({ timeout: 0 }).catch(() => undefined);
  }

  private async greet(deadlineMs: number): Promise<void> {
    const [greeting] = await this.query<Greeting>(GREET, [], deadlineMs);
    if (greeting === undefined) throw new LateError("the server said nothing");
    const place = describeHost(this.host);
    // Taken when the answer is here, and so early rather than late by the way that it took: a
    // statement is never valid for longer than we wait for it.
    this.clockOffsetMs = Number(greeting.now_ms) - performance.now();
    if (greeting.read_only !== "off") throw new NotWritableError(`${place} takes no writes`);
    if (greeting.encoding !== "UTF8")
      throw new StoreOpenError(
        `The database at ${place} is encoded in ${greeting.encoding}, which cannot hold every name. Create one with the encoding UTF8.`,
      );
    for (const name of ["synchronous_commit", "fsync"] as const)
      if (greeting[name] === "off")
        throw new StoreOpenError(
          `The server at ${place} runs with ${name}=off: it would lose plants that it has acknowledged. Set ${name} to on.`,
        );
    const standbys = greeting.standbys ? " on the server and its synchronous standby" : "";
    this.durability = `every answer is sent after its commit is synced${standbys} (synchronous_commit=${greeting.synchronous_commit ?? "always"})`;
  }
}

/**
 * As libpq has it: `require` encrypts and believes whoever answers, unless a root certificate is given;
 * `verify-ca` believes whoever has a certificate of a trusted authority; `verify-full` only the right host.
 */
function tlsOf(target: Target, mode: SslMode): false | Bun.TLSOptions {
  if (mode === "disable") return false;
  const { rootCertificate, certificate, key } = target;
  const isVerified = mode !== "prefer" && (mode !== "require" || rootCertificate !== undefined);
  const anyHost = mode !== "verify-full" ? { checkServerIdentity: () => undefined } : {};
  return {
    rejectUnauthorized: isVerified,
    ...anyHost,
    ...(rootCertificate === undefined ? {} : { ca: readPem("sslrootcert", rootCertificate) }),
    ...(certificate === undefined ? {} : { cert: readPem("sslcert", certificate) }),
    ...(key === undefined ? {} : { key: readPem("sslkey", key) }),
  };
}

function readPem(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new StoreOpenError(`${name}: ${path} cannot be read: ${(error as Error).message}.`, {
      cause: error,
    });
  }
}
