/** The command line as its users run it, in a process of its own: awaited, fed, interrupted or watched on a terminal. */

import { join } from "node:path";
import { hasLimits } from "./limits.ts";

/** The command line from its sources. */
export const launcher = join(import.meta.dir, "plantstore");
const mainWithLimits = join(import.meta.dir, "main.ts");
/** `npm test` has just built it, and it starts in half the time. */
export const isBuilt = process.env["PLANTSTORE_TEST_BUILT"] === "true";
const flags = ["--no-env-file", "--config=/dev/null", "--tsconfig-override=/dev/null"];
const built = [process.execPath, ...flags, join(import.meta.dir, "../../dist/service/main.js")];

/** With limits of the test's own it runs from its sources. */
function commandOf(env: Readonly<Record<string, string>>): string[] {
  if (hasLimits(env)) return [process.execPath, "--no-env-file", mainWithLimits];
  return isBuilt ? built : [launcher];
}

export interface Finished {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Nothing of the tester's own configuration reaches the child, only what the test gives it. */
export function environment<Given extends object>(given: Given) {
  const { PATH = "", HOME = "", TMPDIR = "/tmp" } = process.env;
  return { PATH, HOME, TMPDIR, ...given };
}

export async function runCommand(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  { stdin = null as Blob | null, wrapper = [] as readonly string[], cwd = process.cwd() } = {},
): Promise<Finished> {
  const command = [...wrapper, ...commandOf(env), ...args];
  return finish(Bun.spawn(command, { cwd, env: environment(env), stdin, ...piped }));
}

/** What a command that succeeds without a word to standard error prints with --json. */
export async function runForJson<Printed = unknown>(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Printed> {
  const { exitCode, stdout, stderr } = await runCommand([...args, "--json"], env);
  if (exitCode !== 0 || stderr !== "") throw new Error(`exit ${exitCode}: ${stderr}`);
  return JSON.parse(stdout) as Printed;
}

export const piped = { stdout: "pipe", stderr: "pipe" } as const;

export async function finish(child: Bun.ReadableSubprocess): Promise<Finished> {
  const { stdout, stderr, exited } = child;
  const [out, error, exitCode] = await Promise.all([stdout.text(), stderr.text(), exited]);
  return { exitCode, stdout: out, stderr: error };
}

/** The line that the service prints to standard output when it listens. */
interface StartLine {
  readonly url: string;
  /** Where the first token of a new store is. */
  readonly tokenFile?: string;
  readonly [fact: string]: unknown;
}

export type ServiceProcess = Awaited<ReturnType<typeof spawnService>>;

/** Starts `plantstore serve` and waits until it listens. `wrapper` is a command to run it under. */
export async function spawnService(
  env: Readonly<Record<string, string>>,
  wrapper: readonly string[] = [],
) {
  const child = Bun.spawn([...wrapper, ...commandOf(env), "serve"], {
    env: environment({ PORT: "0", ...env }),
    ...piped,
  });
  const stderr = child.stderr.text();
  const firstLine = await readLine(child.stdout);
  if (firstLine === undefined)
    throw new Error(`the service did not start (exit ${await child.exited}): ${await stderr}`);
  return {
    pid: child.pid,
    started: JSON.parse(firstLine) as StartLine,
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    exited: child.exited,
    /** Everything on standard error; resolves when the process is gone. */
    stderr,
    async [Symbol.asyncDispose](): Promise<void> {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

async function readLine(stream: ReadableStream<Uint8Array>): Promise<string | undefined> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    text += decoder.decode(chunk, { stream: true });
    if (text.includes("\n")) return text.slice(0, text.indexOf("\n"));
  }
  return undefined;
}

export function startCommand(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const child = Bun.spawn([...commandOf(env), ...args], {
    env: environment(env),
    stdin: "pipe",
    ...piped,
  });
  const decoder = new TextDecoder();
  let stderr = "";
  const watch = async (): Promise<Finished> => {
    const output = child.stdout.text();
    for await (const bytes of child.stderr) stderr += decoder.decode(bytes, { stream: true });
    return { exitCode: await child.exited, stdout: await output, stderr };
  };
  return {
    pid: child.pid,
    /** CPU time, once it has ended. */
    cpuMs: (): number => Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1_000,
    /** What it has said so far. */
    stderr: () => stderr,
    /** Resolves when it has been handed over. */
    write: async (text: string | Uint8Array): Promise<void> => {
      await child.stdin.write(text);
      await child.stdin.flush();
    },
    end: async (): Promise<void> => {
      await child.stdin.end();
    },
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    finished: watch(),
  };
}

/** Everything that a person would have seen. The command gets a SIGTERM when `stopAt` is shown, `reply` at a question. */
export async function runOnTerminal(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  stopAt?: string,
  answer?: { readonly at: string; readonly reply: string },
): Promise<{ readonly exitCode: number; readonly screen: string }> {
  const decoder = new TextDecoder();
  let screen = "";
  const child = Bun.spawn([...commandOf(env), ...args], {
    env: environment({ TERM: "xterm-256color", ...env }),
    terminal: {
      cols: 80,
      rows: 24,
      data: (terminal, bytes) => {
        const wasShown = stopAt === undefined || screen.includes(stopAt);
        const wasAsked = answer === undefined || screen.includes(answer.at);
        screen += decoder.decode(bytes, { stream: true });
        if (!wasShown && screen.includes(stopAt)) child.kill("SIGTERM");
        if (!wasAsked && screen.includes(answer.at)) terminal.write(answer.reply);
      },
    },
  });
  const exitCode = await child.exited;
  child.terminal?.close();
  return { exitCode, screen };
}

/** A script of Bash, in which "$0" is the command line. */
export const runScript = (
  script: string,
  env: Readonly<Record<string, string>>,
  cwd = process.cwd(),
): Promise<Finished> =>
  finish(Bun.spawn(["bash", "-c", script, launcher], { cwd, env: environment(env), ...piped }));
