/** What the figures were measured on. */

import { readFileSync, realpathSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { findPostgresBinaries } from "../../test/support/postgres-files.ts";
import { peerPath } from "../servers/install.ts";
import { getFolder } from "../stores.ts";
import type { Machine } from "./results.ts";

export function describeMachine(): Machine {
  return {
    cpu: findCpu(),
    cores: cpus().length,
    memoryGb: Math.round(totalmem() / 2 ** 30),
    kernel: `Linux ${release()} ${process.arch}`,
    filesystem: findFilesystem(
      readFileSync("/proc/self/mounts", "utf8"),
      realpathSync(getFolder()),
    ),
    versions: {
      Bun: Bun.version,
      SQLite: sqliteVersion(),
      PostgreSQL: run([join(findPostgresBinaries(), "postgres"), "--version"]),
      wrk: run(["wrk", "-v"]),
      nginx: run(["nginx", "-v"]),
      "Node.js": peerVersion("node", "node-26-linux-x64"),
      Express: peerVersion("express-sqlite", "express"),
      Fastify: peerVersion("fastify-sqlite", "fastify"),
      "better-sqlite3": peerVersion("express-sqlite", "better-sqlite3"),
      "json-server": peerVersion("json-server", "json-server"),
      Directus: `${peerVersion("directus", "directus")} on Node.js ${peerVersion("node", "node-22-linux-x64")}`,
    },
  };
}

/** The runtime leaves it empty on ARM, where the kernel gives only numbers. */
function findCpu(): string {
  const model = cpus()[0]?.model.trim() ?? "";
  if (model !== "" && model !== "unknown") return model;
  return /^Model name:\s*(.+)$/m.exec(output(["lscpu"]))?.[1] ?? "unknown";
}

/** The mount with the longest path that leads to the folder. */
export function findFilesystem(mounts: string, path: string): string {
  const leading = mounts
    .split("\n")
    .map((line) => line.split(" "))
    .filter(([, point = "-"]) => point === "/" || path === point || path.startsWith(`${point}/`))
    .toSorted(([, a = ""], [, b = ""]) => a.length - b.length);
  const [device = "unknown", , type = "unknown"] = leading.at(-1) ?? [];
  return `${type} on ${device}`;
}

function sqliteVersion(): string {
  const code = `import { Database } from "bun:sqlite"; console.log(new Database(":memory:").query("SELECT sqlite_version() AS v").get().v)`;
  return run([process.execPath, "-e", code]);
}

/** The first thing in what it prints that looks like a version. */
const run = (command: readonly string[]): string =>
  /\d+\.[\w.-]+/.exec(output(command))?.[0] ?? "not installed";

function output(command: readonly string[]): string {
  try {
    const { stdout, stderr } = Bun.spawnSync([...command], { stdout: "pipe", stderr: "pipe" });
    return `${stdout.toString()}${stderr.toString()}`;
  } catch {
    return "";
  }
}

function peerVersion(peer: string, dependency: string): string {
  const text = readFileSync(peerPath(peer, "package.json"), "utf8");
  const { dependencies = {}, optionalDependencies = {} } = JSON.parse(text) as Record<
    "dependencies" | "optionalDependencies",
    Record<string, string> | undefined
  >;
  const version = dependencies[dependency] ?? optionalDependencies[dependency] ?? "unknown";
  return version.slice(version.lastIndexOf("@") + 1);
}
