/**
 * The URL of a store: `sqlite:<file>`, or `postgres://user:password@host:port,host:port/database?…` as in libpq.
 * The URL of a bucket: `s3://bucket/prefix`.
 */

/** A name, an address, or, if it begins with a slash, the folder of a local socket. */
export type Host = Readonly<{ name: string; port: number }>;

const sslModes = ["disable", "prefer", "require", "verify-ca", "verify-full"] as const;
export type SslMode = (typeof sslModes)[number];

export interface Target extends Readonly<
  Record<"user" | "password" | "database" | "applicationName", string>
> {
  readonly hosts: readonly Host[];
  /** Undefined if it depends on the host: certificates are verified, except on this machine. */
  readonly sslMode: SslMode | undefined;
  readonly rootCertificate: string | undefined;
  readonly certificate: string | undefined;
  readonly key: string | undefined;
  readonly connectSeconds: number;
  /** Whether statements are prepared; undefined if that depends on whether a server or a pooler answers. */
  readonly prepare: boolean | undefined;
}

const SCHEME = /^postgres(ql)?:\/\//;
const DEFAULT_PORT = 5432;

export const isPostgresUrl = (url: string): boolean => SCHEME.test(url);

/** The pattern of each parameter, and the error if it does not match. Unknown parameters are refused, never ignored. */
const parameters: Readonly<Record<string, readonly [RegExp, string]>> = {
  host: [/^/, ""],
  sslmode: [new RegExp(`^(${sslModes.join("|")})$`), `is none of ${sslModes.join(", ")}`],
  sslrootcert: [/^/, ""],
  sslcert: [/^/, ""],
  sslkey: [/^/, ""],
  application_name: [/^/, ""],
  connect_timeout: [/^0*([1-9]|[1-5]\d|60)$/, "is not a number of seconds from 1 to 60"],
  // Only a server that accepts writes is ever used.
  target_session_attrs: [/^(read-write|primary)$/, "is neither read-write nor primary"],
  prepare: [/^(true|false)$/, "is neither true nor false"],
};

const SHAPE =
  /^postgres(?:ql)?:\/\/(?:(?<user>[^:@/?#]*)(?::(?<password>[^@/?#]*))?@)?(?<hosts>[^/?#@]*)(?:\/(?<database>[^/?#]*))?(?:\?(?<query>[^#]*))?$/;

/** Throws a TypeError that says what is wrong, and never repeats the password. */
export function parsePostgresUrl(url: string): Target {
  const { groups } = SHAPE.exec(url) ?? {};
  if (groups === undefined) throw new TypeError("not postgres://user:password@host:port/database");
  const query = new URLSearchParams(groups["query"] ?? "");
  for (const [name, value] of query) {
    const [allowed, otherwise] = (Object.hasOwn(parameters, name) && parameters[name]) || [];
    // The name is not shown: it may be the rest of a password with a bare ? in it.
    if (allowed === undefined)
      throw new TypeError(`a parameter is none of ${Object.keys(parameters).join(", ")}`);
    if (query.getAll(name).length > 1) throw new TypeError(`the parameter ${name} appears twice`);
    if (!allowed.test(value)) throw new TypeError(`${name} ${otherwise}`);
  }
  if (query.has("sslcert") !== query.has("sslkey"))
    throw new TypeError("sslcert and sslkey go together");
  const user = decode(groups["user"] ?? "");
  if (user === "") throw new TypeError("the user is missing");
  const text = (name: string): string | undefined => query.get(name) ?? undefined;
  return {
    hosts: parseHosts(groups["hosts"] ?? "", text("host")),
    user,
    password: decode(groups["password"] ?? ""),
    // As in libpq.
    database: decode(groups["database"] ?? "") || user,
    sslMode: text("sslmode") as SslMode | undefined,
    rootCertificate: text("sslrootcert"),
    certificate: text("sslcert"),
    key: text("sslkey"),
    applicationName: text("application_name") ?? "plantstore",
    connectSeconds: Number(text("connect_timeout") ?? 2),
    prepare: query.has("prepare") ? text("prepare") === "true" : undefined,
  };
}

/** For people: everything but the password. */
export function describeTarget({ hosts, user, database }: Target): string {
  const places = hosts.map(describeHost).join(",");
  return `postgres://${encodeURIComponent(user)}@${places}/${encodeURIComponent(database)}`;
}

export const describeHost = ({ name, port }: Host): string =>
  `${name.includes(":") ? `[${name}]` : name}:${port}`;

const isSocket = ({ name }: Host): boolean => name.startsWith("/");

export const findSocketPath = (host: Host): string | undefined =>
  isSocket(host) ? `${host.name}/.s.PGSQL.${host.port}` : undefined;

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|::1)$/;

export const isLocal = (host: Host): boolean => isSocket(host) || LOOPBACK.test(host.name);

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new TypeError("a % is not followed by two hexadecimal digits");
  }
}

const HOST = /^(?:\[(?<address>[0-9A-Fa-f:.]+)\]|(?<name>[A-Za-z0-9._-]+))?(?::(?<port>\d{1,5}))?$/;

function parseHosts(list: string, parameter: string | undefined): Host[] {
  // Hosts in the parameter may be socket folders. Their port is that of the authority.
  const isParameter = parameter !== undefined;
  if (isParameter && !/^(:\d+)?$/.test(list)) throw new TypeError("there are two lists of hosts");
  return (parameter ?? list).split(",").map((part) => {
    const { address, name = address, port } = HOST.exec(part)?.groups ?? {};
    const found = isParameter && part.startsWith("/") ? part : name;
    if (found === undefined || (isParameter && port !== undefined))
      throw new TypeError("a host is missing or is not a name");
    const number = Number((isParameter ? list.slice(1) : port) || DEFAULT_PORT);
    if (number >= 1 && number <= 65_535) return { name: found, port: number };
    throw new TypeError("a port is not a number from 1 to 65535");
  });
}

/** Throws a TypeError that says what is wrong, without the password. */
export function parseStoreUrl(url: string) {
  return isPostgresUrl(url)
    ? ({ engine: "postgres", target: parsePostgresUrl(url) } as const)
    : ({ engine: "sqlite", path: parseSqlitePath(url) } as const);
}

const SQLITE_SCHEME = "sqlite:";

/** `sqlite:./relative.db`, `sqlite:/absolute.db` or `sqlite:///absolute.db`. */
function parseSqlitePath(url: string): string {
  if (!url.startsWith(SQLITE_SCHEME)) throw new TypeError("unknown scheme");
  const path = url.slice(SQLITE_SCHEME.length).replace(/^\/\/(?=\/)/, "");
  // A host, options or an in-memory store would be accepted and ignored.
  if (path === "" || path.startsWith("//") || /^(:|file:)/.test(path) || /[?#\0]/.test(path))
    throw new TypeError("not the path of a file");
  return path;
}

/** For people. Shows nothing of a malformed URL that could be a password. */
export function maskStoreUrl(url: string): string {
  if (url.startsWith(SQLITE_SCHEME)) return url;
  try {
    parseStoreUrl(url);
    return url.replace(/^([a-z]+:\/\/[^:@]*):[^@]*@/, "$1:********@");
  } catch {
    const scheme = /^[a-z]+:\/\//.exec(url)?.[0] ?? "";
    return /[:@=]/.test(url.slice(scheme.length)) ? `${scheme}********` : url;
  }
}

const BUCKET_SCHEME = "s3://";

export const isBucketUrl = (url: string): boolean => url.startsWith(BUCKET_SCHEME);

/** Other characters, and segments of dots, do not survive every program on the way to a bucket. */
const SEGMENT = /^(?!\.+$)[\w.!*'()=+,@:~-]+$/;

/** The prefix has no slash at its ends, and may be empty. Throws a TypeError that says what is wrong. */
export function parseBucketUrl(url: string): Readonly<{ bucket: string; prefix: string }> {
  if (!isBucketUrl(url)) throw new TypeError("not s3://bucket/prefix");
  const [bucket = "", ...segments] = url.slice(BUCKET_SCHEME.length).replace(/\/$/, "").split("/");
  if (bucket.includes("@")) throw new TypeError("credentials belong in AWS_… variables");
  if (!/^[a-z0-9]([a-z0-9.-]{1,61})[a-z0-9]$/.test(bucket) || bucket.includes(".."))
    throw new TypeError(
      "a bucket has 3 to 63 characters out of a-z 0-9 . -, and begins and ends with a letter or digit",
    );
  if (/^[0-9.]+$/.test(bucket)) throw new TypeError("a bucket is not an IP address");
  if (!segments.every((segment) => SEGMENT.test(segment)))
    throw new TypeError("the prefix has an empty segment, or one of dots, or other characters");
  const prefix = segments.join("/");
  if (prefix.length > 512) throw new TypeError("the prefix is longer than 512 characters");
  return { bucket, prefix };
}

/** For people: without credentials that somebody put there. */
export const maskBucketUrl = (url: string): string =>
  url.replace(/^([a-z0-9]+:\/\/).*@/i, "$1********@");
