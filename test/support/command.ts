/** A command that is still running: fed, interrupted, watched on a terminal. */

import { commandOf, type Finished } from "./child.ts";

export interface RunningCommand {
  readonly pid: number;
  /** Resolves when it has been handed over. */
  readonly write: (text: string | Uint8Array) => Promise<void>;
  readonly end: () => Promise<void>;
  readonly kill: (signal: NodeJS.Signals) => void;
  readonly finished: Promise<Finished>;
}

function environment(given: Readonly<Record<string, string>>): Record<string, string> {
  const { PATH = "", HOME = "", TMPDIR = "/tmp" } = process.env;
  return { PATH, HOME, TMPDIR, ...given };
}

export function startCommand(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): RunningCommand {
  const child = Bun.spawn([...commandOf(env), ...args], {
    env: environment(env),
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  const finish = async (): RunningCommand["finished"] => {
    const [stdout, stderr, exitCode] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { exitCode, stdout, stderr };
  };
  return {
    pid: child.pid,
    write: async (text) => {
      await child.stdin.write(text);
      await child.stdin.flush();
    },
    end: async () => {
      await child.stdin.end();
    },
    kill: (signal) => child.kill(signal),
    finished: finish(),
  };
}

/** Everything that a person would have seen, in the order in which it came. */
export async function runOnTerminal(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly exitCode: number; readonly screen: string }> {
  const decoder = new TextDecoder();
  let screen = "";
  const child = Bun.spawn([...commandOf(env), ...args], {
    env: environment({ TERM: "xterm-256color", ...env }),
    terminal: {
      cols: 80,
      rows: 24,
      data: (_terminal, bytes) => {
        screen += decoder.decode(bytes, { stream: true });
      },
    },
  });
  const exitCode = await child.exited;
  child.terminal?.close();
  return { exitCode, screen };
}
