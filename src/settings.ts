/** Every setting of the service: its names, its default, what it means and what it may be. */

import { maskStoreUrl, parseStoreUrl } from "./store/open.ts";

const logLevels = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof logLevels)[number];

const WORKERS_MAX = 64;

export interface Setting<Value> {
  /** Absent where the value is a secret: anyone on the machine can read a command line. */
  readonly flag?: string;
  readonly env: string;
  readonly default: string | undefined;
  readonly meaning: string;
  /** The value; undefined, or a TypeError that says why, where the text is not allowed. */
  readonly parse: (text: string) => Value | undefined;
  readonly allowed: string;
  readonly secret?: true;
  /** Where a part of it is a secret: what may be shown of it. */
  readonly mask?: (text: string) => string;
}

export const settings = {
  host: {
    flag: "--host",
    env: "HOST",
    default: "127.0.0.1",
    meaning: "Address to listen on; 0.0.0.0 for every network.",
    parse: (text) => (/^[A-Za-z0-9.:_-]+$/.test(text) ? text : undefined),
    allowed: "a host name or an IP address",
  } satisfies Setting<string>,
  port: {
    flag: "--port",
    env: "PORT",
    meaning: "Port to listen on; 0 picks a free one.",
    ...integer("8080", 0, 65_535),
  },
  databaseUrl: {
    flag: "--database-url",
    env: "DATABASE_URL",
    default: "sqlite:./data/plants.db",
    meaning: "Where the plants are kept: sqlite: and the path of a file, or postgres://…",
    parse: (text) => {
      parseStoreUrl(text);
      return text;
    },
    allowed:
      "sqlite: and the path of a file, as in sqlite:./data/plants.db, or postgres://user:password@host:port/database",
    mask: maskStoreUrl,
  } satisfies Setting<string>,
  token: {
    env: "PLANTSTORE_TOKEN",
    default: undefined,
    meaning: "A token with all scopes, besides those in the store.",
    parse: (text) => (/^[A-Za-z0-9._~+/-]{16,}=*$/.test(text) ? text : undefined),
    allowed: "at least 16 characters out of A-Z a-z 0-9 - . _ ~ + /",
    secret: true,
  } satisfies Setting<string>,
  basePath: {
    flag: "--base-path",
    env: "PLANTSTORE_BASE_PATH",
    default: "",
    meaning: "Prefix of every path, as in /shop.",
    parse: (text) => (/^(\/[A-Za-z0-9._~-]+)*$/.test(text) ? text : undefined),
    allowed: "nothing, or segments of A-Z a-z 0-9 . _ ~ - that each begin with /",
  } satisfies Setting<string>,
  corsOrigins: {
    flag: "--cors-origins",
    env: "PLANTSTORE_CORS_ORIGINS",
    default: "",
    meaning: "Origins whose pages may call the service, separated by commas; * for all.",
    parse: parseOrigins,
    allowed: "nothing, *, or origins as in https://shop.example,http://localhost:3000",
  } satisfies Setting<readonly string[]>,
  logLevel: {
    flag: "--log-level",
    env: "PLANTSTORE_LOG_LEVEL",
    default: "info",
    meaning: "The least level that is logged; debug logs every request.",
    parse: (text) => logLevels.find((level) => level === text),
    allowed: logLevels.join(", "),
  } satisfies Setting<LogLevel>,
  workers: {
    flag: "--workers",
    env: "PLANTSTORE_WORKERS",
    default: "1",
    meaning:
      "Threads that accept requests, 1 to 64; several on Linux only, and another one writes for all of them.",
    parse: parseWorkers,
    allowed: `an integer from 1 to ${WORKERS_MAX}`,
  } satisfies Setting<number>,
  bodyBytesMax: {
    flag: "--body-bytes-max",
    env: "PLANTSTORE_BODY_BYTES_MAX",
    meaning: "Largest request body.",
    ...integer("1048576", 64, 1_073_741_824),
  },
  bodyBytesTotalMax: {
    flag: "--body-bytes-total-max",
    env: "PLANTSTORE_BODY_BYTES_TOTAL_MAX",
    meaning: "All bodies being read at one time, together.",
    ...integer("67108864", 64, 68_719_476_736),
  },
  headerBytesMax: {
    flag: "--header-bytes-max",
    env: "PLANTSTORE_HEADER_BYTES_MAX",
    meaning: "Largest request head: request line and headers.",
    ...integer("16384", 1024, 1_048_576),
  },
  urlBytesMax: {
    flag: "--url-bytes-max",
    env: "PLANTSTORE_URL_BYTES_MAX",
    meaning: "Longest URL.",
    ...integer("8192", 64, 1_048_576),
  },
  readSecondsMax: {
    flag: "--read-seconds-max",
    env: "PLANTSTORE_READ_SECONDS_MAX",
    meaning: "Time for a request body to arrive, however steadily it trickles.",
    ...integer("10", 1, 200),
  },
  idleSecondsMax: {
    flag: "--idle-seconds-max",
    env: "PLANTSTORE_IDLE_SECONDS_MAX",
    meaning: "Time until a connection on which nothing happens is closed.",
    ...integer("30", 5, 255),
  },
  queueLengthMax: {
    flag: "--queue-length-max",
    env: "PLANTSTORE_QUEUE_LENGTH_MAX",
    meaning: "Writes that may wait for a commit; past it a write is refused.",
    ...integer("8192", 1, 1_000_000),
  },
  queueSecondsMax: {
    flag: "--queue-seconds-max",
    env: "PLANTSTORE_QUEUE_SECONDS_MAX",
    meaning: "Time a write may wait for its commit to begin.",
    ...integer("5", 1, 200),
  },
  batchLengthMax: {
    flag: "--batch-length-max",
    env: "PLANTSTORE_BATCH_LENGTH_MAX",
    meaning: "Writes that share one commit.",
    ...integer("1024", 1, 100_000),
  },
  scanRowsMax: {
    flag: "--scan-rows-max",
    env: "PLANTSTORE_SCAN_ROWS_MAX",
    meaning: "Plants that one search by name looks at; the page then ends early, with a next link.",
    ...integer("20000", 100, 1_000_000),
  },
  writeConnections: {
    flag: "--write-connections",
    env: "PLANTSTORE_WRITE_CONNECTIONS",
    meaning: "PostgreSQL: connections that write, and so batches in flight.",
    ...integer("2", 1, 64),
  },
  readConnections: {
    flag: "--read-connections",
    env: "PLANTSTORE_READ_CONNECTIONS",
    meaning: "PostgreSQL: connections that read.",
    ...integer("4", 1, 64),
  },
  statementSecondsMax: {
    flag: "--statement-seconds-max",
    env: "PLANTSTORE_STATEMENT_SECONDS_MAX",
    meaning: "PostgreSQL: time for a statement to be answered; then its connection is given up.",
    ...integer("3", 1, 200),
  },
  drainDelaySeconds: {
    flag: "--drain-delay-seconds",
    env: "PLANTSTORE_DRAIN_DELAY_SECONDS",
    meaning: "Time between readiness turning 503 and the listener closing, for load balancers.",
    ...integer("0", 0, 300),
  },
  drainSecondsMax: {
    flag: "--drain-seconds-max",
    env: "PLANTSTORE_DRAIN_SECONDS_MAX",
    meaning: "Time for requests in flight to finish on shutdown.",
    ...integer("10", 1, 300),
  },
} as const satisfies Record<string, Setting<unknown>>;

/** Elsewhere the system lets threads share a port, but gives all connections to one of them. */
function parseWorkers(text: string): number | undefined {
  const value = integer("1", 1, WORKERS_MAX).parse(text);
  if (value !== undefined && value > 1 && process.platform !== "linux")
    throw new TypeError("several threads can share a port on Linux only");
  return value;
}

function integer(
  fallback: string,
  min: number,
  max: number,
): Pick<Setting<number>, "default" | "parse" | "allowed"> {
  return {
    default: fallback,
    allowed: `an integer from ${min} to ${max}`,
    parse: (text) => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

function parseOrigins(text: string): readonly string[] | undefined {
  const origins = text === "" ? [] : text.split(",").map((origin) => origin.trim());
  if (origins.includes("*")) return origins.length === 1 ? origins : undefined;
  return origins.every((origin) => URL.parse(origin)?.origin === origin) ? origins : undefined;
}
