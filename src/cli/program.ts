/** The command line: every command, its flags and its help. */

import { Argument, Command, CommanderError, Option } from "commander";
import packageJson from "../../package.json";
import {
  type Config,
  type Limits,
  type Resolved,
  resolveConfig,
  type Setting,
  type SettingName,
  settings,
} from "../config.ts";
import { plantScopes, scopes } from "../domain/token.ts";
import { changeTypes } from "../domain/change.ts";
import { encodings } from "../format/encoding.ts";
import type { TransferOptions } from "./backup.ts";
import { printCandidates, printCompletion, shells } from "./completion.ts";
import { EXIT_USAGE, exitCodeOf, explain } from "./command.ts";
import type { ChangesOptions } from "./changes.ts";
import type { CopyOptions } from "./copy.ts";
import type { ExportOptions } from "./export.ts";
import type { ImportOptions } from "./import.ts";
import { printError, printTable } from "./terminal.ts";
import type { CreateOptions, TokenOptions } from "./token.ts";
import type { WebhookAction, WebhookOptions } from "./webhook.ts";

/** Runs the command that the arguments name. Resolves to an exit code, or to undefined if the process goes on. */
export async function run(args: readonly string[]): Promise<number | undefined> {
  try {
    await createProgram().parseAsync(args, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has printed its message, or the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    printError(explain(error));
    return exitCodeOf(error);
  }
}

type Options = Readonly<Record<string, unknown>>;

const formats = ["ndjson", "json", "csv"];
const delimiters = [",", ";", "|", "tab"];
const URL_MEANING = "a running service instead of the store; its token comes from PLANTSTORE_TOKEN";
const QUIET_MEANING = "no progress on the terminal";

const choice = (flag: string, meaning: string, choices: readonly string[]): Option =>
  new Option(flag, meaning).choices(choices);

/** The first sentence. */
const summaryOf = (command: Command): string =>
  /^.*?\.(?=\s|$)/.exec(command.description())?.[0] ?? command.description();

function createProgram(): Command {
  const program = new Command("plantstore")
    .description("A plant store over HTTP: exact, durable, safe to retry.")
    .version(packageJson.version)
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError("See --help.")
    .configureHelp({ subcommandDescription: summaryOf })
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, "plantstore: ")),
    })
    .addHelpText("after", PROGRAM_HELP);
  // What a command needs is loaded when it runs, so the service does not pay for the others.
  addSettings(program.command("serve"))
    .description("Run the service.")
    .addHelpText(
      "after",
      "\nPLANTSTORE_TOKEN, in the environment only, is a token with all scopes.",
    )
    .action(async (options: Options) => (await import("./serve.ts")).serve(configOf(options)));
  addSettings(program.command("config"))
    .description("Print the settings in effect, with secrets masked.")
    .option("--json", "as JSON")
    .action((options: Options) => printConfig(resolveOptions(options), options["json"] === true));
  addSettings(program.command("health"), ["host", "port", "basePath"])
    .description("Ask a running service whether it is ready. Exits with 1 if it is not.")
    .option("--wait <seconds>", "how long to wait until it is", "0")
    .action(async (options: Options) =>
      (await import("./check.ts")).checkHealth(configOf(options), String(options["wait"])),
    );
  program
    .command("version")
    .description("Print the version.")
    .action(() => void process.stdout.write(`${packageJson.version}\n`));
  addImport(program.command("import"));
  addExport(program.command("export"));
  addChanges(program.command("changes"));
  addCopy(program.command("copy"));
  addTokenCommands(program.command("token").description("Create, list and revoke tokens."));
  addWebhookCommands(program.command("webhook").description("Tell other systems of changes."));
  addStoreCommands(program);
  addCompletion(program);
  return program;
}

const PROGRAM_HELP = `
Settings come from flags, then the environment, then defaults; see: plantstore serve --help
Exit codes: 0 done, 1 failed, 2 not understood, 3 finished, but records were refused
            or stores differ, 130 and 143 interrupted.`;

/** Adds the flags of these settings; of all settings by default. */
function addSettings(
  command: Command,
  names: readonly SettingName[] = Object.keys(settings) as SettingName[],
): Command {
  for (const name of names) {
    const { flag, env, meaning, default: fallback }: Setting<unknown> = settings[name];
    if (flag === undefined) continue;
    const described = `${meaning} (${env}; default ${fallback === "" ? "none" : fallback})`;
    const isSwitch = fallback === "false";
    const option = new Option(`${flag} ${isSwitch ? "[value]" : "<value>"}`, described);
    command.addOption(isSwitch ? option.preset("true") : option);
  }
  return command;
}

/** For commands that work on a store or through a service. */
const addTarget = (command: Command): Command =>
  addSettings(command, ["databaseUrl"]).option("--url <url>", URL_MEANING);

let injectedLimits: Partial<Limits> = {};

/** For tests, which cannot wait as long as a client may. */
export function injectLimits(limits: Partial<Limits>): void {
  injectedLimits = limits;
}

function resolveOptions(options: object): Resolved {
  const flags: Partial<Record<SettingName, string>> = {};
  for (const name of Object.keys(settings) as SettingName[]) {
    const value = (options as Options)[name];
    if (typeof value === "string") flags[name] = value;
  }
  return resolveConfig(flags, process.env, injectedLimits);
}

const configOf = (options: object): Config => resolveOptions(options).config;

function printConfig({ config, sources }: Resolved, isJson: boolean): void {
  const entries = Object.entries(settings) as [SettingName, Setting<unknown>][];
  const rows = entries.map(([name, { env, secret, mask = (shown: string) => shown }]) => {
    const value: unknown = config[name];
    const text = Array.isArray(value)
      ? value.join(",")
      : String((value as string | number | undefined) ?? "");
    const isHidden = secret && value !== undefined;
    return { setting: env, value: isHidden ? "********" : mask(text), source: sources[name] };
  });
  if (isJson) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  else
    printTable(
      ["SETTING", "VALUE", "FROM"],
      rows.map((row) => Object.values(row)),
    );
}

function addImport(command: Command): void {
  addTarget(command)
    .description("Store the plants of a file. Plants that are stored already are left as they are.")
    .argument(
      "<file|->",
      "an .ndjson, .jsonl, .json, .csv, .tsv or .xlsx file, or - for standard input",
    )
    .addOption(
      choice("--format <format>", "the format of the file (default: by its name)", [
        ...formats,
        "xlsx",
      ]),
    )
    .option("--map <fields>", "headings of columns, as in id=Nr,name=Plant,tag=Type")
    .option("--sheet <name>", "the sheet of a workbook (default: the first)")
    .addOption(
      choice("--delimiter <sign>", "what separates CSV cells (default: a comma)", delimiters),
    )
    .addOption(
      choice("--encoding <encoding>", "how the file is encoded (default: detected)", encodings),
    )
    .option(
      "--rejects <file>",
      "write the refused records there, with reasons, to mend and import again; - for standard output",
    )
    .option("--force", "replace the file of --rejects")
    .option("--json", "the summary as JSON")
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", IMPORT_HELP)
    .action(async (path: string, options: ImportOptions) =>
      (await import("./import.ts")).importPlants(configOf(options), path, options),
    );
}

const IMPORT_HELP = `
A bad record is refused alone, and the rest goes on. After an interruption or a failure, run the
import again: plants that are stored already are recognised and counted as replayed.

--rejects keeps the refused records as they are, in the format of the file, with two more columns or
members in front: line and reason. Mend them there and import that file; both are ignored.

Formats: ndjson (one plant on each line), json (an array of plants), csv (with a heading; an empty
tag cell is no tag, and a pair of quotes is the empty tag), xlsx (a sheet of a workbook, read like
CSV; its refused rows are kept as CSV; a number of more than 15 digits is refused, because the
spreadsheet has rounded it: format the column as text). A record may be as large as a request
body (PLANTSTORE_BODY_BYTES_MAX). UTF-8 and UTF-16 are recognised; another encoding is refused until
--encoding names it.

Exit codes:
  0    every plant is stored, now or before
  1    failed before the end; the message says how many are stored
  2    not understood
  3    finished, but records were refused
  130  interrupted by Ctrl-C; the summary says how far it came

Examples:
  plantstore import plants.ndjson
  plantstore import spring.csv --map id=Nr,name=Plant,tag=Type --rejects refused.csv
  zcat plants.ndjson.gz | plantstore import - --format ndjson --url http://127.0.0.1:8080`;

function addExport(command: Command): void {
  addTarget(command)
    .description("Write all plants, or those that match, by ascending id.")
    .addOption(
      choice(
        "--format <format>",
        "what to write (default: by the name of --output, or else ndjson)",
        formats,
      ),
    )
    .option("--tag <tag>", "only plants with exactly this tag")
    .option("--name <part>", "only plants with this in their name, in any case")
    .option(
      "--output <file>",
      "a file that appears when it is complete; - for standard output, the default",
    )
    .option("--force", "replace the file of --output")
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", EXPORT_HELP)
    .action(async (options: ExportOptions) =>
      (await import("./export.ts")).exportPlants(configOf(options), options),
    );
}

const EXPORT_HELP = `
plantstore import reads the file again without a difference. In CSV, a cell that a spreadsheet would
run as a formula has an apostrophe in front, which import removes.

Exit codes: 0 all written, 1 failed, 2 not understood, 130 interrupted by Ctrl-C.

Examples:
  plantstore export --output plants.csv
  plantstore export --tag tropical --url https://plants.example | gzip > tropical.ndjson.gz`;

function addChanges(command: Command): void {
  addTarget(command)
    .description("Print what was created, replaced and removed, in the order of the commits.")
    .option("--after <number>", "only changes after this number")
    .option("--follow", "go on with changes as they are made")
    .option("--json", "as JSON, one change on each line")
    .addHelpText("after", CHANGES_HELP)
    .action(async (options: ChangesOptions) => {
      const { printChanges } = await import("./changes.ts");
      await printChanges(resolveOptions(options).config, options);
    });
}

const CHANGES_HELP = `
Without --after it begins with the oldest change that is kept (PLANTSTORE_CHANGES_DAYS). If the
changes after that number are not kept any more, the command fails and says where to start again.

Exit codes: 0 all printed, 1 failed, 2 not understood, 130 interrupted by Ctrl-C.

Examples:
  plantstore changes --json
  plantstore changes --follow --after 1767225605000000 --url https://plants.example`;

function addCopy(command: Command): void {
  command
    .description("Copy all plants and tokens of a store into another, and verify the copy.")
    .option("--from <url>", "the store to copy, which is not changed (default: DATABASE_URL)")
    .option("--to <url>", "the store to copy into, created if missing (default: DATABASE_URL)")
    .option("--json", "the summary as JSON")
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", COPY_HELP)
    .action(async (options: CopyOptions) =>
      (await import("./copy.ts")).copyStore(options, (databaseUrl) => configOf({ databaseUrl })),
    );
}

const COPY_HELP = `
DATABASE_URL stands in for the one that is left out. It keeps a password off the command line, where
other users of the machine can see it.

Stop the service, copy, and start it on the new store. Nothing in the target is ever replaced: a
different plant under one of the ids ends the copy and is named. Tokens are copied as they are and
go on working; a token that either store has revoked is revoked in the target. At the end both
stores are read again and compared by count and checksum. After an interruption or a failure, run
the copy again: it continues.

Exit codes:
  0    the target holds the same plants, and all tokens
  1    failed before the end, or a store was written to during the copy: run it again
  2    not understood
  3    the target holds a different plant, more plants, or tokens that cannot be used
  130  interrupted by Ctrl-C; the message says how far it came

Examples:
  plantstore copy --from sqlite:./data/plants.db --to sqlite:/mnt/new/plants.db
  DATABASE_URL=postgres://… plantstore copy --from sqlite:./data/plants.db`;

function addTokenCommands(token: Command): void {
  addTarget(token.command("create"))
    .description("Create a token and print it, this once.")
    .requiredOption("--name <name>", "its name, unique among the tokens in use")
    .option(
      "--scopes <scopes>",
      `what it may do, out of ${scopes.join(",")}`,
      plantScopes.join(","),
    )
    .option(
      "--expires <time>",
      "when it stops working: in seconds, minutes, hours or days, as in 90d, or on a date (UTC), as in 2030-01-31 (default: never)",
    )
    .option(
      "--rate <rate>",
      "requests and batch lines that it may send, as in 100/s, 6000/min or none (default: PLANTSTORE_RATE_LIMIT)",
    )
    .option("--json", "as JSON, with its facts")
    .action(async (options: CreateOptions) =>
      (await import("./token.ts")).createToken(configOf(options), options),
    );
  addTarget(token.command("list"))
    .description("List the tokens: names, scopes, times, and the prefix of each.")
    .option("--json", "as JSON")
    .action(async (options: TokenOptions) =>
      (await import("./token.ts")).listTokens(configOf(options), options),
    );
  addTarget(token.command("revoke"))
    .description("Revoke a token. Running services refuse it within 5 seconds.")
    .argument("<name|prefix>", "which token")
    .action(async (nameOrPrefix: string, options: TokenOptions) =>
      (await import("./token.ts")).revokeToken(configOf(options), nameOrPrefix, options),
    );
}

/** Those that are about one webhook. */
const webhookCommands: readonly [WebhookAction, string][] = [
  ["remove", "Remove a webhook. What it has not been sent is not sent any more."],
  ["test", "Send one event to a webhook now, and show the answer. Exits with 1 if it is not 2xx."],
  ["pause", "Send nothing until the webhook is resumed."],
  ["resume", "Go on where the webhook was, at once."],
  ["replay", "Send the changes after a number again, in order."],
  ["rotate", "Give a webhook a new secret and print it. For 24 hours the old one signs too."],
];

function addWebhookCommands(webhook: Command): void {
  const add = (name: string, description: string): Command =>
    addTarget(webhook.command(name).description(description)).option("--json", "as JSON");
  add("add", "Send every change from now on to a URL. Prints the secret that signs, this once.")
    .argument("<target>", "the URL, as in https://shop.example/plants")
    .option("--name <name>", "its name (default: the host of the URL)")
    .option("--types <types>", `which changes, out of ${changeTypes.join(",")} (default: all)`)
    .action(async (target: string, options: WebhookOptions) =>
      (await import("./webhook.ts")).addWebhook(configOf(options), target, options),
    );
  add("list", "List the webhooks, and how their last attempts went.").action(
    async (options: WebhookOptions) =>
      (await import("./webhook.ts")).listWebhooks(configOf(options), options),
  );
  const from = "the last change that it needs no more; 0 for all that are kept, newest for none";
  for (const [action, description] of webhookCommands) {
    const command = add(action, description).argument("<name>", "which webhook");
    if (action === "replay") command.requiredOption("--from <number>", from);
    command.action(async (name: string, options: WebhookOptions) =>
      (await import("./webhook.ts")).changeWebhook(configOf(options), action, name, options),
    );
  }
}

function addCompletion(program: Command): void {
  program
    .command("completion")
    .description("Print a script that completes commands in a shell.")
    .addArgument(new Argument("<shell>", "which shell").choices(shells))
    .addHelpText("after", COMPLETION_HELP)
    .action((shell: (typeof shells)[number]) => printCompletion(shell));
  program
    .command("complete", { hidden: true })
    .argument("[words...]")
    .action((words: readonly string[]) => printCandidates(program, words));
}

const COMPLETION_HELP = `
Run it whenever a shell starts:
  bash  add to ~/.bashrc: source <(plantstore completion bash)
  zsh   add to ~/.zshrc, below compinit: source <(plantstore completion zsh)
  fish  plantstore completion fish > ~/.config/fish/completions/plantstore.fish`;

function addStoreCommands(program: Command): void {
  const backup = addSettings(program.command("backup"), ["databaseUrl"])
    .description("Copy the store into a file, and verify the copy. The service may be running.")
    .argument("<file|->", "a file that does not exist yet, or - for standard output")
    .option("--json", "as JSON")
    .action(async (file: string, options: TransferOptions) =>
      (await import("./backup.ts")).backUp(configOf(options), file, options),
    );
  backup
    .enablePositionalOptions()
    .command("verify")
    .description(
      "Restore the newest backup that plantstore serve --backup-to made in a folder into a temporary place (TMPDIR), and compare every row.",
    )
    .argument("<folder>", "the folder of --backup-to")
    .option("--json", "as JSON")
    .action(async (folder: string, options: TransferOptions) =>
      (await import("./backup.ts")).verifyBackup(folder, options),
    );
  addSettings(program.command("restore"), ["databaseUrl"])
    .description(
      "Verify a backup, and make it the store. A store that exists is not overwritten: move it away first, or name another with --database-url.",
    )
    .argument("<file|->", "the backup, or - for standard input")
    .option("--json", "as JSON")
    .action(async (file: string, options: TransferOptions) =>
      (await import("./backup.ts")).restore(configOf(options), file, options),
    );
  addSettings(program.command("check"), ["databaseUrl"])
    .description("Verify the store, and print what is in it. The service may be running.")
    .option("--json", "as JSON")
    .action(async (options: Options) =>
      (await import("./check.ts")).check(configOf(options), options["json"] === true),
    );
  addSettings(program.command("migrate"), ["databaseUrl"])
    .description(
      "Bring the schema of the store up to date. The service does this when it starts, if its database user may.",
    )
    .option("--dry-run", "print the SQL, and change nothing")
    .action(async (options: Options) =>
      (await import("./check.ts")).migrate(configOf(options), options["dryRun"] === true),
    );
}
