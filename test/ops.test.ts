/** The files of ops/ against the service: every metric they name exists, and Prometheus takes rules and metrics. */

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { findFreePort } from "./support/postgres-files.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";
import { until } from "./support/until.ts";

const ops = join(import.meta.dir, "../ops");
const RULES = join(ops, "prometheus-rules.yml");

interface Dashboard {
  readonly panels: readonly { readonly targets: readonly { readonly expr: string }[] }[];
}

async function scrape(): Promise<string> {
  using folder = makeTemporaryFolder();
  const env = { DATABASE_URL: `sqlite:${folder.path}/plants.db`, PLANTSTORE_TOKEN: TEST_TOKEN };
  await runCommand(["token", "create", "--name", "soon", "--expires", "1d"], env);
  await runCommand(["token", "create", "--name", "later", "--expires", "30d"], env);
  await using service = await spawnService({
    ...env,
    PLANTSTORE_BACKUP_TO: folder.path,
    PLANTSTORE_PLANTS_MAX: "1000",
    PORT: String(findFreePort()),
  });
  await sendPlant(service.started.url, { id: 1n, name: "Fern", tag: null });
  await fetch(`${service.started.url}/readyz`);
  const headers = { authorization: `Bearer ${TEST_TOKEN}` };
  const ask = async (): Promise<string> =>
    (await fetch(`${service.started.url}/metrics`, { headers })).text();
  let text = "";
  await until("a backup is made", async () => {
    text = await ask();
    return text.includes("\nplantstore_backup_bytes ");
  });
  return text;
}

const metrics = await scrape();

test("the metrics say how many, how long and how full", () => {
  const value = (name: string): number => {
    const line = metrics.split("\n").find((one) => one.startsWith(`${name} `));
    return Number(line?.slice(name.length + 1) ?? Number.NaN);
  };
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
  const dashboard = JSON.parse(
    readFileSync(join(ops, "grafana-dashboard.json"), "utf8"),
  ) as Dashboard;
  const expressions = [
    readFileSync(RULES, "utf8"),
    ...dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
  ].join("\n");
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
  const text = readFileSync(join(ops, "grafana-dashboard.json"), "utf8");
  const ranges = [...text.matchAll(/\brate\([^[]*\[([^\]]+)\]/g)].map(([, range]) => range);
  expect(ranges.length).toBeGreaterThan(10);
  expect([...new Set(ranges)]).toEqual(["$__rate_interval"]);
});

test.skipIf(Bun.which("promtool") === null)(
  "Prometheus takes the rules and the metrics",
  async () => {
    const rules = Bun.spawnSync(["promtool", "check", "rules", RULES]);
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
