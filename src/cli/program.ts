/** The command line: every command, its flags and its help. */

import { Command, CommanderError } from "commander";
import packageJson from "../../package.json";
import { scopes } from "../domain/token.ts";
import { showConfig } from "./config.ts";
import { EXIT_USAGE, exitCodeOf, explain } from "./failure.ts";
import { addSettings, resolveOptions } from "./options.ts";
import { serve } from "./serve.ts";
import { addStoreCommands } from "./store-commands.ts";
import { createToken, listTokens, revokeToken } from "./token.ts";
import { addTransferCommands } from "./transfer-commands.ts";

/** Runs the command that the arguments name, and resolves to the code to exit with, if it is time to. */
export async function run(args: readonly string[]): Promise<number | undefined> {
  try {
    await createProgram().parseAsync(args, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has printed its message, or the help that was asked for, already.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    process.stderr.write(`plantstore: ${explain(error)}\n`);
    return exitCodeOf(error);
  }
}

function createProgram(): Command {
  const program = new Command("plantstore")
    .description("A plant store over HTTP: exact, durable, safe to retry.")
    .version(packageJson.version)
    .exitOverride()
    .showHelpAfterError("See --help.")
    .configureHelp({ showGlobalOptions: false })
    .addHelpText(
      "after",
      "\nSettings come from flags, then the environment, then defaults; see: plantstore serve --help\n" +
        "Exit codes: 0 done, 1 failed, 2 not understood, 3 finished, but records were refused,\n" +
        "            or stores differ, 130 and 143 interrupted.",
    );

  addSettings(program.command("serve").description("Run the service."))
    .addHelpText(
      "after",
      "\nPLANTSTORE_TOKEN, in the environment only, is a token with all scopes.",
    )
    .action(async (options: Record<string, unknown>) => serve(resolveOptions(options).config));

  addSettings(
    program.command("config").description("Print the effective settings, secrets masked."),
  )
    .option("--json", "as JSON")
    .action((options: Record<string, unknown>) =>
      showConfig(resolveOptions(options), options["json"] === true),
    );

  addTransferCommands(program);
  addTokenCommands(program.command("token").description("Make, list and revoke tokens."));
  addStoreCommands(program);
  return program;
}

function addTokenCommands(token: Command): void {
  addSettings(token.command("create"), ["databaseUrl"])
    .description("Make a token and print it, this once.")
    .requiredOption("--name <name>", "what to call it, unique among the tokens in use")
    .option("--scopes <scopes>", `what it may do, out of ${scopes.join(",")}`, scopes.join(","))
    .option(
      "--expires <time>",
      "when it stops working: minutes, hours or days, as in 90d (default: never)",
    )
    .action((options: { name: string; scopes: string; expires?: string }) =>
      createToken(resolveOptions({ ...options }).config, options),
    );

  addSettings(token.command("list"), ["databaseUrl"])
    .description("List the tokens: names, scopes, times, and a prefix to recognise each by.")
    .option("--json", "as JSON")
    .action((options: Record<string, unknown>) =>
      listTokens(resolveOptions(options).config, options["json"] === true),
    );

  addSettings(token.command("revoke"), ["databaseUrl"])
    .description("Revoke a token; running services refuse it within 5 seconds.")
    .argument("<name|prefix>", "which one")
    .action((nameOrPrefix: string, options: Record<string, unknown>) =>
      revokeToken(resolveOptions(options).config, nameOrPrefix),
    );
}
