/** plantstore completion: scripts for shells, which ask this program what can come next. So they never go stale. */

import type { Command, Option } from "commander";

export const shells = ["bash", "zsh", "fish"] as const;
type Shell = (typeof shells)[number];

/** Tells the shell to complete the name of a file. */
const FILES = ":files";

/** Each has the words of the line so far answered by `plantstore complete`: one candidate a line, a tab, its meaning. */
const scripts: Readonly<Record<Shell, string>> = {
  bash: `_plantstore() {
  local found
  found=$("$1" complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)
  COMPREPLY=($(compgen -W "\${found/${FILES}/}" -- "\${COMP_WORDS[COMP_CWORD]}"))
  # Used where nothing else fits.
  [[ $found == *${FILES}* ]] && compopt -o default 2>/dev/null
}
complete -F _plantstore plantstore
`,
  zsh: `#compdef plantstore
_plantstore() {
  local -a found
  found=("\${(@f)$("$words[1]" complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  (( $found[(I)${FILES}] )) && _files
  found=("\${(@)\${(@)found:#${FILES}}/$'\\t'/:}")
  _describe plantstore found
}
compdef _plantstore plantstore
`,
  fish: `function __plantstore_complete
  set -l words (commandline -opc) (commandline -ct)
  for found in ($words[1] complete -- $words[2..-1] 2>/dev/null)
    if test "$found" = "${FILES}"
      __fish_complete_path (commandline -ct)
    else
      echo $found
    end
  end
end
complete -c plantstore -f -a '(__plantstore_complete)'
`,
};

export const printCompletion = (shell: Shell): void => void process.stdout.write(scripts[shell]);

/** `words` are those after the name of the program; the last one is being typed, and may be empty. */
export function printCandidates(program: Command, words: readonly string[]): void {
  const typed = words.at(-1) ?? "";
  const lines = findCandidates(program, words.slice(0, -1), typed).filter(
    (line) => line === FILES || line.startsWith(typed),
  );
  process.stdout.write(lines.map((line) => `${line}\n`).join(""));
}

function findCandidates(program: Command, before: readonly string[], typed: string): string[] {
  let command = program;
  let argumentCount = 0;
  let option: Option | undefined;
  const given = new Set<string>();
  for (const word of before) {
    const isValue = option !== undefined;
    option = undefined;
    if (isValue) continue;
    const next = command.commands.find((one) => one.name() === word);
    if (word.startsWith("-")) {
      given.add(word);
      option = command.options.find(({ long, short }) => long === word || short === word);
      if (!option?.required) option = undefined;
    } else if (next !== undefined) command = next;
    else argumentCount++;
  }
  if (option !== undefined) return listValues(option.argChoices, option.flags);
  const help = command.createHelp();
  if (typed.startsWith("-"))
    return help
      .visibleOptions(command)
      .filter(({ long }) => !given.has(long ?? ""))
      .map(({ long, description }) => format(long ?? "", description));
  const commands = help
    .visibleCommands(command)
    .map((one) => format(one.name(), one.description()));
  const argument = command.registeredArguments[argumentCount];
  const values = argument && listValues(argument.argChoices, argument.name());
  return [...(argumentCount === 0 ? commands : []), ...(values ?? [])];
}

const listValues = (choices: readonly string[] | undefined, name: string): string[] =>
  [...(choices ?? [])].concat(/file|folder/.test(name) ? [FILES] : []);

/** The first sentence is enough beside a candidate. */
const format = (candidate: string, meaning: string): string =>
  `${candidate}\t${/^[^.;:(]*/.exec(meaning)?.[0].trim() ?? ""}`;
