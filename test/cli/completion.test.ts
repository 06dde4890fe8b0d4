/** plantstore completion: what it proposes, and that shells really use it. */

import { describe, expect, test } from "bun:test";
import { dirname } from "node:path";
import { launcher, runCommand } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { runSync } from "../support/processes.ts";
import { until } from "../support/until.ts";

async function propose(...words: string[]): Promise<string[]> {
  // Bash adds the program, the word and the one before it, which may look like flags.
  const { exitCode, stdout, stderr } = await runCommand(
    ["complete", "plantstore", words.at(-1) ?? "", words.at(-2) ?? ""],
    { COMP_LINE: ["plantstore", ...words].join(" ") },
  );
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return stdout.split("\n").filter((line) => line !== "");
}

describe("the candidates", () => {
  test("are every command that the help has", async () => {
    const { stdout: help } = await runCommand(["--help"]);
    const commands = [...help.matchAll(/^ {2}([a-z]+) .*/gm)].map(([, name = ""]) => name);
    expect(commands).toContain("serve");
    expect(await propose("")).toEqual(commands);
    expect(await propose("vers")).toEqual(["version"]);
  });

  test("are every flag of a command", async () => {
    const { stdout: help } = await runCommand(["token", "create", "--help"]);
    const flags = [...help.matchAll(/^ {2}(?:-., )?(--[a-z-]+)/gm)].map(([, name = ""]) => name);
    expect(flags.length).toBeGreaterThan(4);
    expect(await propose("token", "create", "--")).toEqual(flags);
    expect(await propose("token", "create", "--json", "--name", "till", "--n")).toEqual(["--name"]);
    expect(await propose("token", "create", "--json", "--help")).toEqual(["--help"]);
  });

  test.each([
    ["token ", "create list revoke help"],
    ["import --format ", "ndjson json csv xlsx"],
    ["import --format nd", "ndjson"],
    ["import plants.csv ", ""],
    ["import --rejects ", ""],
    ["backup ", "verify list"],
    ["completion ", "bash zsh fish"],
    // Neither is known, and nothing is guessed.
    ["import --map ", ""],
    ["srve ", ""],
    ["complet", "completion"],
  ])("after %j are %j", async (words, expected) => {
    expect((await propose(...words.split(" "))).join(" ")).toBe(expected);
  });

  test.each([[[]], [["tcsh"]]])("completion %j is not understood: exit 2", async (args) =>
    expect(await runCommand(["completion", ...args])).toMatchObject({ exitCode: 2, stdout: "" }),
  );
});

describe("a shell", () => {
  const PATH = `${dirname(launcher)}:${process.env["PATH"]}`;
  /** A home with a file, and the environment of a shell there. */
  function makeHome() {
    const folder = makeWorkplace({ "spring.csv": "" });
    const env = { ...process.env, PATH, TERM: "dumb", HOME: folder.path, PS1: "$ " };
    return { ...folder, options: { cwd: folder.path, env } };
  }

  const shells = {
    bash: [["bash", "--norc", "--noprofile", "-i"], "source <(plantstore completion bash)"],
    zsh: [
      ["zsh", "-f", "-i"],
      "autoload -U compinit; compinit -D -u; source <(plantstore completion zsh)",
    ],
  } as const;

  for (const [name, [shell, setUp]] of Object.entries(shells))
    test.skipIf(Bun.which(name) === null).each([
      ["plantstore tok", "plantstore token"],
      ["plantstore import spring", "plantstore import spring.csv"],
    ])(`${name} completes %s`, async (typed, expected) => {
      using home = makeHome();
      let screen = "";
      const decoder = new TextDecoder();
      const data = (_: unknown, bytes: Uint8Array): void => {
        screen += decoder.decode(bytes, { stream: true });
      };
      const terminal = { cols: 200, rows: 24, data };
      await using child = Bun.spawn([...shell], { ...home.options, terminal });
      try {
        // The quotes keep the echo of the line itself from being taken for its output.
        child.terminal?.write(`${setUp}; echo re''ady\r`);
        await until("the shell is ready", () => /^ready/m.test(screen));
        child.terminal?.write(`${typed}\t`);
        await until(`the shell shows ${expected}`, () =>
          screen.replaceAll("\u0007", "").includes(expected),
        );
      } catch (error) {
        throw new Error(`on the screen: ${JSON.stringify(screen)}`, { cause: error });
      } finally {
        child.kill("SIGKILL");
        child.terminal?.close();
      }
    });

  test.skipIf(Bun.which("fish") === null).each([
    ["plantstore tok", "token\n"],
    ["plantstore import --format n", "ndjson\n"],
    ["plantstore import spring", "spring.csv\n"],
  ])("fish completes %j", (line, expected) => {
    using home = makeHome();
    const script = `plantstore completion fish | source; complete -C '${line}'`;
    const { stdout } = runSync(["fish", "-c", script], home.options);
    expect(stdout.toString()).toBe(expected);
  });
});
