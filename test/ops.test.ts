/** Files for operators agree with the service: rules, dashboard, systemd unit, Containerfile, compose file and manifests. */

import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Config, resolveConfig, settings } from "../src/config.ts";
import { parseStoreUrl } from "../src/store-url.ts";
import { createRoutes, listOperations } from "../src/http/operations.ts";
import { spawnService } from "./support/command.ts";
import { makeTemporaryFolder, makeWorkplace } from "./support/folder.ts";
import { findFreePort } from "./support/postgres-files.ts";
import { runSync } from "./support/processes.ts";
import { getText, sendPlant, TEST_TOKEN } from "./support/service.ts";
import { run } from "./support/shipped.ts";
import { until } from "./support/until.ts";

const root = join(import.meta.dir, "..");
const read = (file: string): string => readFileSync(join(root, file), "utf8");
const RULES = "ops/prometheus-rules.yml";
const dashboard = read("ops/grafana-dashboard.json");

const { config } = resolveConfig({}, {});
const variables = new Set(Object.values(settings).map(({ env }): string => env));
const findUnknown = (names: readonly string[]): string[] =>
  names.filter((name) => !variables.has(name));

/** The value of each line with this name, such as `USER root` or `Restart=always`. */
const valuesIn = (file: string, name: string): string[] =>
  [...read(file).matchAll(new RegExp(`^${name}[ =](.*)$`, "gm"))].map(([, value = ""]) => value);

/** The configuration from the variables that the service knows. */
function resolveKnown(given: Readonly<Record<string, string>>): Config {
  expect(findUnknown(Object.keys(given))).toEqual([]);
  return resolveConfig({}, given).config;
}

const drainSecondsOf = ({ drainDelaySeconds, drainSecondsMax }: Config): number =>
  drainDelaySeconds + drainSecondsMax;

/** As it is written. What it has to be is what the tests say. */
// oxlint-disable-next-line typescript/no-explicit-any
type Loose = any;

async function scrape(): Promise<string> {
  using at = makeWorkplace();
  await at.run("token", "create", "--name", "soon", "--expires", "1d");
  await at.run("token", "create", "--name", "later", "--expires", "30d");
  await using service = await spawnService({
    ...at.env,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: at.path,
    PLANTSTORE_PLANTS_MAX: "1000",
    PORT: String(findFreePort()),
  });
  const { url } = service.started;
  await sendPlant(url, { id: 1n, name: "Fern", tag: null });
  await fetch(`${url}/readyz`);
  let text = "";
  await until("a backup is made", async () => {
    text = await getText(service.started, "/metrics");
    return text.includes("\nplantstore_backup_bytes ");
  });
  return text;
}

const metrics = await scrape();

test("the metrics say how many, how long and how full", () => {
  const samples = new Map(metrics.split("\n").map((line) => line.split(" ") as [string, string]));
  const value = (name: string): number => Number(samples.get(name));
  expect(value("plantstore_ready")).toBe(1);
  expect(value('plantstore_request_seconds_count{method="POST",path="/plants"}')).toBe(1);
  expect(value("plantstore_commit_seconds_count")).toBeGreaterThanOrEqual(1);
  expect(value('plantstore_commit_writes_bucket{le="1"}')).toBeGreaterThanOrEqual(1);
  expect(value("plantstore_writes_waiting_max")).toBe(8192);
  expect(value("plantstore_held_bytes_max")).toBe(50_331_648);
  expect(value("plantstore_tokens_expiring")).toBe(1);
  expect([value("plantstore_plants"), value("plantstore_plants_max")]).toEqual([1, 1_000]);
  expect(value("plantstore_disk_free_bytes")).toBeGreaterThan(0);
  expect(value("plantstore_disk_free_bytes_min")).toBe(67_108_864);
  expect(value("plantstore_log_lines_dropped_total")).toBe(0);
  expect(value("process_cpu_seconds_total")).toBeGreaterThan(0);
  if (process.platform === "linux") {
    expect(value("plantstore_open_connections")).toBeWithin(1, 10);
    expect(value("process_open_fds")).toBeGreaterThan(3);
    expect(value("process_max_fds")).toBeGreaterThan(value("process_open_fds"));
  }
});

test("every metric that the rules and the dashboard name exists", () => {
  const { panels } = JSON.parse(dashboard);
  const queries = panels.flatMap(({ targets }: Loose) => targets.map(({ expr }: Loose) => expr));
  const expressions = [read(RULES), ...queries].join("\n");
  const named = new Set(expressions.match(/\b(?:plantstore|process)_[a-z_]+\b/g));
  const known = new Set(
    [...metrics.matchAll(/^# TYPE (\S+) (\S+)$/gm)].flatMap(([, name, type]) =>
      type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
    ),
  );
  expect(named.size).toBeGreaterThan(15);
  expect([...named].filter((name) => !known.has(name))).toEqual([]);
});

test("the dashboard takes rates over an interval that fits the scrapes and the screen", () => {
  const ranges = [...dashboard.matchAll(/\brate\([^[]*\[([^\]]+)\]/g)].map(([, range]) => range);
  expect(ranges.length).toBeGreaterThan(10);
  expect([...new Set(ranges)]).toEqual(["$__rate_interval"]);
});

test.skipIf(Bun.which("promtool") === null)(
  "Prometheus takes the rules and the metrics",
  async () => {
    const rules = runSync(["promtool", "check", "rules", join(root, RULES)]);
    expect([rules.exitCode, rules.stderr.toString()]).toEqual([0, ""]);
    const child = Bun.spawn(["promtool", "check", "metrics"], {
      stdin: new Blob([metrics]),
      stdout: "pipe",
      stderr: "pipe",
    });
    expect([await child.stdout.text(), await child.stderr.text()]).toEqual(["", ""]);
    expect(await child.exited).toBe(0);
  },
);

const hasSystemd = Bun.which("systemd-analyze") !== null;
if (!hasSystemd) process.stderr.write("systemd-analyze is not installed: the unit is only read.\n");

describe("the systemd unit", () => {
  const unit = "ops/plantstore.service";
  const valuesOf = (name: string): string[] => valuesIn(unit, name);

  test("restarts after a failure, but not after a wrong setting, and gives requests their time", () => {
    expect(valuesOf("Restart")).toEqual(["on-failure"]);
    expect(Number(valuesOf("RestartSec"))).toBeGreaterThan(0);
    expect(valuesOf("RestartPreventExitStatus")).toEqual(["2"]);
    expect(valuesOf("UMask")).toEqual(["0077"]);
    expect(valuesOf("EnvironmentFile")).toEqual(["-/etc/plantstore/env"]);
    expect(Number(valuesOf("TimeoutStopSec"))).toBeGreaterThan(drainSecondsOf(config));
    const given = valuesOf("Environment").flatMap((line) => line.split(" "));
    expect(findUnknown(given.map((pair) => pair.split("=")[0] ?? ""))).toEqual([]);
  });

  test.skipIf(!hasSystemd)(
    "is exposed at most 2.5 by systemd's own measure, and has no fault",
    async () => {
      using folder = makeTemporaryFolder();
      // The commands have to exist where it is verified.
      const launcher = join(root, "bin/plantstore.cjs");
      const here = read(unit).replaceAll("/usr/local/bin/plantstore", launcher);
      writeFileSync(join(folder.path, "plantstore.service"), here);
      const analyze = (...args: string[]): Promise<string> =>
        run(["systemd-analyze", ...args, "./plantstore.service"], { cwd: folder.path });
      expect(await analyze("verify")).toBe("");
      const measured = await analyze("security", "--offline=true", "--no-pager");
      const [, exposure] = /Overall exposure level[^:]*: ([\d.]+)/.exec(measured) ?? [];
      expect(Number(exposure)).toBeWithin(0, 2.51);
    },
  );
});

test("the Containerfile runs the service without root, on data in a volume, and asks it for its health", () => {
  const all = (name: string): string[] => valuesIn("Containerfile", name);
  expect([all("USER"), all("VOLUME"), all("STOPSIGNAL")]).toEqual([
    ["65532:65532"],
    ["/data"],
    ["SIGTERM"],
  ]);
  // Lists of arguments: there is no shell.
  expect(JSON.parse(all("ENTRYPOINT")[0] ?? "")).toEqual(["/plantstore"]);
  expect(JSON.parse(all("CMD")[0] ?? "")).toEqual(["serve"]);
  expect(all("HEALTHCHECK")[0]).toEndWith('CMD ["/plantstore", "health"]');
  const pairs = all("ENV").flatMap((line) => line.split(" "));
  const given = Object.fromEntries(pairs.map((pair) => pair.split("=") as [string, string]));
  expect(given).toMatchObject({ HOST: "0.0.0.0", DATABASE_URL: "sqlite:/data/plants.db" });
  resolveKnown(given);
});

describe("the Kubernetes manifests", () => {
  const manifests = Bun.YAML.parse(read("ops/kubernetes.yaml")) as Loose[];
  const find = (kind: string): Loose => manifests.find((manifest) => manifest.kind === kind);
  const pod = find("Deployment").spec.template.spec;
  const [container] = pod.containers;
  const environment = Object.fromEntries(
    container.env.map(({ name, value }: Record<string, string>) => [name, value]),
  ) as Record<string, string>;

  test("select the same pods", () => {
    const { labels } = find("Deployment").spec.template.metadata;
    expect(find("Deployment").spec.selector).toEqual({ matchLabels: labels });
    expect(find("PodDisruptionBudget").spec.selector).toEqual({ matchLabels: labels });
    expect(find("Service").spec.selector).toEqual(labels);
  });

  test("give settings that the service understands, and the database from a secret", () => {
    const secret = find("Secret");
    expect(container.envFrom).toEqual([{ secretRef: { name: secret.metadata.name } }]);
    const resolved = resolveKnown({ ...environment, ...secret.stringData });
    expect(resolved).toMatchObject({ host: "0.0.0.0", port: 8080 });
    expect(resolved.databaseUrl).toStartWith("postgres://");
    expect(container.ports).toEqual([{ name: "http", containerPort: resolved.port }]);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(drainSecondsOf(resolved));
    expect(resolved.drainDelaySeconds).toBeGreaterThan(0);
  });

  test("probe paths of the service", () => {
    const paths = createRoutes(listOperations(config)).map(({ path }) => path);
    const { startupProbe, livenessProbe, readinessProbe } = container;
    expect(livenessProbe.httpGet).toEqual({ path: "/livez", port: "http" });
    expect(readinessProbe.httpGet).toEqual({ path: "/readyz", port: "http" });
    expect(startupProbe.httpGet.port).toBe("http");
    for (const probe of [startupProbe, livenessProbe, readinessProbe])
      expect(paths).toContain(probe.httpGet.path);
  });

  test("run without root, on a file system that cannot be written", () => {
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 65532 });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    expect(pod.enableServiceLinks).toBe(false);
  });
});

describe("the compose file", () => {
  // The operator gives the password; the file has none.
  const text = read("ops/compose.yaml").replaceAll(/\$\{POSTGRES_PASSWORD:\?[^}]+\}/g, "secret");
  const { services, volumes } = Bun.YAML.parse(text) as Loose;
  const { plantstore, postgres } = services;

  test("gives settings that the service understands, and the database of the other service", () => {
    const resolved = resolveKnown(plantstore.environment);
    const { environment } = postgres;
    const { POSTGRES_USER: user, POSTGRES_PASSWORD: password, POSTGRES_DB: database } = environment;
    expect(password).toBe("secret");
    const hosts = [{ name: "postgres", port: 5432 }];
    expect(parseStoreUrl(resolved.databaseUrl)).toMatchObject({
      engine: "postgres",
      target: { hosts, user, password, database, sslMode: "disable" },
    });
    expect(plantstore.ports).toEqual([`127.0.0.1:8080:${resolved.port}`]);
    const graceSeconds = Number.parseInt(plantstore.stop_grace_period, 10);
    expect(graceSeconds).toBeGreaterThan(drainSecondsOf(resolved));
  });

  test("starts the service when the database is ready, and keeps its data in a volume", () => {
    expect(plantstore.depends_on).toEqual({ postgres: { condition: "service_healthy" } });
    expect(postgres.healthcheck.test.slice(0, 2)).toEqual(["CMD", "pg_isready"]);
    expect(postgres.volumes).toEqual(["postgres:/var/lib/postgresql"]);
    expect(Object.keys(volumes)).toEqual(["postgres"]);
    expect(postgres.image).toMatch(/:(?!latest)[\w.-]+$/);
  });

  const composer = ["docker", "podman"].find(
    (engine) => runSync(["sh", "-c", `${engine} compose version`]).exitCode === 0,
  );
  test.skipIf(composer === undefined)("is understood by the engine", () => {
    const { exitCode, stderr } = runSync(
      [String(composer), "compose", "--file", join(root, "ops/compose.yaml"), "config", "--quiet"],
      { env: { ...process.env, POSTGRES_PASSWORD: "secret" }, stderr: "pipe" },
    );
    expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  });
});
