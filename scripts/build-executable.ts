/**
 * npm run build:executable [-- --target linux-x64 …]: builds plantstore as one file, with its pages, workers and
 * runtime, in release/. `--target all` builds every target.
 */

import {
  chmodSync,
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import packageJson from "../package.json";
import { serviceEntries } from "./build.ts";

interface Target {
  /** The package of the runtime, without its scope. */
  readonly runtime: string;
  readonly header: Header;
}

/** The magic number, machine and loader that the file must have. */
interface Header {
  readonly magic: readonly number[];
  /** The machine type at `machineAt`, little-endian. */
  readonly machine: readonly number[];
  readonly machineAt: number;
  readonly loader: string;
}

const elf = (machine: number, loader: string): Header => ({
  magic: [0x7f, 0x45, 0x4c, 0x46],
  machine: [machine, 0],
  machineAt: 18,
  loader,
});
const machO = (machine: number): Header => ({
  magic: [0xcf, 0xfa, 0xed, 0xfe],
  machine: [machine, 0, 0, 1],
  machineAt: 4,
  loader: "/usr/lib/dyld",
});

export const targets = {
  "linux-x64": { runtime: "bun-linux-x64", header: elf(62, "/ld-linux-x86-64.so.2") },
  "linux-arm64": { runtime: "bun-linux-aarch64", header: elf(183, "/ld-linux-aarch64.so.1") },
  "linux-x64-musl": { runtime: "bun-linux-x64-musl", header: elf(62, "/ld-musl-x86_64.so.1") },
  "linux-arm64-musl": {
    runtime: "bun-linux-aarch64-musl",
    header: elf(183, "/ld-musl-aarch64.so.1"),
  },
  "darwin-x64": { runtime: "bun-darwin-x64", header: machO(7) },
  "darwin-arm64": { runtime: "bun-darwin-aarch64", header: machO(12) },
} as const satisfies Record<string, Target>;

export type TargetName = keyof typeof targets;

const root = join(import.meta.dir, "..");
const HEADER_BYTES = 8_192;

/** Returns what is wrong with the file, or undefined. */
export function findFormatFault(path: string, target: TargetName): string | undefined {
  const { magic, machine, machineAt, loader } = targets[target].header;
  const bytes = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(path, "r");
  readSync(descriptor, bytes);
  closeSync(descriptor);
  const has = (expected: readonly number[], at: number): boolean =>
    expected.every((byte, index) => bytes[at + index] === byte);
  if (!has(magic, 0)) return `${path} is not an executable for ${target}`;
  if (!has(machine, machineAt)) return `${path} is for another processor than ${target}`;
  if (!bytes.includes(loader)) return `${path} does not use ${loader}`;
  return undefined;
}

const targetNames = Object.keys(targets) as TargetName[];

/** The target of this machine: that of the running Bun. */
export function findOwnTarget(): TargetName {
  const own = targetNames.find((name) => findFormatFault(process.execPath, name) === undefined);
  if (own === undefined)
    throw new Error(`${process.execPath} is for none of ${targetNames.join(", ")}`);
  return own;
}

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly version: string; readonly integrity: string }>
  >;
}

export const readLock = async (): Promise<Lock> =>
  (await Bun.file(join(root, "package-lock.json")).json()) as Lock;

/** The runtime of the target, from its npm package, checked against package-lock.json. */
async function fetchRuntime(target: TargetName, folder: string): Promise<string> {
  const name = `@oven/${targets[target].runtime}`;
  const { packages } = await readLock();
  const locked = packages[`node_modules/${name}`];
  run(["npm", "pack", "--silent", "--prefer-offline", `${name}@${locked?.version}`], folder);
  const tarball = readdirSync(folder).find((file) => file.endsWith(".tgz")) ?? "";
  const hash = new Bun.CryptoHasher("sha512").update(await Bun.file(join(folder, tarball)).bytes());
  if (`sha512-${hash.digest("base64")}` !== locked?.integrity)
    throw new Error(`${tarball} is not the file that package-lock.json names`);
  run(["tar", "-xzf", tarball], folder);
  return join(folder, "package/bin/bun");
}

function run(command: readonly string[], cwd: string): void {
  const { exitCode, stderr } = Bun.spawnSync([...command], { cwd, stdout: "ignore" });
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr.toString()}`);
}

export async function buildExecutable(target: TargetName, folder: string): Promise<string> {
  const outfile = join(folder, `plantstore-${packageJson.version}-${target}`);
  const temporary = mkdtempSync(join(tmpdir(), "plantstore-build-"));
  try {
    const executablePath =
      target === findOwnTarget() ? process.execPath : await fetchRuntime(target, temporary);
    mkdirSync(folder, { recursive: true });
    const pages = join(temporary, "dist");
    cpSync(join(root, "dist"), pages, {
      recursive: true,
      filter: (source) => basename(source) !== "service",
    });
    await Bun.build({
      // Paths in the embedded file system are those of the npm package.
      entrypoints: [...serviceEntries],
      naming: { entry: "dist/service/[name].[ext]" },
      define: { "import.meta.dir": JSON.stringify(join("/$bunfs", "root", "dist/service")) },
      // Halves the time to start.
      bytecode: true,
      format: "esm",
      compile: {
        target: `bun-${target}`,
        executablePath,
        outfile,
        assets: [pages],
        // Only flags and the environment configure the service, not files in the current folder.
        autoloadDotenv: false,
        autoloadBunfig: false,
      },
    });
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  chmodSync(outfile, 0o755);
  const fault = findFormatFault(outfile, target);
  if (fault !== undefined) throw new Error(fault);
  return outfile;
}

/** SHA256SUMS, as `sha256sum --check` reads it, for all files of the folder. */
export async function writeChecksums(folder: string): Promise<void> {
  const names = readdirSync(folder).filter((name) => name !== "SHA256SUMS");
  const lines = await Promise.all(
    names.toSorted().map(async (name) => {
      const hasher = new Bun.CryptoHasher("sha256");
      for await (const piece of Bun.file(join(folder, name)).stream()) hasher.update(piece);
      return `${hasher.digest("hex")}  ${name}\n`;
    }),
  );
  await Bun.write(join(folder, "SHA256SUMS"), lines.join(""));
}

function parseTargets(names: readonly string[]): TargetName[] {
  if (names.length === 0) return [findOwnTarget()];
  return names.flatMap((name) => {
    if (name === "all") return targetNames;
    const found = targetNames.find((target) => target === name);
    if (found === undefined) {
      process.stderr.write(`--target ${name}: expected all, ${targetNames.join(", ")}\n`);
      process.exit(2);
    }
    return found;
  });
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { target: { type: "string", multiple: true } } });
  const folder = join(root, "release");
  for (const target of parseTargets(values.target ?? [])) {
    const path = await buildExecutable(target, folder);
    const megabytes = (Bun.file(path).size / 1e6).toFixed(0);
    process.stdout.write(`release/${basename(path)}  ${megabytes} MB\n`);
  }
  await writeChecksums(folder);
}
