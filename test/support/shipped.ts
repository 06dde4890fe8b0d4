/** Plant Store as it is shipped: made from a copy of the sources, and used in a folder of its own. */

import { expect } from "bun:test";
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { environment, finish, piped } from "./command.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";
import { signal } from "./processes.ts";
import { makeWorkbook, rowsOf } from "./workbook.ts";

const root = join(import.meta.dir, "../..");
/** Not sources; some of them are large, or change while other tests run. */
const leftOut = new Set([".git", "node_modules", "dist", "release", "data"]);

/** A build in the sources themselves would replace the pages that other tests are using. */
export function copySources(): TemporaryFolder {
  const folder = makeTemporaryFolder();
  cpSync(root, folder.path, {
    recursive: true,
    filter: (source) => source === root || !leftOut.has(basename(source)),
  });
  symlinkSync(join(root, "node_modules"), join(folder.path, "node_modules"));
  return folder;
}

interface RunOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** Resolves to standard output. Fails the test, with everything that was printed, unless the command succeeds. */
export async function run(
  command: readonly string[],
  { cwd, env = {} }: RunOptions,
): Promise<string> {
  const child = Bun.spawn([...command], { cwd, env: environment(env), ...piped });
  const { exitCode, stdout, stderr } = await finish(child);
  if (exitCode !== 0)
    throw new Error(`${command.join(" ")} exited with ${exitCode}:\n${stdout}${stderr}`);
  return stdout;
}

/** What a command that must fail has printed, and its exit code. */
export const fail = (command: readonly string[], options: RunOptions): Promise<string> =>
  run(command, options).then(
    () => expect.unreachable(),
    (error: unknown) => (error as Error).message,
  );

interface Started {
  readonly child: Bun.Subprocess<"ignore", "pipe", "pipe">;
  readonly url: string;
  readonly tokenFile: string;
  /** Everything on standard error, which is closed by the last process that has it. */
  readonly stderr: Promise<string>;
}

/** Runs a command that serves, as the leader of a process group, and waits until it listens. */
export async function serve(command: readonly string[], options: RunOptions): Promise<Started> {
  const child = Bun.spawn([...command], {
    cwd: options.cwd,
    env: environment({ PORT: "0", ...options.env }),
    stdin: "ignore",
    detached: true,
    ...piped,
  });
  const stderr = child.stderr.text();
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error(`it did not start: ${await stderr}`);
  const line = JSON.parse(new TextDecoder().decode(value)) as Pick<Started, "url" | "tokenFile">;
  return { child, stderr, ...line };
}

const rows = rowsOf([["id", "name"]]) + rowsOf([[301, "Mint"]]);
const stock = makeWorkbook({ sheets: { Stock: rows } });

/**
 * Uses the service and the commands in an empty folder: workers, both pages, search, import and backup. A package that lacks a
 * file fails at one of them. Other files in the folder must not matter.
 */
export async function useEverything(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  using folder = makeTemporaryFolder();
  const cwd = join(folder.path, "work");
  mkdirSync(cwd);
  leaveTraps(cwd);

  const workers = process.platform === "linux" ? "2" : "1";
  const serving = [...command, "serve", "--workers", workers];
  const { child, stderr, url, tokenFile } = await serve(serving, { cwd, env });
  // As Ctrl-C does: npx itself does not pass a signal on to what it runs.
  const signalGroup = (name: NodeJS.Signals): void => signal(-child.pid, name);
  try {
    const token = readFileSync(tokenFile, "utf8").trim();
    await visit(url);
    await visit(`${url}/docs`);
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const body = '{"id":9007199254740993,"name":"Monstera deliciosa"}';
    expect((await fetch(`${url}/plants`, { method: "POST", headers, body })).status).toBe(200);
    const found = await fetch(`${url}/plants?name=DELICI`, { headers });
    expect(await found.text()).toContain('"id":9007199254740993');
    writeFileSync(join(cwd, "stock.xlsx"), stock);
    const importing = [...command, "import", "stock.xlsx", "--url", url];
    const imported = await run(importing, { cwd, env: { ...env, PLANTSTORE_TOKEN: token } });
    expect(imported).toBe("created 1, replayed 0, refused 0\n");
    const backup = await run([...command, "backup", "backup.db", "--json"], { cwd, env });
    expect(JSON.parse(backup)).toMatchObject({ plants: 2 });
    signalGroup("SIGINT");
    expect(await stderr).toContain('"event":"stopped"');
  } finally {
    signalGroup("SIGKILL");
    await child.exited;
  }
}

/** Files that the runtime reads on its own. Each would break the service. */
export function leaveTraps(path: string): void {
  writeFileSync(join(path, ".env"), "PORT=wrong\nPLANTSTORE_LOG_LEVEL=wrong\n");
  writeFileSync(join(path, "bunfig.toml"), 'preload = ["./trap.ts"]\n');
  writeFileSync(join(path, "tsconfig.json"), '{"compilerOptions":{"paths":{"*":["./trap.ts"]}}}');
  writeFileSync(join(path, "trap.ts"), "process.exit(99);\n");
}

/** The page, and every script and style that it names. */
async function visit(url: string): Promise<void> {
  const page = await (await fetch(url)).text();
  const found = [...page.matchAll(/(?:src|href)="([^":]+\.(?:js|css))"/g)];
  expect(found.length).toBeGreaterThan(1);
  for (const [, name = ""] of found) {
    const response = await fetch(new URL(name, url.endsWith("/docs") ? url : `${url}/`));
    expect([basename(name), response.status]).toEqual([basename(name), 200]);
    expect(response.headers.get("content-type")).toMatch(/javascript|css/);
    expect((await response.text()).length).toBeGreaterThan(100);
  }
}
