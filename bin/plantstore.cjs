#!/bin/sh
//bin/sh -c :; n=$(ulimit -n); [ "$n" = unlimited ] || [ "$n" -ge 32 ] || { exec >&2; echo "plantstore: 32 file descriptors are needed to start, and the limit is $n. Raise it (ulimit -n)."; exit 1; }; exec node "$0" "$@"
// The line above is a comment to Node.js and a script to the shell: without descriptors, Node.js aborts before it reads
// this file.
"use strict";
/** Runs plantstore on the runtime that npm installed with it. CommonJS with few imports starts faster. */

const { closeSync, existsSync, openSync, readSync, statSync } = require("node:fs");
const { join } = require("node:path");

/** A Linux executable names its loader in its first 4 kB. The loader tells glibc from musl. */
function findLoader(program) {
  const head = Buffer.alloc(4096);
  const descriptor = openSync(program, "r");
  readSync(descriptor, head);
  closeSync(descriptor);
  return /\/[\w./-]*\/ld-[\w.-]+/.exec(head.toString("latin1"))?.[0];
}

/** Works with Node.js and with Yarn's Plug'n'Play. */
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

/** Installers may bring both the glibc and the musl package. Node.js itself uses the right C library. */
const isMusl = process.platform === "linux" && findLoader(process.execPath)?.includes("musl");
const cpu = process.arch === "arm64" ? "aarch64" : process.arch;
const name = `@oven/bun-${process.platform}-${cpu}${isMusl ? "-musl" : ""}`;
// If the package bun is installed too, its install script moves the binary there. If that script did not run, the file
// is a short placeholder.
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

// Ignore a .env file, a bunfig.toml and a tsconfig.json in the current folder.
const flags = ["--no-env-file", "--config=/dev/null", "--tsconfig-override=/dev/null", main];
const args = [...flags, ...process.argv.slice(2)];

const isNpx = process.env.npm_command === "exec";
if (process.execve && !isNpx) process.execve(runtime, [runtime, ...args]);

// Node.js before 22.15 has no execve: run a child process, and forward signals and the exit code.
const signals = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"];
let isTold = false;
function tell(signal) {
  isTold = true;
  child.kill(signal);
}
// Registered before the spawn: a signal during the start must not end this process alone.
for (const signal of signals) process.on(signal, tell);
// The child watches this process: a SIGKILL cannot be forwarded.
const env = { ...process.env, _PLANTSTORE_LAUNCHER: String(process.pid) };
const child = require("node:child_process").spawn(runtime, args, { stdio: "inherit", env });
child.on("error", (error) => fail(`${runtime} cannot be run: ${error.message}`));
child.on("exit", (code, signal) => {
  for (const one of signals) process.removeAllListeners(one);
  if (signal === null) process.exit(code);
  process.kill(process.pid, signal);
});

// npx signals a shell, which exits without its child. When the parent is gone, stop the service.
const parent = process.ppid;
if (isNpx) setInterval(() => !isTold && process.ppid !== parent && tell("SIGTERM"), 200);
