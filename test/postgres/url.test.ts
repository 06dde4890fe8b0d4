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
  type Target,
} from "../../src/domain/store-url.ts";

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
  ["postgres://ada@db/plants", { database: "plants" }],
  [
    "postgres://ada:secret@db:6543/plants",
    {
      password: "secret",
      database: "plants",
      ...hosts(["db", 6543]),
    },
  ],
  ["postgres://ada:@db", {}],
  [
    "postgres://a%40b:p%40%3A%2F%3F%23%25@db/my%20plants%2F1",
    {
      user: "a@b",
      password: "p@:/?#%",
      database: "my plants/1",
    },
  ],
  ["postgres://ada:se:cr:et@db", { password: "se:cr:et" }],
  ["postgres://ada:%C3%BC%F0%9F%8C%B5@db", { password: "ü🌵" }],
  ["postgres://ada@one,two:6543,10.0.0.3:1", hosts(["one", 5432], ["two", 6543], ["10.0.0.3", 1])],
  ["postgres://ada@[::1]", hosts(["::1", 5432])],
  ["postgres://ada@[fd00::2]:6543,db", hosts(["fd00::2", 6543], ["db", 5432])],
  ["postgres://ada@db-1.north_2.example.:65535", hosts(["db-1.north_2.example.", 65_535])],
  ["postgres://ada@/?host=/var/run/postgresql", hosts(["/var/run/postgresql", 5432])],
  ["postgres://ada@:6543/?host=/run/pg", hosts(["/run/pg", 6543])],
  [
    "postgres://ada@/?host=%2Frun%2Fpg,%2Frun%2Fother",
    hosts(["/run/pg", 5432], ["/run/other", 5432]),
  ],
  [
    "postgres://ada@/plants?host=one,two",
    { database: "plants", ...hosts(["one", 5432], ["two", 5432]) },
  ],
  ["postgres://ada@/?host=[::1]", hosts(["::1", 5432])],
  ["postgres://ada@db?sslmode=disable", { sslMode: "disable" }],
  ["postgres://ada@db?sslmode=prefer", { sslMode: "prefer" }],
  ["postgres://ada@db?sslmode=require", { sslMode: "require" }],
  ["postgres://ada@db?sslmode=verify-ca", { sslMode: "verify-ca" }],
  [
    "postgres://ada@db?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    {
      sslMode: "verify-full",
      rootCertificate: "/etc/ca.pem",
    },
  ],
  [
    "postgres://ada@db?sslcert=a%20b.pem&sslkey=/key.pem",
    {
      certificate: "a b.pem",
      key: "/key.pem",
    },
  ],
  ["postgres://ada@db?application_name=north%201", { applicationName: "north 1" }],
  ["postgres://ada@db?connect_timeout=1", { connectSeconds: 1 }],
  ["postgres://ada@db?connect_timeout=60", { connectSeconds: 60 }],
  ["postgres://ada@db?prepare=true", { prepare: true }],
  ["postgres://ada@db?prepare=false", { prepare: false }],
  ["postgres://ada@db?target_session_attrs=read-write", {}],
  ["postgres://ada@db?target_session_attrs=primary", {}],
];

const PARAMETERS =
  "a parameter is none of host, sslmode, sslrootcert, sslcert, sslkey, application_name, connect_timeout, target_session_attrs, prepare";
const SHAPE = "not postgres://user:password@host:port/database";
const HOST = "a host is missing or is not a name";
const PORT = "a port is not a number from 1 to 65535";
const SSL_MODE = "sslmode is none of disable, prefer, require, verify-ca, verify-full";
const TIMEOUT = "connect_timeout is not a number of seconds from 1 to 60";

const bad: [url: string, message: string][] = [
  ["postgres://db", "the user is missing"],
  ["postgres://db:5432/plants", "the user is missing"],
  ["postgres://:secret@db", "the user is missing"],
  ["postgres://", "the user is missing"],
  ["postgres://ada@", HOST],
  ["postgres://ada@/plants", HOST],
  ["postgres://ada@one,,two", HOST],
  ["postgres://ada@one,", HOST],
  ["postgres://ada@:5432", HOST],
  ["postgres://ada@fd00::2", HOST],
  ["postgres://ada@[host]", HOST],
  ["postgres://ada@%2Frun%2Fpg/plants", HOST],
  ["postgres://ada@db:", HOST],
  ["postgres://ada@db:port", HOST],
  ["postgres://ada@db:123456", HOST],
  ["postgres://ada@d b", HOST],
  ["postgres://ada@db:0", PORT],
  ["postgres://ada@db:65536", PORT],
  ["postgres://ada@one,two:99999", PORT],
  ["postgres://ada@:0/?host=/run", PORT],
  ["postgres://ada@db?host=/run", "there are two lists of hosts"],
  ["postgres://ada@/?host=", HOST],
  ["postgres://ada@/?host=one,", HOST],
  ["postgres://ada@/?host=one:6543", HOST],
  ["postgres://ada@/?host=run/pg", HOST],
  ["postgres://ada:secret@db/plants/more", SHAPE],
  ["postgres://ada:secret@db/plants#more", SHAPE],
  ["postgres://ada:sec@ret@db", SHAPE],
  ["postgres://ada:sec/ret@db", "the user is missing"],
  ["postgres://ada:sec#ret@db", SHAPE],
  ["postgres://ada:sec%ret@db", "a % is not followed by two hexadecimal digits"],
  ["postgres://ada:sec%FFret@db", "a % is not followed by two hexadecimal digits"],
  ["postgres://ada@db/%zz", "a % is not followed by two hexadecimal digits"],
  ["postgres://ada@db?sslmode=", SSL_MODE],
  ["postgres://ada@db?sslmode=allow", SSL_MODE],
  ["postgres://ada@db?sslmode=VERIFY-FULL", SSL_MODE],
  ["postgres://ada@db?sslcert=a.pem", "sslcert and sslkey go together"],
  ["postgres://ada@db?sslkey=a.pem", "sslcert and sslkey go together"],
  ["postgres://ada@db?prepare=1", "prepare is neither true nor false"],
  ["postgres://ada@db?prepare=", "prepare is neither true nor false"],
  ["postgres://ada@db?connect_timeout=0", TIMEOUT],
  ["postgres://ada@db?connect_timeout=61", TIMEOUT],
  ["postgres://ada@db?connect_timeout=1.5", TIMEOUT],
  ["postgres://ada@db?connect_timeout=-1", TIMEOUT],
  ["postgres://ada@db?connect_timeout=soon", TIMEOUT],
  [
    "postgres://ada@db?target_session_attrs=any",
    "target_session_attrs is neither read-write nor primary",
  ],
  ["postgres://ada@db?sslmode=disable&sslmode=require", "the parameter sslmode comes twice"],
  ["postgres://ada@db?password=secret", PARAMETERS],
  ["postgres://ada@db?constructor=1", PARAMETERS],
  ["postgres://ada@db?user=ada", PARAMETERS],
  ["postgres://ada@db?options=-csearch_path%3Dshop", PARAMETERS],
  ["postgres://ada@db?SSLMODE=disable", PARAMETERS],
  ["postgres://ada:hidden@more?secret@db/plants", PARAMETERS],
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

  test.each(["postgres:ada@db", "mysql://ada@db", "sqlite:./plants.db", "POSTGRES://ada@db", ""])(
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

describe("a host", () => {
  test.each([
    ["localhost", true],
    ["127.0.0.1", true],
    ["127.8.9.1", true],
    ["::1", true],
    ["/var/run/postgresql", true],
    ["127.0.0.1.example", false],
    ["localhost.example", false],
    ["10.0.0.1", false],
    ["::2", false],
    ["db", false],
  ])("%s is on this machine: %p", (name, is) => expect(isLocal({ name, port: 5432 })).toBe(is));

  test("that is a folder has a socket by its port", () => {
    expect(findSocketPath({ name: "/run/pg", port: 6543 })).toBe("/run/pg/.s.PGSQL.6543");
    expect(findSocketPath({ name: "db", port: 6543 })).toBeUndefined();
  });
});

describe("a URL that is shown", () => {
  test.each([
    ["postgres://ada:secret@db:5432/plants", "postgres://ada:********@db:5432/plants"],
    [
      "postgresql://ada:secret@one,two/plants?sslmode=require",
      "postgresql://ada:********@one,two/plants?sslmode=require",
    ],
    ["postgres://ada:se:secret@db", "postgres://ada:********@db"],
    ["postgres://ada@db/plants", "postgres://ada@db/plants"],
    ["postgres://ada@[::1]:5432/plants", "postgres://ada@[::1]:5432/plants"],
    ["sqlite:./plants.db", "sqlite:./plants.db"],
  ])("%s as %s", (url, shown) => expect(maskStoreUrl(url)).toBe(shown));

  test.each([
    ...bad.map(([url]) => url),
    "postgres://ada:sec@secret@db",
    "postgres://ada:1/secret@db",
    "postgres://ada:1?secret@db",
    "postgres://ada:1#secret@db",
    "postgres://ada:1\nsecret@db",
    "postgres://ada:secret",
    "postgres://ada:secret/plants",
    "ada:secret@db/plants",
    "postgres:ada:secret@db",
    "postgres:/ada:secret@db",
    "POSTGRES://ada:secret@db",
    " postgres://ada:secret@db",
    '"postgres://ada:secret@db"',
    "postgresql+asyncpg://ada:secret@db",
    "mysql2://ada:secret@db",
    "jdbc:postgresql://db/plants?user=ada&password=secret",
    "postgres://db/plants?PASSWORD=secret&user=ada",
    "postgres://db/plants?sslpassword=secret",
    "host=db user=ada password=secret dbname=plants",
  ])("%j without its secret, however malformed", (url) => {
    expect(maskStoreUrl(url)).not.toContain("secret");
  });
});
