/** What a URL of a PostgreSQL store means, what is wrong with it, and what of it is shown. */

import { describe, expect, test } from "bun:test";
import {
  describeTarget,
  findSocketPath,
  type Host,
  isLocal,
  isPostgresUrl,
  maskStoreUrl,
  parsePostgresUrl,
  parseStoreUrl,
  type Target,
} from "../../src/store-url.ts";

/** What a URL means that says no more than it must. */
const plainest: Target = {
  hosts: [{ name: "db", port: 5432 }],
  user: "ada",
  password: "",
  database: "ada",
  sslMode: undefined,
  rootCertificate: undefined,
  certificate: undefined,
  key: undefined,
  applicationName: "plantstore",
  connectSeconds: 2,
  prepare: undefined,
};

const hosts = (...list: [name: string, port: number][]): { readonly hosts: readonly Host[] } => ({
  hosts: list.map(([name, port]) => ({ name, port })),
});

const good: [url: string, Partial<Target>][] = [
  ["postgres://ada@db", {}],
  ["postgresql://ada@db", {}],
  ["postgres://ada@db/", {}],
  ["postgres://ada:@db", {}],
  ["postgres://ada:secret@db/plants", { password: "secret", database: "plants" }],
  ["postgres://ada@db:6543", hosts(["db", 6543])],
  ["postgres://a%40b:p%40%3A%2F%3F%23%25@db/ada", { user: "a@b", password: "p@:/?#%" }],
  ["postgres://ada:%C3%BC%F0%9F%8C%B5@db/a%20b%2F1", { password: "ü🌵", database: "a b/1" }],
  ["postgres://ada:se:cr:et@db", { password: "se:cr:et" }],
  ["postgres://ada@one,two:6543,10.0.0.3:1", hosts(["one", 5432], ["two", 6543], ["10.0.0.3", 1])],
  ["postgres://ada@[::1]", hosts(["::1", 5432])],
  ["postgres://ada@[fd00::2]:6543,db", hosts(["fd00::2", 6543], ["db", 5432])],
  ["postgres://ada@db-1.north_2.example.:65535", hosts(["db-1.north_2.example.", 65_535])],
  ["postgres://ada@db:1", hosts(["db", 1])],
  ["postgres://ada@/?host=/var/run/postgresql", hosts(["/var/run/postgresql", 5432])],
  ["postgres://ada@:6543/?host=/run/pg", hosts(["/run/pg", 6543])],
  ["postgres://ada@/?host=%2Frun%2Fpg,%2Frun", hosts(["/run/pg", 5432], ["/run", 5432])],
  ["postgres://ada@/?host=one,two", hosts(["one", 5432], ["two", 5432])],
  ["postgres://ada@/?host=[::1]", hosts(["::1", 5432])],
  ...(["disable", "prefer", "require", "verify-ca", "verify-full"] as const).map(
    (sslMode): [string, Partial<Target>] => [`postgres://ada@db?sslmode=${sslMode}`, { sslMode }],
  ),
  ["postgres://ada@db?sslrootcert=/etc/ca.pem", { rootCertificate: "/etc/ca.pem" }],
  ["postgres://ada@db?sslcert=a%20b.pem&sslkey=/k", { certificate: "a b.pem", key: "/k" }],
  ["postgres://ada@db?application_name=north%201", { applicationName: "north 1" }],
  ...["1", "9", "10", "59", "60", "007"].map((seconds): [string, Partial<Target>] => [
    `postgres://ada@db?connect_timeout=${seconds}`,
    { connectSeconds: Number(seconds) },
  ]),
  ["postgres://ada@db?prepare=true", { prepare: true }],
  ["postgres://ada@db?prepare=false", { prepare: false }],
  ["postgres://ada@db?target_session_attrs=read-write", {}],
  ["postgres://ada@db?target_session_attrs=primary", {}],
];

/** Behind `postgres://`, by what is said of them. */
const faults: Readonly<Record<string, string>> = {
  "the user is missing": "db db:5432/plants :secret@db ada:sec/ret@db",
  "a host is missing or is not a name":
    "ada@ ada@/plants ada@one,,two ada@one, ada@:5432 ada@fd00::2 ada@[host] ada@%2Frun%2Fpg/plants ada@db: " +
    "ada@db:port ada@db:123456 ada@d+b ada@/run ada@/?host= ada@/?host=one, ada@/?host=one:6543 ada@/?host=run/pg",
  "a port is not a number from 1 to 65535":
    "ada@db:0 ada@db:65536 ada@one,two:99999 ada@:0/?host=/run",
  "there are two lists of hosts": "ada@db?host=/run ada@db:1?host=/run",
  "not postgres://user:password@host:port/database":
    "ada:secret@db/plants/more ada:secret@db/plants#more ada:sec@ret@db ada:sec#ret@db",
  "a % is not followed by two hexadecimal digits":
    "ada:sec%ret@db ada:sec%FFret@db ada@db/%zz %zz@db",
  "sslmode is none of disable, prefer, require, verify-ca, verify-full":
    "ada@db?sslmode= ada@db?sslmode=allow ada@db?sslmode=VERIFY-FULL ada@db?sslmode=xdisable ada@db?sslmode=disablex",
  "sslcert and sslkey go together": "ada@db?sslcert=a.pem ada@db?sslkey=a.pem",
  "prepare is neither true nor false":
    "ada@db?prepare=1 ada@db?prepare= ada@db?prepare=xtrue ada@db?prepare=falsex",
  "connect_timeout is not a number of seconds from 1 to 60":
    "0 61 70 100 1.5 -1 soon x1 1x".replaceAll(/(?<=^| )/g, "ada@db?connect_timeout="),
  "target_session_attrs is neither read-write nor primary": "any xprimary primaryx".replaceAll(
    /(?<=^| )/g,
    "ada@db?target_session_attrs=",
  ),
  "the parameter sslmode appears twice": "ada@db?sslmode=disable&sslmode=require",
  "a parameter is none of host, sslmode, sslrootcert, sslcert, sslkey, application_name, connect_timeout, target_session_attrs, prepare":
    "ada@db?password=secret ada@db?constructor=1 ada@db?user=ada ada@db?options=-csearch_path%3Dshop " +
    "ada@db?SSLMODE=disable ada:hidden@more?secret@db/plants",
};
const bad: [url: string, message: string][] = [
  ["postgres://", "the user is missing"],
  ["xpostgres://ada@db", "not postgres://user:password@host:port/database"],
  ...Object.entries(faults).flatMap(([message, urls]) =>
    urls.split(" ").map((url): [string, string] => [`postgres://${url}`, message]),
  ),
];

describe("a URL of PostgreSQL", () => {
  test.each(good)("%s is understood", (url, target) => {
    expect(isPostgresUrl(url)).toBe(true);
    expect(parsePostgresUrl(url)).toEqual({ ...plainest, ...target });
  });

  test.each(bad)("%s is refused, in words without a secret", (url, message) => {
    expect(() => parsePostgresUrl(url)).toThrow(new TypeError(message));
    expect(message).not.toContain("secret");
  });

  test.each(["postgres:ada@db", "xpostgres://ada@db", "sqlite:plants.db", "POSTGRES://ada@db", ""])(
    "%p is none",
    (url) => expect(isPostgresUrl(url)).toBe(false),
  );

  test("is described without its password and its parameters, and can be read again", () => {
    const url = "postgres://a%40b:secret@one,[::1]:6543/my%20plants?sslmode=require";
    const description = describeTarget(parsePostgresUrl(url));
    expect(description).toBe("postgres://a%40b@one:5432,[::1]:6543/my%20plants");
    expect(parsePostgresUrl(description).database).toBe("my plants");
  });
});

test.each(["a.db", "/a/b.db", "a///b.db"])("sqlite:%s is that path", (path) => {
  expect(parseStoreUrl(`sqlite:${path}`)).toEqual({ engine: "sqlite", path });
});

describe("a host", () => {
  test.each(["localhost", "127.0.0.1", "127.8.9.1", "::1", "/var/run/postgresql"])(
    "%s is on this machine",
    (name) => expect(isLocal({ name, port: 5432 })).toBe(true),
  );

  test.each(["127.0.0.1.example", "localhost.example", "mylocalhost", "10.0.0.1", "::2", "db"])(
    "%s is elsewhere",
    (name) => expect(isLocal({ name, port: 5432 })).toBe(false),
  );

  test("that is a folder has a socket by its port", () => {
    expect(findSocketPath({ name: "/run/pg", port: 6543 })).toBe("/run/pg/.s.PGSQL.6543");
    expect(findSocketPath({ name: "db", port: 6543 })).toBeUndefined();
  });
});

describe("a URL that is shown", () => {
  test.each([
    ["postgres://ada:secret@db:5432/plants", "postgres://ada:********@db:5432/plants"],
    ["postgresql://ada:secret@a,b?prepare=true", "postgresql://ada:********@a,b?prepare=true"],
    ["postgres://ada:se:secret@db", "postgres://ada:********@db"],
    [" postgres://ada:secret@db", "********"],
  ])("%s as %s", (url, shown) => expect(maskStoreUrl(url)).toBe(shown));

  test.each([
    "postgres://ada@db/plants",
    "postgres://ada@[::1]:5432/plants",
    "sqlite:./plants.db",
    "postgres://ada@db?application_name=a://b:c@d",
  ])("%s as it is", (url) => expect(maskStoreUrl(url)).toBe(url));

  const malformed =
    "postgres://ada:sec@secret@db postgres://ada:1/secret@db postgres://ada:1?secret@db postgres://ada:1#secret@db " +
    "postgres://ada:secret postgres://ada:secret/plants ada:secret@db/plants postgres:ada:secret@db postgres:/ada:secret@db " +
    'POSTGRES://ada:secret@db "postgres://ada:secret@db" postgresql+asyncpg://ada:secret@db mysql2://ada:secret@db ' +
    "jdbc:postgresql://db/plants?user=ada&password=secret postgres://db/plants?PASSWORD=secret&user=ada " +
    "postgres://db/plants?sslpassword=secret";
  test.each([
    ...bad.map(([url]) => url),
    ...malformed.split(" "),
    "postgres://ada:1\nsecret@db",
    " postgres://ada:secret@db",
    "host=db user=ada password=secret dbname=plants",
  ])("%j without its secret, however malformed", (url) => {
    expect(maskStoreUrl(url)).not.toContain("secret");
  });
});
