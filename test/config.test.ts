import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import {
  ConfigError,
  findIgnoredVariables,
  findTracing,
  fixedLimits,
  resolveConfig,
  settings,
} from "../src/config.ts";
import { settingExamples } from "./support/settings.ts";

const root = join(import.meta.dir, "..");

async function readAll(pattern: string): Promise<string> {
  const files = Array.from(new Glob(pattern).scanSync(root));
  expect(files.length).toBeGreaterThan(50);
  return (await Promise.all(files.map((file) => Bun.file(join(root, file)).text()))).join("\n");
}

describe("a setting", () => {
  test("comes from its flag before the environment, and from there before the default", () => {
    const { config, sources } = resolveConfig({ host: "::1" }, { PORT: "2", HOST: "::2" });
    expect(config).toMatchObject({ host: "::1", port: 2, databaseUrl: "sqlite:./data/plants.db" });
    expect(sources).toMatchObject({ host: "flag", port: "environment", databaseUrl: "default" });
  });

  test("cannot be changed later", () => {
    expect(() => Object.assign(resolveConfig({}, {}).config, { port: 1 })).toThrow(TypeError);
  });

  test.each([
    "localhost",
    "a.example.",
    "a_b-c",
    "0.0.0.0",
    "255.0.10.1",
    "::",
    "fe80::1:2",
    "1.a",
  ])("may be the host %s", (host) => expect(resolveConfig({ host }, {}).config.host).toBe(host));

  test.each([
    "",
    "backups",
    "/mnt/backups",
    "s3:/folder",
    "s3://bucket",
    "s3://a.bucket-1/of/plants/",
  ])("may be the place %p for backups", (backupTo) =>
    expect(resolveConfig({ backupTo }, {}).config.backupTo).toBe(backupTo),
  );

  test("may have blanks around the items of a list", () => {
    const resolveOrigins = (text: string) =>
      resolveConfig({}, { PLANTSTORE_CORS_ORIGINS: text }).config.corsOrigins;
    expect(resolveOrigins(" * ")).toEqual(["*"]);
    expect(resolveOrigins("http://a.example, http://b.example ")).toHaveLength(2);
  });

  test("is not needed for the lease of webhooks: it is longer than a receiver may take to answer", () => {
    const { webhookLeaseSeconds, webhookSecondsMax } = resolveConfig({}, {}).config;
    expect(webhookLeaseSeconds).toBeGreaterThan(webhookSecondsMax);
  });

  test("is not needed for the idle time: it is longer than every deadline of ours, by the runtime's error", () => {
    const { idleSecondsMax, readSecondsMax, queueSecondsMax } = resolveConfig({}, {}).config;
    expect(idleSecondsMax).toBeGreaterThanOrEqual(Math.max(readSecondsMax, queueSecondsMax) + 5);
  });

  test.each(settingExamples.map(({ setting, refused }) => [setting.env, refused, setting]))(
    "%s=%p is refused by its flag and its variable, with what is allowed, and is no secret",
    (env, refused, { flag, allowed, secret }) => {
      const traced = env.startsWith("OTEL_") && { [settings.otlpEndpoint.env]: "http://127.0.0.1" };
      const resolve = () => resolveConfig({}, { ...traced, [env]: refused });
      expect(resolve).toThrow(new RegExp(`^${env}: .+; expected ${RegExp.escape(allowed)}`));
      if (secret) expect(resolve).not.toThrow(refused);
      if (flag === undefined) return;
      const member = flag.slice(2).replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase());
      expect(() => resolveConfig({ [member]: refused }, {})).toThrow(`${flag}: `);
    },
  );

  test("acts somewhere, as does each fixed limit: the sources read it, and not only where it is defined", async () => {
    const text = await readAll("src/**/*.ts");
    const words = new Set(text.match(/(?<!^ {2})\b[a-z]\w*\b/gm));
    const names = [...Object.keys(settings), ...Object.keys(fixedLimits)];
    expect(names.filter((name) => !words.has(name))).toEqual([]);
  });

  test("has a test, besides its examples", async () => {
    const words = new Set((await readAll("test/**/*.test.ts")).match(/--[a-z-]+|\w+/g));
    const untested = Object.entries(settings).filter(
      ([name, { env, flag = name }]) => ![name, env, flag].some((one) => words.has(one)),
    );
    expect(untested.map(([, { env }]) => env)).toEqual([]);
  });

  test("that needs another one names a setting", () => {
    const named = Object.values(settings).flatMap(({ needs, only }) => [needs, only]);
    const others = named.filter((name) => name !== undefined);
    expect(others.length).toBeGreaterThan(7);
    expect(Object.keys(settings)).toEqual(expect.arrayContaining(others));
  });

  test.each([
    ["PORT", "65536", '"65536" is not allowed; expected an integer from 0 to 65535'],
    ["PORT", "", '"" is not allowed'],
    ["PORT", "80.5", '"80.5"'],
    ...[
      "",
      "127.0.0.1:8080",
      "::1x",
      "[::1]",
      "a..b",
      ".a",
      "-a",
      "a-.b",
      "1.2.3",
      "256.1.1.1",
    ].map(
      (host) => ["HOST", host, "expected a host name or an IP address, without a port"] as const,
    ),
    ["DATABASE_URL", "postgres://x/y", "(the user is missing)"],
    ["DATABASE_URL", "postgres://me@x/y?color=red", "(a parameter is none of host, sslmode"],
    ["DATABASE_URL", "mysql://me@x/y", '"mysql://********" is not allowed (unknown scheme)'],
    ["DATABASE_URL", "sqlite:", "sqlite:<file>"],
    ["DATABASE_URL", "sqlite:file:x.db", "sqlite:<file>"],
    ["DATABASE_URL", "sqlite://host/file", "sqlite:<file>"],
    ["PLANTSTORE_BASE_PATH", "shop", "segments"],
    ["PLANTSTORE_BASE_PATH", "/shop/", "segments"],
    ["PLANTSTORE_BASE_PATH", "/:id", "segments"],
    ["PLANTSTORE_CORS_ORIGINS", "shop.example", "origins as in"],
    ["PLANTSTORE_CORS_ORIGINS", "*,https://a.example", "origins as in"],
    ["PLANTSTORE_WEBHOOKS_PRIVATE", "yes", "true or false"],
    ["PLANTSTORE_TRUSTED_PROXIES", "proxy.example", "addresses and networks as in"],
    ["PLANTSTORE_TRUSTED_PROXIES", "10.0.0.0/33", "addresses and networks as in"],
    ["PLANTSTORE_TRUSTED_PROXIES", "::1/129", "addresses and networks as in"],
    ["PLANTSTORE_BACKUP_TO", "s3://", "expected a folder, or s3://bucket/prefix"],
    ["PLANTSTORE_BACKUP_TO", "s3://Bad_Bucket", "(a bucket has 3 to 63 characters"],
    [
      "PLANTSTORE_BACKUP_TO",
      "s3://bucket/../x",
      "(the prefix has an empty segment, or one of dots",
    ],
    [
      "PLANTSTORE_BACKUP_TO",
      "s3://key:secret@bucket/x",
      '"s3://********@bucket/x" is not allowed (credentials',
    ],
    ["PLANTSTORE_BACKUP_TO", "gs://bucket/x", '"gs://bucket/x" is not allowed (unknown scheme)'],
    ["PLANTSTORE_BACKUP_EVERY", "5m", "has no effect without PLANTSTORE_BACKUP_TO"],
    ["PLANTSTORE_TLS_CERT", "cert.pem", "needs PLANTSTORE_TLS_KEY"],
    ["PLANTSTORE_TLS_KEY", "key.pem", "needs PLANTSTORE_TLS_CERT"],
    [
      "PLANTSTORE_TLS_KEY",
      "-----BEGIN PRIVATE KEY-----",
      '"********" is not allowed; expected the',
    ],
    ["PLANTSTORE_RATE_LIMIT", "100", "a number per s, min or h"],
    ["PLANTSTORE_LOG_LEVEL", "verbose", "debug, info, warn, error"],
    ["PLANTSTORE_WRITE_CONNECTIONS", "-1", "an integer from 1"],
    ["PLANTSTORE_WORKERS", "0", "an integer from 1 to 64"],
    ["PLANTSTORE_WORKERS", "65", "an integer from 1 to 64"],
    ["PLANTSTORE_BACKUP_EVERY", "15", '"15" is not allowed'],
    ["PLANTSTORE_BACKUP_EVERY", "0m", '"0m" is not allowed'],
    ["PLANTSTORE_BACKUP_EVERY", "8d", '"8d" is not allowed'],
    ["PLANTSTORE_BODY_BYTES_TOTAL_MAX", "64", "an integer from 1048576"],
    ["PLANTSTORE_JWT_ISSUER", "http://id.example", "an https URL"],
    ["PLANTSTORE_JWT_ISSUER", "http://127.0.0.1.example", "an https URL"],
    ["PLANTSTORE_JWT_ISSUER", "https://me:secret@id.example", "an https URL"],
    ["PLANTSTORE_JWT_ISSUER", "https://id.example/?tenant=1", "without query and fragment"],
    ["PLANTSTORE_JWT_ISSUER", "https://id.example/#", "without query and fragment"],
    ["PLANTSTORE_JWT_ISSUER", "file:///etc/passwd", "an https URL"],
    ["PLANTSTORE_JWT_ISSUER", "https://id.example", "needs PLANTSTORE_JWT_AUDIENCE"],
    ["PLANTSTORE_JWT_AUDIENCE", "plants", "has no effect without PLANTSTORE_JWT_ISSUER"],
    ["PLANTSTORE_JWT_AUDIENCE", 'a"b', "visible ASCII characters"],
    ["PLANTSTORE_JWT_CLIENT_ID", "console", "has no effect without PLANTSTORE_JWT_ISSUER"],
    ["PLANTSTORE_JWT_CLIENT_ID", "x".repeat(201), "up to 200"],
    ...["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"].flatMap((name) =>
      [
        "collector:4318",
        "127.0.0.1",
        "grpc://collector",
        "http://",
        "http://a b",
        "http://a/#b",
      ].map((value) => [name, value, "an http or https URL, as in http://127.0.0.1:4318"] as const),
    ),
    [
      "OTEL_EXPORTER_OTLP_ENDPOINT",
      "http://me:secret@collector/?key=secret",
      '"http://********@collector/?********" is not allowed (credentials belong in OTEL_EXPORTER_OTLP_HEADERS)',
    ],
    [
      "OTEL_EXPORTER_OTLP_HEADERS",
      "secret",
      "its 6 characters are not allowed; expected name=value",
    ],
    ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=%0a", "its 5 characters are not allowed"],
    ["OTEL_EXPORTER_OTLP_PROTOCOL", "http", "http/json, http/protobuf, grpc"],
    ["OTEL_EXPORTER_OTLP_TIMEOUT", "0", "an integer from 1 to 600000"],
    ["OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "an integer from 1 to 600000"],
    ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1", "an integer from 1 to 600000"],
    ["OTEL_SERVICE_NAME", "a\nb", "without control characters"],
    ["OTEL_RESOURCE_ATTRIBUTES", "a", "name=value pairs"],
    ["OTEL_RESOURCE_ATTRIBUTES", "a=%zz", "name=value pairs"],
    ["OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on, always_off, traceidratio"],
    ["OTEL_TRACES_SAMPLER_ARG", "0.1", "has no effect without a ratio in OTEL_TRACES_SAMPLER"],
    ["OTEL_TRACES_SAMPLER_ARG", "1.1", "a number from 0 to 1"],
    ["OTEL_TRACES_SAMPLER_ARG", "1%", "a number from 0 to 1"],
    ["OTEL_TRACES_EXPORTER", "console", "otlp, none"],
    ["OTEL_SDK_DISABLED", "1", "true or false"],
  ])("%s=%s is refused by name, value and what is allowed", (name, value, says) => {
    const traced = name.startsWith("OTEL_") && { [settings.otlpEndpoint.env]: "http://127.0.0.1" };
    const resolve = () => resolveConfig({}, { ...traced, [name]: value });
    expect(resolve).toThrow(ConfigError);
    expect(resolve).toThrow(`${name}: `);
    expect(resolve).toThrow(says);
  });

  test.each([
    "https://id.example",
    "https://id.example/realms/shop/",
    "http://127.0.0.1:9",
    "http://[::1]:9",
    "http://localhost",
  ])("PLANTSTORE_JWT_ISSUER=%s is an issuer, and is kept as it is", (issuer) => {
    const given = { PLANTSTORE_JWT_ISSUER: issuer, PLANTSTORE_JWT_AUDIENCE: "plants" };
    expect(resolveConfig({}, given).config.jwtIssuer).toBe(issuer);
  });

  test.each(["", "fifteen-letters", "sixteen letters!", "with\nnewline-1234567"])(
    "PLANTSTORE_TOKEN=%j is refused, and not repeated",
    (token) => {
      const resolve = () => resolveConfig({}, { PLANTSTORE_TOKEN: token });
      expect(resolve).toThrow(`PLANTSTORE_TOKEN: its ${token.length} characters are not allowed`);
      if (token !== "") expect(resolve).not.toThrow(token);
    },
  );

  test("of OpenTelemetry counts as unset if it is empty, and has no flag", () => {
    const names = Object.values(settings).filter(({ env }) => env.startsWith("OTEL_"));
    const empty = Object.fromEntries(names.map(({ env }) => [env, ""]));
    expect(resolveConfig({}, empty).config).toEqual(resolveConfig({}, {}).config);
    expect(names.filter(({ flag }) => flag !== undefined)).toEqual([]);
  });

  test.each([
    [{}, false],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: "grpc://collector", OTEL_SDK_DISABLED: "True" }, false],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "x", OTEL_TRACES_EXPORTER: "none" }, false],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1", OTEL_SDK_DISABLED: "false" }, true],
  ])("of OpenTelemetry may be wrong if traces are off: %j", (given, isRefused) => {
    const wrong = { ...given, OTEL_TRACES_SAMPLER: "xray", OTEL_TRACES_SAMPLER_ARG: "2" };
    const resolve = () => resolveConfig({}, wrong);
    if (isRefused) return expect(resolve).toThrow("OTEL_TRACES_SAMPLER: ");
    expect(findTracing(resolve().config)).toBeUndefined();
  });

  test("of another protocol is refused if traces are sent, and traces may have their own", () => {
    const grpc = { OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" };
    expect(findTracing(resolveConfig({}, grpc).config)).toBeUndefined();
    const given = { ...grpc, OTEL_EXPORTER_OTLP_ENDPOINT: "https://collector.example/otlp/" };
    expect(() => resolveConfig({}, given)).toThrow(
      "OTEL_EXPORTER_OTLP_PROTOCOL: traces are sent by http/json only",
    );
    const own = { ...given, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/json" };
    expect(findTracing(resolveConfig({}, own).config)).toMatchObject({
      url: "https://collector.example/otlp/v1/traces",
      timeoutMs: 10_000,
    });
  });

  test("is named beside others that are wrong, by its flag if it came as one", () => {
    const resolve = () => resolveConfig({ port: "x" }, { HOST: "" });
    expect(resolve).toThrow("--port: ");
    expect(resolve).toThrow("HOST: ");
  });

  test.each([
    "sqlite:./a.db",
    "sqlite:///a/b.db",
    "postgres://me:secret@a:1,b/plants?sslmode=require",
  ])("DATABASE_URL=%s is a store", (url) =>
    expect(resolveConfig({}, { DATABASE_URL: url }).config.databaseUrl).toBe(url),
  );
});

test("variables that look like settings and have no effect are named, and those of others are not", () => {
  const find = (names: string, value: string) =>
    findIgnoredVariables(Object.fromEntries(names.split(" ").map((name) => [name, value])));
  const ignored = "TOKENS PORT HOST DATABASE_URL QUEUE_LENGTH_MAX".replaceAll(
    /\w+/g,
    "PLANTSTORE_$&",
  );
  expect(find(`${ignored} PLANTSTORE_TOKEN HOSTS`, "1")).toEqual([
    "PLANTSTORE_TOKENS is not a setting and has no effect.",
    "PLANTSTORE_PORT has no effect; the variable is called PORT.",
    "PLANTSTORE_HOST has no effect; the variable is called HOST.",
    "PLANTSTORE_DATABASE_URL has no effect; the variable is called DATABASE_URL.",
    "PLANTSTORE_QUEUE_LENGTH_MAX is not a setting and has no effect.",
  ]);
  // Set by Kubernetes.
  expect(find("PLANTSTORE_PORT", "tcp://10.0.0.1:80")).toEqual([]);
  const others = "PLANTSTORE_SERVICE_HOST PLANTSTORE_SERVICE_PORT_HTTP PLANTSTORE_PORT_80_TCP_ADDR";
  expect(find(others, "10.0.0.1")).toEqual([]);
});
