/** plantstore completion: what it proposes, and that shells really use it. */

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { launcher, runCommand } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { until } from "./support/until.ts";

const bin = dirname(launcher);

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
    ["backup ", "verify"],
    ["completion ", "bash zsh fish"],
    // Neither is known, and nothing is guessed.
    ["import --map ", ""],
    ["srve ", ""],
    ["complet", "completion"],
  ])("after %j are %j", async (words, expected) => {
    expect((await propose(...words.split(" "))).join(" ")).toBe(expected);
  });

  test.each([[[]], [["tcsh"]]])("completion %j is not understood: exit 2", async (args) => {
    const finished = await runCommand(["completion", ...args]);
    expect(finished).toMatchObject({ exitCode: 2, stdout: "" });
  });
});

describe("a shell", () => {
  const environment = { ...process.env, PATH: `${bin}:${process.env["PATH"]}`, TERM: "dumb" };

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
    ])(`${name} completes %s`, (typed, expected) => typeInto(shell, setUp, typed, expected));

  /** Types the line and a tab, and waits until the line on the screen is complete. */
  async function typeInto(
    shell: readonly string[],
    setUp: string,
    typed: string,
    expected: string,
  ): Promise<void> {
    using folder = makeTemporaryFolder();
    writeFileSync(join(folder.path, "spring.csv"), "");
    const decoder = new TextDecoder();
    let screen = "";
    const child = Bun.spawn([...shell], {
      cwd: folder.path,
      env: { ...environment, HOME: folder.path, PS1: "$ " },
      terminal: {
        cols: 200,
        rows: 24,
        data: (_, bytes) => {
          screen += decoder.decode(bytes, { stream: true });
        },
      },
    });
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
      await child.exited;
      child.terminal?.close();
    }
  }

  test.skipIf(Bun.which("fish") === null).each([
    ["plantstore tok", "token\n"],
    ["plantstore import --format n", "ndjson\n"],
    ["plantstore import spring", "spring.csv\n"],
  ])("fish completes %j", (line, expected) => {
    using folder = makeTemporaryFolder();
    writeFileSync(join(folder.path, "spring.csv"), "");
    const script = `plantstore completion fish | source; complete -C '${line}'`;
    const { stdout } = Bun.spawnSync(["fish", "-c", script], {
      cwd: folder.path,
      env: { ...environment, HOME: folder.path },
    });
    expect(stdout.toString()).toBe(expected);
  });
});
