/** plantstore completion: scripts for shells, which ask this program what can come next. So they never go stale. */

import type { Command, Option } from "commander";

/** The shell gives the line so far in COMP_LINE. Where no candidate fits, it completes the name of a file. */
const bash = `complete -o default -C "plantstore complete" plantstore\n`;

const scripts = {
  bash,
  zsh: `autoload -U +X bashcompinit && bashcompinit\n${bash}`,
  fish: `function __plantstore_complete
  set -lx COMP_LINE (commandline -cp)
  plantstore complete
end
complete -c plantstore -a '(__plantstore_complete)'
`,
};

export const shells = Object.keys(scripts);

export const printCompletion = (shell: keyof typeof scripts): void =>
  void process.stdout.write(scripts[shell]);

/** One on each line. */
export function printCandidates(program: Command): void {
  const words = (process.env["COMP_LINE"] ?? "").split(/\s+/).slice(1);
  const typed = words.pop() ?? "";
  const fitting = findCandidates(program, words, typed).filter((one) => one.startsWith(typed));
  process.stdout.write(fitting.map((one) => `${one}\n`).join(""));
}

function findCandidates(program: Command, before: readonly string[], typed: string): string[] {
  let command = program;
  let argumentCount = 0;
  let option: Option | undefined;
  for (const word of before) {
    const isValue = option?.required === true;
    option = command.options.find(({ long }) => !isValue && long === word);
    if (isValue || option !== undefined) continue;
    const next = command.commands.find((one) => one.name() === word);
    if (next === undefined) argumentCount++;
    else command = next;
  }
  if (option?.required) return option.argChoices ?? [];
  const help = command.createHelp();
  if (typed.startsWith("-")) return help.visibleOptions(command).map(({ long }) => long ?? "");
  const commands = help.visibleCommands(command).map((one) => one.name());
  const values = command.registeredArguments[argumentCount]?.argChoices ?? [];
  return argumentCount === 0 ? [...commands, ...values] : values;
}
