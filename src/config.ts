/** Every setting and its parser, and every fixed limit. Flags override the environment, which overrides defaults. */

import { familyOf, isBasePath, isHost, isSecureUrl } from "./address.ts";
import { DAY_MS, findDurationMs, findRate } from "./domain/time.ts";
import { findAttributes, findHeaders } from "./domain/trace.ts";
import {
  isBucketUrl,
  maskBucketUrl,
  maskStoreUrl,
  parseBucketUrl,
  parseStoreUrl,
} from "./store-url.ts";

const logLevels = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof logLevels)[number];

interface Rule {
  readonly default?: string;
  readonly meaning: string;
  readonly parse: (text: string) => unknown;
  readonly allowed: string;
  readonly secret?: true;
  readonly mask?: (text: string) => string;
  /** The variable of a standard, in place of PLANTSTORE_…. Other programs share those of OpenTelemetry. */
  readonly env?: string;
  /** Another setting that must be set too. */
  readonly needs?: string;
  /** Another setting without which it has no effect. */
  readonly only?: string;
}

const integer = (fallback: string, min: number, max: number) => ({
  default: fallback,
  allowed: `an integer from ${min} to ${max}`,
  parse: (text: string): number | undefined => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  },
});

const samplers = {
  always_on: { isParentBased: false, root: 1 },
  always_off: { isParentBased: false, root: 0 },
  traceidratio: { isParentBased: false, root: undefined },
  parentbased_always_on: { isParentBased: true, root: 1 },
  parentbased_always_off: { isParentBased: true, root: 0 },
  parentbased_traceidratio: { isParentBased: true, root: undefined },
} as const;

/** A choice as OpenTelemetry defines it: case-insensitive. */
const choice = <Value extends string>(...values: readonly [Value, ...Value[]]) => ({
  default: values[0],
  allowed: values.length === 1 ? `only ${values[0]}` : values.join(", "),
  parse: (text: string): Value | undefined =>
    text === "" ? values[0] : values.find((value) => value === text.toLowerCase()),
});

const timeout = (fallback: string) => {
  const { parse, ...rule } = integer(fallback, 1, 600_000);
  return { ...rule, parse: (text: string) => (text === "" ? Number(fallback) : parse(text)) };
};

const endpoint = {
  default: "",
  parse: (text: string): string | undefined => {
    const { protocol = "", username, password } = URL.parse(text) ?? {};
    if (username || password)
      throw new TypeError("credentials belong in OTEL_EXPORTER_OTLP_HEADERS");
    return text === "" || (/^https?:$/.test(protocol) && !/[#\s]/.test(text)) ? text : undefined;
  },
  allowed: "an http or https URL, as in http://127.0.0.1:4318",
  mask: (text: string): string =>
    text.replace(/\/\/[^/]*@/, "//********@").replace(/\?.*/s, "?********"),
};

const headers = {
  default: "",
  parse: (text: string): string | undefined => (findHeaders(text) ? text : undefined),
  allowed: "name=value pairs separated by commas, with percent-encoded values",
  secret: true,
} as const;

const PROTOCOL = "http/json";
const protocol = choice(PROTOCOL, "http/protobuf", "grpc");

/** Other systems have SO_REUSEPORT too, but give all connections to one thread. */
const WORKERS_MAX = process.platform === "linux" ? 64 : 1;

/** The key itself instead of its path must not be printed. */
const pemFile = {
  parse: (text: string) => (text.includes("-----BEGIN") ? undefined : text),
  allowed: "the path of a file",
  mask: (text: string) => (text.includes("-----BEGIN") ? "********" : text),
};

const nameAtIssuer = {
  default: "",
  parse: (text: string) => (/^[!#-[\]-~]{0,200}$/.test(text) ? text : undefined),
  allowed: 'up to 200 visible ASCII characters without " and \\',
  only: "jwtIssuer",
};

const rules = {
  host: {
    env: "HOST",
    default: "127.0.0.1",
    meaning: "Address to listen on; 0.0.0.0 for every network.",
    parse: (text) => (isHost(text) ? text : undefined),
    allowed: "a host name or an IP address, without a port",
  },
  port: {
    env: "PORT",
    meaning: "Port to listen on; 0 picks a free one.",
    ...integer("8080", 0, 65_535),
  },
  tlsCert: {
    default: "",
    meaning: "PEM file with the certificate for HTTPS, followed by its intermediate certificates.",
    ...pemFile,
    needs: "tlsKey",
  },
  tlsKey: {
    default: "",
    meaning: "PEM file with the private key.",
    ...pemFile,
    needs: "tlsCert",
  },
  databaseUrl: {
    env: "DATABASE_URL",
    default: "sqlite:./data/plants.db",
    meaning: "URL of the store: sqlite:<file> or postgres://…",
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
  jwtIssuer: {
    default: "",
    meaning: "Issuer whose JWTs are also accepted, exactly as in their iss claim.",
    parse: (text) => (text === "" || isIssuer(text) ? text : undefined),
    allowed:
      "an https URL without query and fragment, as in https://id.example; http on a loopback address",
    // An issuer signs tokens for other services too.
    needs: "jwtAudience",
  },
  jwtAudience: {
    meaning: "Audience (aud) of these JWTs, ideally the public URL of the service.",
    ...nameAtIssuer,
  },
  jwtClientId: {
    meaning: "Client ID of the console at the issuer; with it, staff sign in there.",
    ...nameAtIssuer,
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
      "Trusted proxies: Forwarded or X-Forwarded-For for the log, X-Forwarded-Prefix for links.",
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
  bodyBytesTotalMax: {
    meaning: "Memory for all request bodies and unread answers together.",
    // The minimum fits the largest body.
    ...integer("50331648", 1_048_576, 68_719_476_736),
  },
  // With a head of 16 KiB (headerBytesMax) and a body that does not count, a request takes up to 64 KiB until GC.
  connectionsMax: {
    meaning: "Maximum number of connections; more are refused. Each may take 64 KiB of memory.",
    ...integer("2048", 1, 1_000_000),
  },
  backupTo: {
    default: "",
    meaning: "SQLite: folder or bucket for backups that the service makes while it runs.",
    parse: (text) => {
      if (isBucketUrl(text)) parseBucketUrl(text);
      // A folder with such a name would be taken for a place elsewhere.
      else if (/^[a-z0-9+.-]+:\/\//i.test(text)) throw new TypeError("unknown scheme");
      return text;
    },
    allowed: "a folder, or s3://bucket/prefix",
    mask: maskBucketUrl,
  },
  backupEvery: {
    default: "15m",
    meaning: "Interval at which a new backup is considered, as in 15m.",
    parse: (text) => ((findDurationMs(text) ?? Infinity) <= 7 * DAY_MS ? text : undefined),
    allowed: "seconds, minutes, hours or days, as in 90s, 15m, 6h or 1d, at most 7d",
    only: "backupTo",
  },
  backupMomentsDays: {
    meaning: "Any moment of these last days can be restored.",
    ...integer("7", 0, 3_650),
    only: "backupTo",
  },
  backupStatesDays: {
    meaning: "Before that, one state a day can be restored for this number of days.",
    ...integer("30", 0, 3_650),
    only: "backupTo",
  },
  writeConnections: {
    meaning: "PostgreSQL: connections for writes, each with one group of writes in flight.",
    ...integer("2", 1, 64),
  },
  plantsMax: {
    meaning: "Maximum number of plants; 0 for no limit.",
    ...integer("0", 0, 999_999_999_999_999),
  },
  diskFreeBytesMin: {
    meaning: "SQLite: free disk space below which new plants are refused; 0 for no limit.",
    ...integer("67108864", 0, 999_999_999_999_999),
  },
  changesDays: {
    meaning: "Retention of the journal in days; 0 keeps no journal.",
    ...integer("7", 0, 3_650),
  },
  webhooksPrivate: {
    meaning: "Whether webhooks may be sent to private, loopback and link-local addresses.",
    default: "false",
    parse: (text) => (text === "true" ? true : text === "false" ? false : undefined),
    allowed: "true or false",
  },
  drainDelaySeconds: {
    meaning:
      "Delay between /readyz turning 503 and closing the listener, so load balancers notice.",
    ...integer("0", 0, 300),
  },
  otlpEndpoint: {
    env: "OTEL_EXPORTER_OTLP_ENDPOINT",
    meaning:
      "Base URL of the collector; traces go to /v1/traces below it. Without one, tracing is off.",
    ...endpoint,
  },
  otlpTracesEndpoint: {
    env: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    meaning: "Full URL for traces, in place of the base URL.",
    ...endpoint,
  },
  otlpHeaders: {
    env: "OTEL_EXPORTER_OTLP_HEADERS",
    meaning: "Headers for the collector, as in authorization=Bearer%20…; a secret.",
    ...headers,
  },
  otlpTracesHeaders: {
    env: "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    meaning: "Headers for traces only, in place of the others; a secret.",
    ...headers,
  },
  otlpProtocol: {
    env: "OTEL_EXPORTER_OTLP_PROTOCOL",
    meaning: "Protocol of the collector. For traces the service supports only http/json.",
    ...protocol,
  },
  otlpTracesProtocol: {
    env: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    meaning: "The same for traces only, if other programs need another protocol.",
    ...protocol,
    default: "",
    parse: (text) => (text === "" ? "" : protocol.parse(text)),
  },
  otlpTimeoutMs: {
    env: "OTEL_EXPORTER_OTLP_TIMEOUT",
    meaning: "Milliseconds for the collector to answer.",
    ...timeout("10000"),
  },
  otlpTracesTimeoutMs: {
    env: "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    meaning: "The same for traces only.",
    ...timeout(""),
  },
  otelServiceName: {
    env: "OTEL_SERVICE_NAME",
    default: "",
    meaning: "service.name of the traces; plantstore unless the resource attributes have one.",
    parse: (text) => (/^\P{Cc}{0,255}$/u.test(text) ? text : undefined),
    allowed: "up to 255 characters without control characters",
  },
  otelResourceAttributes: {
    env: "OTEL_RESOURCE_ATTRIBUTES",
    default: "",
    meaning: "Resource attributes of this instance, as in deployment.environment.name=shop.",
    parse: (text) => (findAttributes(text) ? text : undefined),
    allowed: "name=value pairs separated by commas, with percent-encoded values",
  },
  tracesSampler: {
    env: "OTEL_TRACES_SAMPLER",
    meaning: "Which requests are traced.",
    ...choice("parentbased_always_on", ...(Object.keys(samplers) as (keyof typeof samplers)[])),
    allowed: Object.keys(samplers).join(", "),
  },
  tracesSamplerArg: {
    env: "OTEL_TRACES_SAMPLER_ARG",
    default: "",
    meaning: "Share of requests that a traceidratio sampler traces, as in 0.01; 1 if unset.",
    parse: (text) => {
      if (text === "") return 1;
      const share = /^(\d+\.?\d*|\.\d+)(e-?\d{1,3})?$/i.test(text) ? Number(text) : Number.NaN;
      return share >= 0 && share <= 1 ? share : undefined;
    },
    allowed: "a number from 0 to 1",
  },
  tracesExporter: {
    env: "OTEL_TRACES_EXPORTER",
    meaning: "none turns traces off.",
    ...choice("otlp", "none"),
  },
  otelDisabled: {
    env: "OTEL_SDK_DISABLED",
    meaning: "true turns traces off.",
    ...choice("false", "true"),
    allowed: "true or false",
  },
} satisfies Record<string, Rule>;

export type SettingName = keyof typeof rules;

/** Secrets have no flag, because every user of the machine can read a command line; nor have variables of OpenTelemetry. */
type Setting = Rule & Readonly<{ env: string; flag: string | undefined }>;

const isShared = (env = ""): boolean => env.startsWith("OTEL_");

/** Two words are joined by a dash, however a setting or a parameter joins them. */
export const toFlag = (name: string): string =>
  `--${name.replaceAll(/_|(?=[A-Z])/g, "-").toLowerCase()}`;

/** `logLevel` is --log-level and PLANTSTORE_LOG_LEVEL. */
export const settings = Object.fromEntries(
  Object.entries(rules).map(([name, rule]: [string, Rule]) => {
    const flag = toFlag(name);
    const variable = `PLANTSTORE_${flag.slice(2).toUpperCase().replaceAll("-", "_")}`;
    const { env = variable, secret } = rule;
    return [name, { ...rule, env, flag: secret || isShared(env) ? undefined : flag }];
  }),
) as Readonly<Record<SettingName, Setting>>;

const limit = <Value>(value: Value, meaning: string) => ({ value, meaning });
const webhookRetrySeconds = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/** Limits that no operator has a reason to change. Tests override them in the Config. */
export const fixedLimits = {
  bodyBytesMax: limit(1_048_576, "Largest request body."),
  headerBytesMax: limit(16_384, "Largest request head. It is the runtime's own limit."),
  urlBytesMax: limit(8_192, "Longest URL."),
  readSecondsMax: limit(10, "Time for a whole body to arrive, however steadily it trickles."),
  idleSecondsMax: limit(
    30,
    "Time until an idle connection is closed; the runtime may be 4 s early.",
  ),
  tlsPollSeconds: limit(5, "Interval at which the files of the certificate and key are read."),
  queueLengthMax: limit(8_192, "Writes that may wait for a commit, for each HTTP thread."),
  queueSecondsMax: limit(5, "Deadline of a queued write."),
  countSecondsMax: limit(1, "Time for one count; then it is not exact."),
  commitLengthMax: limit(1_024, "Writes per commit and HTTP thread."),
  scanRowsMax: limit(50_000, "Plants that a search scans for one page."),
  readConnections: limit(4, "PostgreSQL: connections for reads."),
  statementSecondsMax: limit(3, "PostgreSQL: time for one statement; then its connection closes."),
  drainSecondsMax: limit(10, "Time for requests in flight to finish when the service drains."),
  revertPlantsMax: limit(10_000, "Plants in one pass of undoing changes, and in a dry run."),
  revertCharactersMax: limit(
    4_194_304,
    "Characters in the names and tags of the plants in one such pass.",
  ),
  backupCopySeconds: limit(86_400, "A change is in a scheduled copy after at most this time."),
  backupLogBytesMin: limit(
    1_048_576,
    "Size of the changes behind a copy, packed, below which they are no reason for another copy.",
  ),
  backupCheckDays: limit(30, "Time within which every piece of the backups is read again."),
  backupFolderSeconds: limit(1, "Interval at which changes are written to a backup folder."),
  backupBucketSeconds: limit(10, "Interval at which changes are written to a bucket."),
  trimSeconds: limit(60, "Interval of journal trims."),
  markSeconds: limit(60, "Unit of the age of changes, counted while a service runs."),
  commentSeconds: limit(15, "Time between comments in an event stream; proxies close silent ones."),
  jobLostSeconds: limit(
    10,
    "Time after which a job is lost, if the service that runs it writes no progress.",
  ),
  sampleSeconds: limit(5, "Interval of samples for `GET /activity`."),
  tokenStaleSecondsMax: limit(
    60,
    "Time that a token stays valid after its last check, while the store cannot be asked.",
  ),
  webhookSecondsMax: limit(15, "Time for a webhook's receiver to answer."),
  webhookRetrySeconds: limit(
    webhookRetrySeconds,
    "Backoff between attempts; then the webhook is paused.",
  ),
  webhookLeaseSeconds: limit(25, "Lease of the sending instance, longer than a delivery takes."),
  webhookPollMs: limit(200, "Poll interval of webhooks."),
  jwtRefreshSeconds: limit(300, "Interval at which the issuer's keys are fetched."),
  jwtCoolDownSeconds: limit(30, "Minimum time between two fetches of the issuer's keys."),
  jwtFetchSecondsMax: limit(5, "Time for the issuer to answer."),
  spansMax: limit(2_048, "Spans that wait for the collector, for each HTTP thread."),
  spanDelayMs: limit(1_000, "Time that spans wait for others to share a request to the collector."),
  spanRetryMs: limit(1_000, "First backoff of a request to the collector; it doubles each time."),
  spanRetryMsMax: limit(60_000, "Longest wait for a collector, even if it asks for a longer one."),
  spanFlushMs: limit(1_000, "Time for the last spans when the service stops."),
};

type Limits = { [Name in keyof typeof fixedLimits]: (typeof fixedLimits)[Name]["value"] };
type ValueOf<Name extends SettingName> = NonNullable<ReturnType<(typeof rules)[Name]["parse"]>>;

type Settings = { [Name in Exclude<SettingName, "token">]: ValueOf<Name> };

export type Config = Readonly<Limits & Settings & { token: string | undefined }>;

type Source = "flag" | "environment" | "default";

export type Resolved = Readonly<{ config: Config; sources: Readonly<Record<SettingName, Source>> }>;

type Environment = Readonly<Record<string, string | undefined>>;

export class ConfigError extends Error {}

/** `flags` may contain flags that are not settings. `injected` overrides values in tests. */
export function resolveConfig(
  flags: Readonly<Record<string, unknown>>,
  environment: Environment,
  injected: Partial<Config> = {},
): Resolved {
  const values: Record<string, unknown> = {};
  for (const [name, { value }] of Object.entries(fixedLimits)) values[name] = value;
  const sources: Record<string, Source> = {};
  const faults: string[] = [];
  const isTraced = wantsTraces(environment);
  for (const [name, setting] of Object.entries(settings)) {
    const flag = typeof flags[name] === "string" ? flags[name] : undefined;
    const variable = environment[setting.env];
    const text = flag ?? variable ?? setting.default;
    const calledAs = flag === undefined ? setting.env : setting.flag;
    const source = variable === undefined ? "default" : "environment";
    sources[name] = flag === undefined ? source : "flag";
    try {
      values[name] = text === undefined ? undefined : parseSetting(setting, text, calledAs);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      // Those of OpenTelemetry may be meant for other programs.
      if (isTraced || !isShared(setting.env)) faults.push(error.message);
      else {
        values[name] = setting.parse(setting.default ?? "");
        sources[name] = "default";
      }
    }
  }
  const config = Object.assign(values as Config, injected);
  for (const [name, { env, needs, only }] of Object.entries(settings)) {
    const isUnset = (other: string | undefined): boolean => config[other as SettingName] === "";
    if (isUnset(name) || sources[name] === "default") continue;
    if (isUnset(needs)) faults.push(`${env}: needs ${settings[needs as SettingName].env}`);
    if (isUnset(only))
      faults.push(`${env}: has no effect without ${settings[only as SettingName].env}`);
  }
  const spoken = config.otlpTracesProtocol ? "otlpTracesProtocol" : "otlpProtocol";
  if (config[spoken] !== PROTOCOL && faults.length === 0 && findTracing(config) !== undefined)
    faults.push(
      `${settings[spoken].env}: traces are sent by ${PROTOCOL} only; set ${settings.otlpTracesProtocol.env}=${PROTOCOL}`,
    );
  // A share without its sampler would trace every request.
  const hasShare = isTraced && environment[settings.tracesSamplerArg.env];
  if (hasShare && !config.tracesSampler?.endsWith("ratio"))
    faults.push(
      `${settings.tracesSamplerArg.env}: has no effect without a ratio in ${settings.tracesSampler.env}, as in parentbased_traceidratio`,
    );
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return { config: Object.freeze(config), sources: sources as Resolved["sources"] };
}

/** Reads the raw variables: only if requests are traced does it matter whether they are valid. */
function wantsTraces(environment: Environment): boolean {
  const find = (name: SettingName): string => (environment[settings[name].env] ?? "").toLowerCase();
  const isOff = find("otelDisabled") === "true" || find("tracesExporter") === "none";
  return !isOff && (find("otlpEndpoint") !== "" || find("otlpTracesEndpoint") !== "");
}

/** Where traces go, and which requests are traced; undefined if none are. */
export function findTracing(config: Config) {
  const { otlpEndpoint, otlpTracesEndpoint, tracesSampler, tracesSamplerArg } = config;
  const isOff = config.otelDisabled === "true" || config.tracesExporter === "none";
  if (isOff || (otlpEndpoint === "" && otlpTracesEndpoint === "")) return undefined;
  const url = new URL(otlpTracesEndpoint || otlpEndpoint);
  if (otlpTracesEndpoint === "") url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`;
  const { isParentBased, root = tracesSamplerArg } = samplers[tracesSampler];
  return {
    url: url.href,
    headers: findHeaders(config.otlpTracesHeaders || config.otlpHeaders) ?? new Map(),
    timeoutMs: config.otlpTracesTimeoutMs || config.otlpTimeoutMs,
    isParentBased,
    share: root,
  };
}

/** Throws a ConfigError, which never shows a secret. `calledAs` is the flag or variable that holds the text. */
export function parseSetting(setting: Setting, text: string, calledAs: string | undefined) {
  const { parse, secret, mask = (shown) => shown, allowed } = setting;
  let reason = "";
  try {
    const value = parse(text);
    if (value !== undefined) return value;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    reason = ` (${error.message})`;
  }
  const subject = secret ? `its ${text.length} characters are` : `${JSON.stringify(mask(text))} is`;
  throw new ConfigError(`${calledAs}: ${subject} not allowed${reason}; expected ${allowed}`);
}

/** Variables of OpenTelemetry that concern traces, and nothing else. */
const TRACING = /^OTEL_(EXPORTER_OTLP_(?!METRICS|LOGS)|TRACES_|BSP_|SPAN_|PROPAGATORS$)/;

/** Variables that look like settings and are none: logged at startup, and listed by `plantstore config`. */
export function findIgnoredVariables(environment: Environment): string[] {
  const known = new Set(Object.values(settings).map(({ env }) => env));
  const isTraced = wantsTraces(environment);
  return (
    Object.keys(environment)
      .filter((name) => name.startsWith("PLANTSTORE_") || (isTraced && TRACING.test(name)))
      .filter((name) => !known.has(name))
      // Kubernetes sets these in every pod if a Service is named plantstore.
      .filter((name) => !/^PLANTSTORE_(SERVICE_(HOST|PORT)|PORT_\d+_)/.test(name))
      .filter((name) => !/^(tcp|udp):\/\//.test(environment[name] ?? ""))
      .map((name) => {
        const variable = name.slice("PLANTSTORE_".length);
        return known.has(variable)
          ? `${name} has no effect; the variable is called ${variable}.`
          : `${name} is not a setting and has no effect.`;
      })
  );
}

function parseList(text: string, isAllowed: (item: string) => boolean) {
  const items = text === "" ? [] : text.split(",").map((item) => item.trim());
  return items.every(isAllowed) ? items : undefined;
}

function isIssuer(text: string): boolean {
  const { username, password } = URL.parse(text) ?? {};
  return isSecureUrl(text) && !/[?#\s]/.test(text) && !username && !password;
}

function isNetwork(text: string): boolean {
  const [address = "", bits = "0", ...more] = text.split("/");
  const family = familyOf(address);
  const bitsMax = family === 6 ? 128 : 32;
  return family !== 0 && more.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax;
}
