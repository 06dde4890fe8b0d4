/** Installs what the peers are made of, when the benchmark asks for it and never else. */

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";

const peersFolder = join(import.meta.dir, "../peers");
const INSTALL_MS_MAX = 15 * 60_000;

export type NodeMajor = 22 | 26;

export const peerPath = (...parts: readonly string[]): string => join(peersFolder, ...parts);

const nodeFolder = (major: NodeMajor): string =>
  peerPath("node", "node_modules", `node-${major}-linux-${process.arch}`);

/** The same Node.js on every machine, once it is installed. */
export const nodeBinary = (major: NodeMajor): string => join(nodeFolder(major), "bin/node");

const installed = new Map<string, Promise<void>>();

/** Once a run, and only where it is not there already. Rejects with what npm said. */
export function installPeer(name: string, major: NodeMajor): Promise<void> {
  const known = installed.get(name);
  if (known !== undefined) return known;
  const installing = (async () => {
    if (name !== "node") await installPeer("node", major);
    if (!isInstalled(name)) await runNpm(name, major);
  })();
  installed.set(name, installing);
  return installing;
}

/** npm writes the hidden file last. */
function isInstalled(name: string): boolean {
  const done = peerPath(name, "node_modules/.package-lock.json");
  const wanted = peerPath(name, "package-lock.json");
  return existsSync(done) && statSync(done).mtimeMs >= statSync(wanted).mtimeMs;
}

async function runNpm(name: string, major: NodeMajor): Promise<void> {
  process.stderr.write(`Installing ${name}; once, it may take minutes.\n`);
  // Modules that are compiled are compiled for the Node.js that will load them; it brings its headers.
  const node =
    name === "node"
      ? {}
      : {
          PATH: `${join(nodeFolder(major), "bin")}:${process.env["PATH"] ?? ""}`,
          npm_config_nodedir: nodeFolder(major),
        };
  const child = Bun.spawn(["npm", "ci", "--no-fund", "--no-audit"], {
    cwd: peerPath(name),
    env: { ...process.env, ...node },
    stdout: "ignore",
    stderr: "pipe",
    timeout: INSTALL_MS_MAX,
  });
  const errors = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`npm ci failed: ${findReason(errors)}`);
}

/** The first thing that npm calls an error and that is more than a code. */
export function findReason(errors: string): string {
  const lines = errors
    .split("\n")
    .flatMap(
      (line) => /^npm error (?!code |path |command |errno |syscall )(.+)$/.exec(line)?.[1] ?? [],
    );
  return (
    lines.find((line) => /error|not found|no matching/i.test(line)) ?? lines[0] ?? "no reason given"
  );
}
