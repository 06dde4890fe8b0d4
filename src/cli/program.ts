/** The command line: every command, its flags and its help. */

import { Argument, Command, CommanderError, Option } from "commander";
import packageJson from "../../package.json";
import {
  type Config,
  ConfigError,
  findIgnoredVariables,
  type Resolved,
  resolveConfig,
  type SettingName,
  settings,
} from "../config.ts";
import { plantScopes, scopes } from "../domain/token.ts";
import { changeTypes } from "../domain/change.ts";
import { encodings } from "../format/encoding.ts";
import { CommandError, explain, Interrupted } from "./command.ts";
import { addFields, fieldsOf, firstOf } from "./fields.ts";
import { printError, printJson, printTable } from "./terminal.ts";
import type { WebhookAction } from "./webhook.ts";

const EXIT_USAGE = 2;

/** Runs the command that the arguments name. Resolves to an exit code, or to undefined if the process keeps running. */
export async function run(args: readonly string[]): Promise<number | undefined> {
  try {
    await createProgram(args[0]).parseAsync(args, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has already printed its message or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    // The reader of standard output closed the pipe, as `head` does. For a backup that is a failure.
    const isCut = (error as NodeJS.ErrnoException).code === "EPIPE";
    if (isCut && args[0] !== "backup") return undefined;
    // Exits now: an open pipe, connection or thread would keep the process alive.
    if (error instanceof Interrupted) process.exit(error.exitCode);
    printError(explain(error));
    if (error instanceof ConfigError) return EXIT_USAGE;
    return error instanceof CommandError ? error.exitCode : 1;
  }
}

/** `serve` alone is added without the others: their flags would delay the first answer. */
export function createProgram(name?: string): Command {
  const program = new Command("plantstore")
    .description("A plant store over HTTP: exact, durable, safe to retry.")
    .version(packageJson.version)
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError("See --help.")
    .configureHelp({ subcommandDescription: (command) => firstOf(command.description()) })
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, "plantstore: ")),
    })
    .addHelpText("after", PROGRAM_HELP);
  addServe(program);
  if (name === "serve") return program;
  addServiceCommands(program);
  addTransferCommands(program);
  addTokenCommands(program.command("token").description("Create, list and revoke tokens."));
  addWebhookCommands(program.command("webhook").description("Notify other systems of changes."));
  addStoreCommands(program);
  addCompletion(program);
  return program;
}

const EXIT_CODES = `
Exit codes:
  0    done
  1    failed; the message says how far it got
  2    usage error
  3    finished, but records were refused or stores differ
  130  interrupted by Ctrl-C; 143 by SIGTERM`;

const PROGRAM_HELP = `
Settings come from flags, then the environment, then defaults; see:
plantstore serve --help
${EXIT_CODES}`;

/** Adds the flags of these settings; of all settings by default. */
function addSettings(command: Command, names = Object.keys(settings) as SettingName[]): Command {
  for (const name of names) {
    const { flag, env, meaning, default: fallback } = settings[name];
    if (flag === undefined) continue;
    const described = `${meaning} (${env}; default ${fallback === "" ? "none" : fallback})`;
    const isSwitch = fallback === "false";
    const option = new Option(`${flag} ${isSwitch ? "[value]" : "<value>"}`, described);
    command.addOption(isSwitch ? option.preset("true") : option);
  }
  return command;
}

const addStore = (command: Command): Command => addSettings(command, ["databaseUrl"]);

const CA_OPTION = [
  "--ca <file>",
  "PEM file of the private authority that signed the service's certificate",
] as const;

/** For commands that work on a store or through a service. */
const addTarget = (command: Command): Command =>
  addStore(command)
    .option(
      "--url <url>",
      "a running service instead of the store; its token comes from PLANTSTORE_TOKEN",
    )
    .option(...CA_OPTION);

const choice = (flag: string, meaning: string, choices: readonly string[]): Option =>
  new Option(flag, meaning).choices(choices);

/** Overrides for tests, which need shorter timeouts. */
export const injected: Partial<Config> = {};

const resolveOptions = (options: Readonly<Record<string, unknown>>): Resolved =>
  resolveConfig(options, process.env, injected);

type Action = (config: Config, options: never, ...words: never[]) => Promise<void> | void;

/** Imports a command when it runs, so the service does not load the others. */
const load =
  (find: () => Promise<Action>) =>
  async (...parameters: unknown[]): Promise<void> => {
    const options = parameters.at(-2) as Record<string, unknown>;
    const { config } = resolveOptions(options);
    const act = await find();
    await act(config, options as never, ...(parameters.slice(0, -2) as never[]));
  };

function addServe(program: Command): void {
  addSettings(program.command("serve"))
    .description("Run the service.")
    .addHelpText(
      "after",
      "\nOnly in the environment: PLANTSTORE_TOKEN, a token with all scopes, and OTEL_…\nfor traces (docs/operations.md).",
    )
    .action(load(async () => (await import("./serve.ts")).serve));
}

function addServiceCommands(program: Command): void {
  addSettings(program.command("config"))
    .description("Print the settings in effect, with secrets masked.")
    .option("--json", "as JSON")
    .action((options) => printConfig(resolveOptions(options), options.json));
  addSettings(program.command("health"), ["host", "port", "tlsCert", "tlsKey", "basePath"])
    .description("Ask a running service whether it is ready. Exits with 1 if not.")
    .option("--wait <seconds>", "how long to wait for it", "0")
    .option(...CA_OPTION)
    .action(load(async () => (await import("./check.ts")).checkHealth));
  program
    .command("version")
    .description("Print the version.")
    .action(() => void process.stdout.write(`${packageJson.version}\n`));
}

function printConfig({ config, sources }: Resolved, isJson = false): void {
  for (const warning of findIgnoredVariables(process.env)) printError(warning);
  const rows = (Object.keys(settings) as SettingName[]).map((name) => {
    const { env, secret, mask = (shown: string) => shown } = settings[name];
    const value = String(config[name] ?? "");
    const isHidden = secret && value !== "";
    return { setting: env, value: isHidden ? "********" : mask(value), source: sources[name] };
  });
  if (isJson) printJson(rows);
  else printTable(["SETTING", "VALUE", "FROM"], rows.map(Object.values<string>));
}

const formats = ["ndjson", "json", "csv"];

function addTransferCommands(program: Command): void {
  addTarget(program.command("import"))
    .description("Store the plants of a file. Stored plants are left as they are without --upsert.")
    .argument("<file|->", ".ndjson, .jsonl, .json, .csv, .tsv or .xlsx; - is standard input")
    .addOption(choice("--format <format>", "default: by the file name", [...formats, "xlsx"]))
    .option("--map <fields>", "headings of columns, as in id=Nr,name=Plant,tag=Type")
    .option("--sheet <name>", "the sheet of a workbook (default: the first)")
    .addOption(
      choice("--delimiter <sign>", "between CSV cells; detected by default", [
        ",",
        ";",
        "|",
        "tab",
      ]),
    )
    .addOption(choice("--encoding <encoding>", "of the file (default: detected)", encodings))
    .option("--upsert", "replace stored plants that differ")
    .option("--remove-missing", "upsert, then remove the plants that the file lacks")
    .option("--dry-run", "print what would be done, and change nothing")
    .option("--yes", "do not ask before --remove-missing removes over a tenth of the store")
    .option("--batch <name>", "its name in the journal (default: the file and the time)")
    .option("--rejects <file>", "where refused records go, with reasons; - is standard output")
    .option("--force", "replace the file of --rejects")
    .option("--json", "the summary as JSON")
    .addHelpText("after", IMPORT_HELP)
    .action(load(async () => (await import("./import.ts")).importPlants));
  addFields(addTarget(program.command("export")), fieldsOf.export)
    .description(
      "Write all plants, or those that match, by ascending id or in the order of --sort.",
    )
    .addOption(choice("--format <format>", "default: by the name of --output, or ndjson", formats))
    .option("--output <file>", "a file that appears when it is complete (default: standard output)")
    .option("--force", "replace the file of --output")
    .action(load(async () => (await import("./export.ts")).exportPlants));
  addBulk(program.command("change"), "change")
    .description("Change all plants that match.")
    .option("--set-name <text>", "the new name")
    .option("--set-tag <text>", "the new tag")
    .option("--remove-tag", "remove the tag")
    .addHelpText("after", BULK_HELP)
    .action(load(async () => (await import("./bulk.ts")).changeMatching));
  addBulk(program.command("remove"), "remove")
    .description("Remove all plants that match.")
    .addHelpText("after", BULK_HELP)
    .action(load(async () => (await import("./bulk.ts")).removeMatching));
  addFields(addTarget(program.command("changes")), fieldsOf.changes)
    .description("Print what was created, changed and removed, in the order of the commits.")
    .option("--follow", "keep printing changes as they are committed")
    .option("--json", "as JSON, one change on each line")
    .action(load(async () => (await import("./changes.ts")).printChanges));
  addTarget(program.command("revert"))
    .description("Undo changes. Plants that were changed since are left alone.")
    .option("--from <number|time>", "the first change, or a time as in 2026-11-15T10:00:00Z")
    .option("--to <number|time>", "the last change, or a time")
    .option("--by <token>", "only changes by the token of this name")
    .option("--batch <name>", "only changes of this batch, as import prints it")
    .option("--types <types>", `only these, out of ${changeTypes.join(",")}`)
    .option("--dry-run", "print what would be done, and change nothing")
    .option("--yes", "do not ask")
    .option("--json", "the summary as JSON")
    .action(load(async () => (await import("./changes.ts")).revert));
  program
    .command("copy")
    .description(
      "Copy all plants, tokens and webhooks of a store into another, and verify the copy.",
    )
    .option("--from <url>", "the store to copy, which is not changed (default: DATABASE_URL)")
    .option("--to <url>", "the store to copy into, created if missing (default: DATABASE_URL)")
    .option("--json", "the summary as JSON")
    .addHelpText("after", COPY_HELP)
    .action(async (options) => {
      const { copyStore } = await import("./copy.ts");
      await copyStore(options, (databaseUrl) => resolveOptions({ databaseUrl }).config);
    });
}

const addBulk = (command: Command, verb: string): Command =>
  addFields(addTarget(command), fieldsOf.bulk)
    .option("--all", "every plant of the store, in place of a filter")
    .option("--dry-run", "print how many match and some of them, and change nothing")
    .option("--yes", "do not ask")
    .option("--batch <name>", `its name in the journal (default: ${verb} and the time)`)
    .option("--json", "the summary as JSON");

const BULK_HELP = `
Plants that others change meanwhile are left alone and listed. After an
interruption run it again: it continues. plantstore revert undoes it, by the
batch that is printed.
${EXIT_CODES}

Examples:
  plantstore change --tag sale --set-tag clearance --dry-run
  plantstore remove --q "test batch" --yes --url http://127.0.0.1:8080`;

const IMPORT_HELP = `
A bad record is refused alone, and the import continues. Fix the records in the
file of --rejects and import that file. After an interruption or a failure, run
the import again: plants that are stored already are counted as replayed.
docs/operations.md describes the formats.

With --remove-missing the store afterwards has exactly the plants of the file.
Nothing is changed if a record is refused.
${EXIT_CODES}

Examples:
  plantstore import spring.csv --map id=Nr,name=Plant,tag=Type --rejects bad.csv
  plantstore import nightly.csv --remove-missing --dry-run
  zcat plants.ndjson.gz | plantstore import - --format ndjson`;

const COPY_HELP = `
DATABASE_URL is the default for the one that is left out. It keeps a password
off the command line, where other users of the machine can see it.

Stop the service, copy, and start it on the new store. Nothing in the target is
ever replaced. After an interruption or a failure, run the copy again: it
continues. Webhooks are paused in the copy.
${EXIT_CODES}`;

function addTokenCommands(token: Command): void {
  addTarget(token.command("create"))
    .description("Create a token and print it. It is shown only once.")
    .requiredOption("--name <name>", "its name, unique among the tokens in use")
    .option("--scopes <scopes>", `any of ${scopes.join(",")}`, plantScopes.join(","))
    .option(
      "--tags <tags>",
      'only for plants with one of these tags, as in herb,"sun, shade" (default: all plants)',
    )
    .option("--expires <time>", "a time as in 90d, or a date as in 2030-01-31 (default: never)")
    .option("--rate <rate>", "as in 100/s, 6000/min or none (default: PLANTSTORE_RATE_LIMIT)")
    .option("--json", "as JSON, with its details")
    .action(load(async () => (await import("./token.ts")).createToken));
  addTarget(token.command("list"))
    .description("List the tokens: names, scopes, times, and the prefix of each.")
    .option("--json", "as JSON")
    .action(load(async () => (await import("./token.ts")).listTokens));
  addTarget(token.command("revoke"))
    .description("Revoke a token. Running services refuse it within 5 seconds.")
    .argument("<name|prefix>", "which token")
    .action(load(async () => (await import("./token.ts")).revokeToken));
}

const webhookActions = {
  add: "Send every change from now on to a URL. Prints the signing secret, which is shown only once.",
  list: "List the webhooks, and how their last attempts went.",
  show: "Show a webhook, and its last attempts with the answers.",
  remove: "Remove a webhook. Undelivered changes are dropped.",
  test: "Send one event to a webhook now, and show the answer. Exits with 1 if it is not 2xx.",
  pause: "Send nothing until the webhook is resumed.",
  resume: "Continue from its cursor, at once.",
  skip: "Skip the change that failed, and resume. Exits with 1 if none has failed.",
  replay: "Send the changes after a number again, in order.",
  rotate: "Give a webhook a new secret and print it. For 24 hours the old one signs too.",
} satisfies Record<WebhookAction, string>;

function addWebhookCommands(webhook: Command): void {
  const from = "resume after this change; 0 for all in the journal, newest for none";
  for (const [name, description] of Object.entries(webhookActions)) {
    const action = name as WebhookAction;
    const command = addTarget(webhook.command(action).description(description))
      .option("--json", "as JSON")
      .action(load(async () => (await import("./webhook.ts")).manageWebhook(action)));
    if (action === "add")
      command
        .argument("<target>", "the URL, as in https://shop.example/plants")
        .option("--name <name>", "its name (default: the host of the URL)")
        .option("--types <types>", `which changes: any of ${changeTypes.join(",")} (default: all)`);
    else if (action !== "list") command.argument("<name>", "which webhook");
    if (action === "replay") command.requiredOption("--from <number>", from);
  }
}

function addStoreCommands(program: Command): void {
  const backup = addStore(program.command("backup"))
    .description("Copy the store into a file, and verify the copy. The service may be running.")
    .argument("<file|->", "a file that does not exist yet, or - for standard output")
    .option("--json", "as JSON")
    .action(load(async () => (await import("./backup.ts")).backUp));
  backup.enablePositionalOptions();
  // These read no settings, so they get no Config.
  backup
    .command("verify")
    .description("Read every piece of a place, restore its newest state into TMPDIR, and compare.")
    .argument("<place>", "the folder or s3:// URL of plantstore serve --backup-to")
    .option("--store <id>", "which store, if there are several")
    .option("--json", "as JSON")
    .action(async (place, options) => (await import("./backup.ts")).verifyBackup(place, options));
  backup
    .command("list")
    .description("List every copy and segment of a place, and which changes can be restored.")
    .argument("<place>", "the folder or s3:// URL of plantstore serve --backup-to")
    .option("--store <id>", "which store, if there are several")
    .option("--json", "as JSON")
    .action(async (place, options) => (await import("./backup.ts")).listBackups(place, options));
  addStore(program.command("restore"))
    .description("Verify a backup, and make it the store. A store that exists is not overwritten.")
    .argument(
      "<file|place|->",
      "a backup, a folder or s3:// URL of serve --backup-to, or - for standard input",
    )
    .option("--at <time>", "from a place: as it was then, as in 2026-11-15T10:00:00Z")
    .option("--at-change <number>", "from a place: as it was after this change")
    .option("--store <id>", "from a place: which store, if there are several")
    .option("--timeline <number>", "from a place: a timeline that an earlier restore abandoned")
    .option("--incomplete", "from a place: although its list lacks what was written last")
    .option("--json", "as JSON")
    .action(load(async () => (await import("./backup.ts")).restore));
  addStore(program.command("check"))
    .description("Verify the store, and print what is in it. The service may be running.")
    .option("--json", "as JSON")
    .action(load(async () => (await import("./check.ts")).check));
  addStore(program.command("migrate"))
    .description("Bring the schema of the store up to date. The service does so when it starts.")
    .option("--dry-run", "print the SQL, and change nothing")
    .action(load(async () => (await import("./check.ts")).migrate));
}

/** The shell asks this program for candidates, so the completion script never goes stale. */
function addCompletion(program: Command): void {
  program
    .command("completion")
    .description("Print a script that completes commands in a shell.")
    .addArgument(new Argument("<shell>", "which shell").choices(Object.keys(scripts)))
    .addHelpText("after", "\ndocs/install.md says where each shell looks for it.")
    .action((shell: keyof typeof scripts) => void process.stdout.write(scripts[shell]));
  program
    .command("complete", { hidden: true })
    // Shells append words that COMP_LINE already contains.
    .argument("[words...]")
    .allowUnknownOption()
    .helpOption(false)
    .action(() => printCandidates(program));
}

/** The shell passes the line in COMP_LINE. Without candidates it completes file names. */
const bashScript = `complete -o default -C "plantstore complete" plantstore\n`;

const scripts = {
  bash: bashScript,
  zsh: `autoload -U +X bashcompinit && bashcompinit\n${bashScript}`,
  fish: `function __plantstore_complete
  set -lx COMP_LINE (commandline -cp)
  plantstore complete
end
complete -c plantstore -a '(__plantstore_complete)'
`,
};

function printCandidates(program: Command): void {
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
