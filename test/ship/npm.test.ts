/** The npm package: packed from the sources, installed and used. `npm run test:long` tries every supported installer. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import packageJson from "../../package.json";
import { bundled } from "../../scripts/build-licenses.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { copySources, fail, leaveTraps, run, serve, useEverything } from "../support/shipped.ts";
import { isLong } from "../support/long.ts";

/** The npm that each supported release of Node.js brings. */
const npms = { "Node.js 20": "10.8.2", "Node.js 22": "10.9.9", "Node.js 24": "11.21.1" };
const YARN_VERSION = "4.18.1";

const folder = makeTemporaryFolder();
const sources = copySources();
const tarball = join(folder.path, `plantstore-${packageJson.version}.tgz`);

afterAll(() => {
  sources[Symbol.dispose]();
  folder[Symbol.dispose]();
});

/** Downloads are shared with the user's own npm; what npx installs is not left there. */
const npmSettings: Record<string, string> = {
  npm_config_cache: join(folder.path, "cache"),
  npm_config_prefer_offline: "true",
  npm_config_update_notifier: "false",
};

function makeFolder(name: string): string {
  const path = join(folder.path, name);
  mkdirSync(path, { recursive: true });
  return path;
}

const npmFolder = makeFolder("npm");

beforeAll(async () => {
  const cache = (await run(["npm", "config", "get", "cache"], { cwd: folder.path })).trim();
  mkdirSync(join(cache, "_cacache"), { recursive: true });
  symlinkSync(join(cache, "_cacache"), join(makeFolder("cache"), "_cacache"));
  await run(["npm", "pack", "--pack-destination", folder.path], { cwd: sources.path });
  if (!isLong) return;
  writeFileSync(join(npmFolder, "package.json"), "{}");
  const names = [
    ...Object.values(npms).map((version) => `npm-${version}@npm:npm@${version}`),
    `@yarnpkg/cli-dist@${YARN_VERSION}`,
  ];
  await run(["npm", "install", "--silent", ...names], { cwd: npmFolder, env: npmSettings });
});

describe("the package", () => {
  test("has what runs, the built pages, and nothing else", async () => {
    const listed = await run(["tar", "-tzf", tarball], { cwd: folder.path });
    const names = listed.trim().split("\n");
    const places = names.map((name) => /^package\/((dist\/)?[^/]+)/.exec(name)?.[1] ?? name);
    const built = ["dist/LICENSES.txt", "dist/console", "dist/docs", "dist/service"];
    const expected = ["LICENSE", "README.md", "bin", ...built, "package.json"];
    expect([...new Set(places)].toSorted()).toEqual(expected);
    expect(names.filter((name) => /\.(test|map)\b|tsconfig/.test(name))).toEqual([]);
  });

  test("has the licence of every package whose code is in it", async () => {
    const unpacked = ["tar", "-xzOf", tarball, "package/dist/LICENSES.txt"];
    const text = await run(unpacked, { cwd: folder.path });
    for (const name of bundled) expect(text).toContain(`==== ${name} ====\n`);
    const licences = text.match(/Permission is hereby granted|Apache License\n +Version 2/g);
    expect(licences).toHaveLength(bundled.length);
  });

  test("runs no script where it is installed, and brings the runtime that it was tested with", () => {
    const { scripts, optionalDependencies, devDependencies } = packageJson;
    // npm 11 and later ask the user about the first four.
    for (const name of ["preinstall", "install", "postinstall", "prepare"])
      expect(Object.keys(scripts)).not.toContain(name);
    expect(new Set(Object.values(optionalDependencies))).toEqual(new Set([devDependencies.bun]));
  });
});

/** Starts the service, ends this command by SIGTERM, and waits until the service is gone. */
async function serveAndStop(command: readonly string[], cwd: string, given: typeof npmSettings) {
  const env = { PLANTSTORE_TOKEN: "sixteen-letters-x", ...given };
  const { child, stderr, url } = await serve([...command, "plantstore", "serve"], { cwd, env });
  child.kill("SIGTERM");
  expect(await stderr).toContain('"event":"stopped"');
  expect(await fetch(url).catch((error: unknown) => error)).toBeInstanceOf(Error);
  return child.exited;
}

/** Installs the package without any script, by an npm of this machine or another one. */
async function useProject(npm: readonly string[], npx: readonly string[], project: string) {
  writeFileSync(join(project, "package.json"), "{}");
  leaveTraps(project);
  const options = { cwd: project, env: npmSettings };
  await run([...npm, "install", "--ignore-scripts", tarball], options);
  await useEverything([join(project, "node_modules/.bin/plantstore")]);
  expect(await run([...npx, "plantstore", "version"], options)).toBe(`${packageJson.version}\n`);
  await serveAndStop(npx, project, npmSettings);
}

test("npm install in a project, and a SIGTERM to npx there stops the service", () =>
  useProject(["npm"], ["npx"], makeFolder("project")));

test("npx in an empty folder", () =>
  useEverything(["npx", "--yes", "--package", tarball, "plantstore"], npmSettings));

describe.skipIf(!isLong).each(Object.entries(npms))("with the npm of %s", (_, npmVersion) => {
  const npm = ["node", join(npmFolder, `node_modules/npm-${npmVersion}/bin/npm-cli.js`)];
  const npx = ["node", join(npmFolder, `node_modules/npm-${npmVersion}/bin/npx-cli.js`)];

  test("npm install in a project", () => useProject(npm, npx, makeFolder(`in-${npmVersion}`)));

  test("npm install --global", async () => {
    const prefix = makeFolder(`global-${npmVersion}`);
    const command = [...npm, "install", "--global", "--prefix", prefix, tarball];
    await run(command, { cwd: npmFolder, env: npmSettings });
    await useEverything([join(prefix, "bin/plantstore")]);
  });
});

describe.skipIf(!isLong).each(["node-modules", "pnp"])("Yarn 4 with the linker %s", (linker) => {
  test("installs and runs it, and a SIGTERM to yarn stops the service", async () => {
    const project = makeFolder(`yarn-${linker}`);
    writeFileSync(join(project, "package.json"), '{ "name": "shop", "private": true }');
    writeFileSync(join(project, "yarn.lock"), "");
    const registry = (await run(["npm", "config", "get", "registry"], { cwd: project })).trim();
    const env = {
      // npm's settings name the authority of a private registry; Yarn reads only this.
      NODE_EXTRA_CA_CERTS: process.env["NODE_EXTRA_CA_CERTS"] ?? "",
      YARN_ENABLE_GLOBAL_CACHE: "false",
      YARN_ENABLE_TELEMETRY: "false",
      YARN_NODE_LINKER: linker,
      YARN_NPM_REGISTRY_SERVER: registry.replace(/\/$/, ""),
      YARN_UNSAFE_HTTP_WHITELIST: "*",
    };
    const yarn = ["node", join(npmFolder, "node_modules/@yarnpkg/cli-dist/bin/yarn.js")];
    await run([...yarn, "add", `plantstore@file:${tarball}`], { cwd: project, env });
    const version = await run([...yarn, "plantstore", "version"], { cwd: project, env });
    expect(version).toBe(`${packageJson.version}\n`);
    expect(await serveAndStop(yarn, project, env)).toBe(0);
  });
});

describe("the launcher finds the runtime", () => {
  /** A package that says where its runtime is. */
  function makeTree(files: readonly string[]) {
    const tree = makeTemporaryFolder();
    for (const file of files) {
      const path = join(tree.path, file);
      mkdirSync(dirname(path), { recursive: true });
      // The install script of bun leaves a large file, and without it there is a short one.
      writeFileSync(path, `#!/bin/sh\necho ${file}\nexit\n${"#".repeat(200_000)}`);
      chmodSync(path, 0o755);
    }
    const launcher = join(tree.path, "node_modules/plantstore/bin/plantstore.cjs");
    mkdirSync(dirname(launcher), { recursive: true });
    cpSync(join(import.meta.dir, "../../bin/plantstore.cjs"), launcher);
    const main = join(tree.path, "node_modules/plantstore/dist/service/main.js");
    mkdirSync(dirname(main), { recursive: true });
    writeFileSync(main, "");
    return { ...tree, launcher, main };
  }

  const own = Object.keys(packageJson.optionalDependencies).find((name) =>
    name.includes(`${process.platform}-${process.arch === "arm64" ? "aarch64" : "x64"}`),
  );
  const hoisted = `node_modules/${own}/bin/bun`;
  const nested = `node_modules/plantstore/node_modules/${own}/bin/bun`;
  const moved = "node_modules/bun/bin/bun.exe";
  /** The runtime for the other C library. Some installers bring both. */
  const other = `node_modules/${own?.endsWith("-musl") ? own.slice(0, -"-musl".length) : `${own}-musl`}/bin/bun`;

  test.each([
    ["beside the package", [hoisted], hoisted],
    ["inside the package first", [hoisted, nested], nested],
    ["where the install script of bun has moved it", [moved], moved],
    ["in the platform's package, if that script did not run", [moved, hoisted], hoisted],
    ["that suits the C library", [other, hoisted], hoisted],
    ["that suits the C library, also where it was moved", [other, moved], moved],
  ])("%s", async (_, files, expected) => {
    using tree = makeTree(files);
    symlinkSync(tree.launcher, join(tree.path, "link"));
    expect((await run(["./link", "version"], { cwd: tree.path })).trim()).toBe(expected);
  });

  test.each([
    ["what is missing", [], /exited with 1:\nplantstore: the runtime is not installed/],
    ["what is missing, if another C library has one", [other], `there is no package ${own} above `],
    [
      "that nothing is built",
      [hoisted],
      "node_modules/plantstore/dist/service/main.js is missing: run 'npm ci' in ",
    ],
  ])("or says %s", async (what, files, says) => {
    using tree = makeTree(files);
    if (what === "that nothing is built") rmSync(tree.main);
    // What bun leaves if its install script did not run.
    const stub = join(tree.path, moved);
    mkdirSync(dirname(stub), { recursive: true });
    writeFileSync(stub, "echo the install script did not run\n", { mode: 0o755 });
    expect(await fail([tree.launcher], { cwd: tree.path })).toMatch(says);
  });

  test("and exits as it does, also by a signal", async () => {
    using tree = makeTree([hoisted]);
    const runtime = join(tree.path, hoisted);
    writeFileSync(runtime, "#!/bin/sh\nexit 7\n");
    expect(await Bun.spawn([tree.launcher]).exited).toBe(7);
    writeFileSync(runtime, "#!/bin/sh\nkill -KILL $$\n");
    const killed = Bun.spawn([tree.launcher]);
    await killed.exited;
    expect(killed.signalCode).toBe("SIGKILL");
  });

  test("and passes signals on to it", async () => {
    using tree = makeTree([hoisted]);
    const script = `#!/bin/sh
for name in HUP INT QUIT TERM; do trap "echo $name; exit 7" $name; done
echo ready
while :; do sleep 0.05; done
`;
    writeFileSync(join(tree.path, hoisted), script);
    for (const name of ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"] as const) {
      const child = Bun.spawn([tree.launcher], { stdout: "pipe" });
      const reader = child.stdout.getReader();
      const readText = async (): Promise<string> =>
        new TextDecoder().decode((await reader.read()).value);
      expect(await readText()).toBe("ready\n");
      child.kill(name);
      expect(await readText()).toBe(`${name.slice(3)}\n`);
      expect(await child.exited).toBe(7);
    }
  });
});
