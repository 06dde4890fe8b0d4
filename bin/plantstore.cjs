#!/usr/bin/env node
"use strict";
/** Runs plantstore on the runtime that npm installed with it. CommonJS, and no import but these: it starts sooner. */

const { closeSync, existsSync, openSync, readSync, statSync } = require("node:fs");
const { join } = require("node:path");

/** The loader that a Linux program names in its head tells its C library. */
function findLoader(program) {
  const head = Buffer.alloc(4096);
  const descriptor = openSync(program, "r");
  readSync(descriptor, head);
  closeSync(descriptor);
  return /\/[\w./-]*\/ld-[\w.-]+/.exec(head.toString("latin1"))?.[0];
}

/** As Node.js and Yarn's Plug'n'Play find packages. */
function resolve(file) {
  try {
    return require.resolve(file);
  } catch {
    return undefined;
  }
}

function fail(...lines) {
  for (const line of lines) process.stderr.write(`plantstore: ${line}\n`);
  process.exit(1);
}

/** Installers may bring the packages of both C libraries: Node.js itself runs on the one that is there. */
const isMusl = process.platform === "linux" && findLoader(process.execPath)?.includes("musl");
const cpu = process.arch === "arm64" ? "aarch64" : process.arch;
const name = `@oven/bun-${process.platform}-${cpu}${isMusl ? "-musl" : ""}`;
// The install script of the package bun, if that is installed too, moves the binary there. Without that script its file
// is a short text.
const moved = resolve("bun/bin/bun.exe");
const runtime =
  resolve(`${name}/bin/bun`) ?? (moved && statSync(moved).size > 100_000 ? moved : undefined);
const root = join(__dirname, "..");
const main = join(root, "dist/service/main.js");
const loader = process.platform === "linux" && runtime ? findLoader(runtime) : undefined;

if (runtime === undefined)
  fail(
    `the runtime is not installed: there is no package ${name} above ${root}.`,
    "install again without --omit=optional; in a clone, run 'npm ci'.",
  );
if (loader && !existsSync(loader)) fail(`${runtime} needs ${loader}, which is not there.`);
if (!existsSync(main)) fail(`${main} is missing: run 'npm ci' in ${root}.`);

// A .env file, a bunfig.toml or a tsconfig.json in the current folder changes nothing.
const flags = ["--no-env-file", "--config=/dev/null", "--tsconfig-override=/dev/null", main];
const args = [...flags, ...process.argv.slice(2)];

const isNpx = process.env.npm_command === "exec";
if (process.execve && !isNpx) process.execve(runtime, [runtime, ...args]);

// Before Node.js 22.15 there is no exec: signals and the exit code are passed on.
const signals = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"];
let isTold = false;
function tell(signal) {
  isTold = true;
  child.kill(signal);
}
// First: a signal that comes while the runtime starts must not end this process alone.
for (const signal of signals) process.on(signal, tell);
const child = require("node:child_process").spawn(runtime, args, { stdio: "inherit" });
child.on("error", (error) => fail(`${runtime} cannot be run: ${error.message}`));
child.on("exit", (code, signal) => {
  for (const one of signals) process.removeAllListeners(one);
  if (signal === null) process.exit(code);
  process.kill(process.pid, signal);
});

// npx passes a signal to a shell, which ends alone. What it ran must end too.
const parent = process.ppid;
if (isNpx) setInterval(() => !isTold && process.ppid !== parent && tell("SIGTERM"), 200);
