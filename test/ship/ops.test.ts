/** Files for operators: the systemd unit, the Containerfile, the compose file and the manifests agree with the service. */

import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { resolveConfig, settings } from "../../src/config.ts";
import { createRoutes, listOperations } from "../../src/http/operations.ts";
import { parseStoreUrl } from "../../src/domain/store-url.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { run } from "../support/shipped.ts";

const root = join(import.meta.dir, "../..");
const read = (file: string): string => readFileSync(join(root, file), "utf8");
const { config } = resolveConfig({}, {});
const variables = new Set(Object.values(settings).map(({ env }): string => env));

const hasSystemd = Bun.which("systemd-analyze") !== null;
if (!hasSystemd) process.stderr.write("systemd-analyze is not installed: the unit is only read.\n");

describe("the systemd unit", () => {
  const unit = read("ops/plantstore.service");
  const valuesOf = (name: string): string[] =>
    [...unit.matchAll(new RegExp(`^${name}=(.*)$`, "gm"))].map(([, value = ""]) => value);

  test("restarts after a failure, but not after a wrong setting, and gives requests their time", () => {
    expect(valuesOf("Restart")).toEqual(["on-failure"]);
    expect(Number(valuesOf("RestartSec"))).toBeGreaterThan(0);
    expect(valuesOf("RestartPreventExitStatus")).toEqual(["2"]);
    expect(valuesOf("UMask")).toEqual(["0077"]);
    expect(valuesOf("EnvironmentFile")).toEqual(["-/etc/plantstore/env"]);
    expect(Number(valuesOf("TimeoutStopSec"))).toBeGreaterThan(
      config.drainDelaySeconds + config.drainSecondsMax,
    );
    const given = valuesOf("Environment").flatMap((line) => line.split(" "));
    expect(
      given.map((pair) => pair.split("=")[0] ?? "").filter((name) => !variables.has(name)),
    ).toEqual([]);
  });

  test.skipIf(!hasSystemd)(
    "is exposed at most 2.5 by systemd's own measure, and has no fault",
    async () => {
      using folder = makeTemporaryFolder();
      // The commands have to exist where it is verified.
      const here = unit.replaceAll("/usr/local/bin/plantstore", join(root, "bin/plantstore.cjs"));
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

describe("the Containerfile", () => {
  const instructions = read("Containerfile")
    .split("\n")
    .filter((line) => /^[A-Z]/.test(line))
    .map((line) => line.split(/ (.*)/s) as [string, string]);
  const all = (name: string): string[] =>
    instructions.filter(([found]) => found === name).map(([, value]) => value);

  test("runs the service without root, on data in a volume, and asks it for its health", () => {
    expect(all("USER")).toEqual(["65532:65532"]);
    expect(all("VOLUME")).toEqual(["/data"]);
    expect(all("STOPSIGNAL")).toEqual(["SIGTERM"]);
    // Lists of arguments: there is no shell.
    expect(JSON.parse(all("ENTRYPOINT")[0] ?? "")).toEqual(["/plantstore"]);
    expect(JSON.parse(all("CMD")[0] ?? "")).toEqual(["serve"]);
    expect(all("HEALTHCHECK")[0]).toEndWith('CMD ["/plantstore", "health"]');
    const given = Object.fromEntries(
      all("ENV").flatMap((line) =>
        line.split(" ").map((pair) => pair.split("=") as [string, string]),
      ),
    );
    expect(given).toMatchObject({ HOST: "0.0.0.0", DATABASE_URL: "sqlite:/data/plants.db" });
    expect(() => resolveConfig({}, given)).not.toThrow();
    expect(Object.keys(given).filter((name) => !variables.has(name))).toEqual([]);
  });
});

/** As it is written. What it has to be is what the tests say. */
// oxlint-disable-next-line typescript/no-explicit-any
type Loose = any;

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
    const given = { ...environment, ...secret.stringData };
    expect(Object.keys(given).filter((name) => !variables.has(name))).toEqual([]);
    const { config: resolved } = resolveConfig({}, given);
    expect(resolved).toMatchObject({ host: "0.0.0.0", port: 8080 });
    expect(resolved.databaseUrl).toStartWith("postgres://");
    expect(container.ports).toEqual([{ name: "http", containerPort: resolved.port }]);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(
      resolved.drainDelaySeconds + resolved.drainSecondsMax,
    );
    expect(resolved.drainDelaySeconds).toBeGreaterThan(0);
  });

  test("probe paths of the service", () => {
    const paths = createRoutes(listOperations(config)).map(({ path }) => path);
    const probed = (["startupProbe", "livenessProbe", "readinessProbe"] as const).map(
      (name) => container[name]?.httpGet,
    );
    for (const probe of probed) expect(paths).toContain(probe?.path as string);
    expect(probed.map((probe) => probe?.port)).toEqual(["http", "http", "http"]);
    expect(container["readinessProbe"]?.httpGet.path).toBe("/readyz");
    expect(container["livenessProbe"]?.httpGet.path).toBe("/livez");
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
  const { services, volumes } = Bun.YAML.parse(read("ops/compose.yaml")) as Loose;
  const { plantstore, postgres } = services;
  const fill = (environment: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(
      Object.entries(environment).map(([name, value]) => [
        name,
        value.replace(/\$\{POSTGRES_PASSWORD:\?[^}]+\}/, "secret"),
      ]),
    );

  test("gives settings that the service understands, and the database of the other service", () => {
    const given = fill(plantstore.environment);
    expect(Object.keys(given).filter((name) => !variables.has(name))).toEqual([]);
    const { config: resolved } = resolveConfig({}, given);
    const url = parseStoreUrl(resolved.databaseUrl);
    const server = fill(postgres.environment);
    // The operator gives it; the file has none.
    expect(server["POSTGRES_PASSWORD"]).toBe("secret");
    expect(url).toMatchObject({
      engine: "postgres",
      target: {
        hosts: [{ name: "postgres", port: 5432 }],
        user: server["POSTGRES_USER"],
        password: server["POSTGRES_PASSWORD"],
        database: server["POSTGRES_DB"],
        sslMode: "disable",
      },
    });
    expect(plantstore.ports).toEqual([`127.0.0.1:8080:${resolved.port}`]);
    expect(Number.parseInt(plantstore.stop_grace_period, 10)).toBeGreaterThan(
      resolved.drainDelaySeconds + resolved.drainSecondsMax,
    );
  });

  test("starts the service when the database is ready, and keeps its data in a volume", () => {
    expect(plantstore.depends_on).toEqual({ postgres: { condition: "service_healthy" } });
    expect(postgres.healthcheck.test.slice(0, 2)).toEqual(["CMD", "pg_isready"]);
    expect(postgres.volumes).toEqual(["postgres:/var/lib/postgresql"]);
    expect(Object.keys(volumes)).toEqual(["postgres"]);
    expect(postgres.image).toMatch(/:(?!latest)[\w.-]+$/);
  });

  const composer = ["docker", "podman"].find(
    (engine) => Bun.spawnSync(["sh", "-c", `${engine} compose version`]).exitCode === 0,
  );
  test.skipIf(composer === undefined)("is understood by the engine", () => {
    const { exitCode, stderr } = Bun.spawnSync(
      [String(composer), "compose", "--file", join(root, "ops/compose.yaml"), "config", "--quiet"],
      { env: { ...process.env, POSTGRES_PASSWORD: "secret" }, stderr: "pipe" },
    );
    expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  });
});
