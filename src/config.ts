/** Every setting, how it is read, and every fixed limit. Flags win over the environment, which wins over defaults. */

import { familyOf, isBasePath } from "./domain/address.ts";
import { DAY_MS, findDurationMs, findRate } from "./domain/rate.ts";
import { maskStoreUrl, parseStoreUrl } from "./domain/store-url.ts";

const logLevels = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof logLevels)[number];

interface Rule {
  readonly default?: string;
  readonly meaning: string;
  /** Returns undefined, or throws a TypeError that says why, if the text is not allowed. */
  readonly parse: (text: string) => unknown;
  readonly allowed: string;
  readonly secret?: true;
  /** Hides the secret part of a value. */
  readonly mask?: (text: string) => string;
}

const integer = (fallback: string, min: number, max: number) => ({
  default: fallback,
  allowed: `an integer from ${min} to ${max}`,
  parse: (text: string): number | undefined => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  },
});

/** Other systems let threads share a port too, but give all connections to one of them. */
const WORKERS_MAX = process.platform === "linux" ? 64 : 1;

const rules = {
  host: {
    default: "127.0.0.1",
    meaning: "Address to listen on; 0.0.0.0 for every network.",
    parse: (text) => (/^[A-Za-z0-9.:_-]+$/.test(text) ? text : undefined),
    allowed: "a host name or an IP address",
  },
  port: { meaning: "Port to listen on; 0 picks a free one.", ...integer("8080", 0, 65_535) },
  databaseUrl: {
    default: "sqlite:./data/plants.db",
    meaning: "Where the plants are kept: sqlite:<file> or postgres://…",
    parse: (text) => {
      parseStoreUrl(text);
      return text;
    },
    allowed:
      "sqlite:<file>, as in sqlite:./data/plants.db, or postgres://user:password@host:port/database",
    mask: maskStoreUrl,
  },
  token: {
    meaning: "A token with all scopes, in addition to those in the store.",
    parse: (text) => (/^[A-Za-z0-9._~+/-]{16,}=*$/.test(text) ? text : undefined),
    allowed: "at least 16 characters out of A-Z a-z 0-9 - . _ ~ + /",
    secret: true,
  },
  basePath: {
    default: "",
    meaning: "Prefix of every path, as in /shop.",
    parse: (text) => (isBasePath(text) ? text : undefined),
    allowed: "nothing, or segments of A-Z a-z 0-9 . _ ~ - that each begin with /",
  },
  corsOrigins: {
    default: "",
    meaning: "Origins whose pages may call the service, separated by commas; * for all.",
    parse: (text) =>
      text.trim() === "*"
        ? ["*"]
        : parseList(text, (origin) => URL.parse(origin)?.origin === origin),
    allowed: "nothing, *, or origins as in https://shop.example,http://localhost:3000",
  },
  logLevel: {
    default: "info",
    meaning: "The lowest level that is logged; debug logs every request.",
    parse: (text) => logLevels.find((level) => level === text),
    allowed: logLevels.join(", "),
  },
  trustedProxies: {
    default: "",
    meaning:
      "Proxies that are believed: Forwarded or X-Forwarded-For for the log, X-Forwarded-Prefix for links.",
    parse: (text) => parseList(text, isNetwork),
    allowed: "nothing, or addresses and networks as in 127.0.0.1,10.0.0.0/8,::1",
  },
  workers: {
    meaning: "HTTP threads that share the port. More than one needs Linux.",
    ...integer("1", 1, WORKERS_MAX),
    allowed: `an integer from 1 to ${WORKERS_MAX}; more than 1 is possible on Linux only`,
  },
  rateLimit: {
    default: "",
    meaning: "Requests and batch lines that each token may send, as in 100/s or 6000/min.",
    parse: (text) => (text === "" || findRate(text) !== undefined ? text : undefined),
    allowed: "nothing, or a number per s, min or h, as in 100/s",
  },
  bodyBytesMax: { meaning: "Largest request body.", ...integer("1048576", 64, 1_073_741_824) },
  bodyBytesTotalMax: {
    meaning: "Memory for all request bodies and unread answers together.",
    ...integer("50331648", 64, 68_719_476_736),
  },
  // Their heads get 64 MiB: 4096 times the 16 KiB of headerBytesMax.
  connectionsMax: {
    meaning: "Connections; past it new ones are refused. Each may take 16 KiB for its head.",
    ...integer("4096", 1, 1_000_000),
  },
  idleSecondsMax: {
    meaning: "Seconds until an idle connection is closed.",
    ...integer("30", 5, 255),
  },
  backupTo: {
    default: "",
    meaning: "SQLite: folder for backups that the service makes while it runs.",
    parse: (text) => text,
    allowed: "a folder",
  },
  backupEvery: {
    default: "15m",
    meaning: "Time from one backup to the next, as in 15m.",
    parse: (text) => ((findDurationMs(text) ?? Infinity) <= 7 * DAY_MS ? text : undefined),
    allowed: "seconds, minutes, hours or days, as in 90s, 15m, 6h or 1d, at most 7d",
  },
  backupKeep: { meaning: "Number of backups to keep.", ...integer("48", 1, 100_000) },
  writeConnections: {
    meaning: "PostgreSQL: connections for writes, each with one batch in flight.",
    ...integer("2", 1, 64),
  },
  plantsMax: {
    meaning: "Plants that the store may hold; 0 for no limit.",
    ...integer("0", 0, 999_999_999_999_999),
  },
  diskFreeBytesMin: {
    meaning: "SQLite: free disk space below which new plants are refused; 0 for no limit.",
    ...integer("67108864", 0, 999_999_999_999_999),
  },
  changesDays: {
    meaning: "Days that changes are kept for GET /changes; 0 keeps none.",
    ...integer("7", 0, 3_650),
  },
  webhooksPrivate: {
    meaning: "Whether webhooks may be sent to private, loopback and link-local addresses.",
    default: "false",
    parse: (text) => (text === "true" ? true : text === "false" ? false : undefined),
    allowed: "true or false",
  },
  drainDelaySeconds: {
    meaning: "Seconds between /readyz turning 503 and the listener closing, for load balancers.",
    ...integer("0", 0, 300),
  },
} satisfies Record<string, Rule>;

export type SettingName = keyof typeof rules;

interface Setting extends Rule {
  readonly env: string;
  /** Absent for secrets: every user of the machine can read a command line. */
  readonly flag: string | undefined;
}

/** Variables that other programs have under the same name. */
const unprefixed = new Set(["HOST", "PORT", "DATABASE_URL"]);

/** `logLevel` is --log-level and PLANTSTORE_LOG_LEVEL. */
export const settings = Object.fromEntries(
  Object.entries(rules).map(([name, rule]: [string, Rule]) => {
    const words = name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const variable = words.toUpperCase().replaceAll("-", "_");
    const env = unprefixed.has(variable) ? variable : `PLANTSTORE_${variable}`;
    return [name, { ...rule, env, flag: rule.secret ? undefined : `--${words}` }];
  }),
) as Readonly<Record<SettingName, Setting>>;

/** Limits that no operator has a reason to change. They are part of the Config so tests can inject others. */
const fixedLimits = {
  /** Largest request head. It is the runtime's own limit. */
  headerBytesMax: 16_384,
  /** Longest URL. */
  urlBytesMax: 8_192,
  /** Time for a whole request body to arrive, however steadily it trickles. */
  readSecondsMax: 10,
  /** Writes that may wait for a commit, for each HTTP thread. */
  queueLengthMax: 8_192,
  /** Time that a write may wait for its commit. */
  queueSecondsMax: 5,
  /** Writes of one HTTP thread that share a commit. */
  batchLengthMax: 1_024,
  /** Plants that a search scans for one page. */
  scanRowsMax: 50_000,
  /** PostgreSQL: connections for reads. */
  readConnections: 4,
  /** PostgreSQL: time for one statement. Then its connection is closed. */
  statementSecondsMax: 3,
  /** Time for requests in flight to finish when the service drains. */
  drainSecondsMax: 10,
  /** Plants that a revert handles between two reads of the journal, and that a dry run looks at. */
  revertPlantsMax: 10_000,
  /** Of their texts, together. */
  revertCharactersMax: 4_194_304,
  /** Time between two trims of the journal. */
  trimSeconds: 60,
  /** Time between two comments in an event stream: proxies close silent ones. */
  commentSeconds: 15,
  /** Time between two samples of `GET /activity`. */
  sampleSeconds: 5,
  /** Time for a webhook's receiver to answer. */
  webhookSecondsMax: 15,
  /** Backoff between attempts to send one event. Then the webhook is paused. */
  webhookRetrySeconds: [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400],
  /** Lease of the instance that sends to a webhook: longer than an event takes. */
  webhookLeaseSeconds: 25,
  /** Time between two looks for changes to send to webhooks. */
  webhookPollMs: 200,
};

/**
 * The runtime's idle timer also runs while a body trickles in or an answer is awaited. It closes without an
 * answer, and up to four seconds early, so our own deadlines have to come first.
 */
const IDLE_MARGIN_SECONDS = 5;

export type Limits = Readonly<typeof fixedLimits>;

type ValueOf<Name extends SettingName> = Exclude<
  ReturnType<(typeof rules)[Name]["parse"]>,
  undefined
>;

export type Config = Limits &
  Readonly<
    { [Name in Exclude<SettingName, "token">]: ValueOf<Name> } & { token: string | undefined }
  >;

type Source = "flag" | "environment" | "default";

export interface Resolved {
  readonly config: Config;
  readonly sources: Readonly<Record<SettingName, Source>>;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Names every setting that is wrong, with its value and what is allowed. */
export class ConfigError extends Error {}

/** `flags` may hold others than those of settings. */
export function resolveConfig(
  flags: Readonly<Record<string, unknown>>,
  environment: Environment,
  limits: Partial<Limits> = {},
): Resolved {
  const values: Record<string, unknown> = { ...fixedLimits, ...limits };
  const sources: Record<string, Source> = {};
  const faults: string[] = [];
  for (const [name, setting] of Object.entries(settings)) {
    const flag = typeof flags[name] === "string" ? flags[name] : undefined;
    const variable = environment[setting.env];
    const text = flag ?? variable ?? setting.default;
    const calledAs = flag === undefined ? setting.env : setting.flag;
    const given = variable === undefined ? "default" : "environment";
    sources[name] = flag === undefined ? given : "flag";
    try {
      values[name] = text === undefined ? undefined : parseSetting(setting, text, calledAs);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      faults.push(error.message);
    }
  }
  const config = values as Config;
  const idleSecondsMin =
    Math.max(config.readSecondsMax, config.queueSecondsMax) + IDLE_MARGIN_SECONDS;
  if (faults.length === 0 && config.idleSecondsMax < idleSecondsMin)
    faults.push(
      `${settings.idleSecondsMax.env}: ${config.idleSecondsMax} is not allowed; expected at least ${idleSecondsMin}, ` +
        "or slow requests would be cut off without an answer",
    );
  for (const name of ["backupEvery", "backupKeep"] as const)
    if (config.backupTo === "" && sources[name] !== "default")
      faults.push(`${settings[name].env}: has no effect without ${settings.backupTo.env}`);
  if (faults.length === 0 && config.bodyBytesTotalMax < config.bodyBytesMax)
    faults.push(
      `${settings.bodyBytesTotalMax.env}: ${config.bodyBytesTotalMax} is not allowed; ` +
        `expected at least ${config.bodyBytesMax}, the value of ${settings.bodyBytesMax.env}`,
    );
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return { config: Object.freeze(config), sources: sources as Resolved["sources"] };
}

/** Throws a ConfigError, which never shows a secret. `calledAs` is the flag or variable that holds the text. */
export function parseSetting(
  { parse, secret, mask = (shown) => shown, allowed }: Setting,
  text: string,
  calledAs: string | undefined,
): unknown {
  let reason = "";
  try {
    const value = parse(text);
    if (value !== undefined) return value;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    reason = ` (${error.message})`;
  }
  const came = secret ? `its ${text.length} characters are` : `${JSON.stringify(mask(text))} is`;
  throw new ConfigError(`${calledAs}: ${came} not allowed${reason}; expected ${allowed}`);
}

/** Variables that look like settings and have no effect. They are logged at the start, and named by `plantstore config`. */
export function findIgnoredVariables(environment: Environment): string[] {
  const known = new Set(Object.values(settings).map(({ env }) => env));
  return Object.keys(environment)
    .filter((name) => name.startsWith("PLANTSTORE_") && !known.has(name))
    .filter((name) => !isServiceLink(name, environment[name] ?? ""))
    .map((name) => {
      const variable = name.slice("PLANTSTORE_".length);
      return unprefixed.has(variable)
        ? `${name} has no effect; the variable is called ${variable}.`
        : `${name} is not a setting and has no effect.`;
    });
}

/** Kubernetes sets these in every pod beside a service that is called plantstore. */
const isServiceLink = (name: string, value: string): boolean =>
  /^PLANTSTORE_(SERVICE_(HOST|PORT)|PORT_\d+_)/.test(name) || /^(tcp|udp):\/\//.test(value);

function parseList(
  text: string,
  isAllowed: (item: string) => boolean,
): readonly string[] | undefined {
  const items = text === "" ? [] : text.split(",").map((item) => item.trim());
  return items.every(isAllowed) ? items : undefined;
}

function isNetwork(text: string): boolean {
  const [address = "", bits = "0", ...more] = text.split("/");
  const family = familyOf(address);
  const bitsMax = family === 6 ? 128 : 32;
  return family !== 0 && more.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax;
}
