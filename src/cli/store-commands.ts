/** The commands that look after a store as a whole: backup, restore, check, migrate. */

import type { Command } from "commander";
import { addSettings, resolveOptions } from "./options.ts";

/** Each loaded when it is asked for, so that the service does not pay for them. */
export function addStoreCommands(program: Command): void {
  addSettings(program.command("backup"), ["databaseUrl"])
    .summary("Copy the store into a file, and verify the copy.")
    .description("Copy the store into a file, and verify the copy. The service may be running.")
    .argument("<file>", "a file that does not exist yet")
    .option("--json", "as JSON")
    .action(async (file: string, options: Record<string, unknown>) => {
      const { backUp } = await import("./backup.ts");
      await backUp(resolveOptions(options).config, file, options);
    });

  addSettings(program.command("restore"), ["databaseUrl"])
    .summary("Verify a backup, and make it the store.")
    .description(
      "Verify a backup, and make it the store. A store that exists is not overwritten: move it away first, or name another with --database-url.",
    )
    .argument("<file>", "the backup")
    .option("--json", "as JSON")
    .action(async (file: string, options: Record<string, unknown>) => {
      const { restore } = await import("./restore.ts");
      await restore(resolveOptions(options).config, file, options);
    });

  addSettings(program.command("check"), ["databaseUrl"])
    .summary("Verify the store, and say what is in it.")
    .description("Verify the store, and say what is in it. The service may be running.")
    .option("--json", "as JSON")
    .action(async (options: Record<string, unknown>) => {
      const { check } = await import("./check.ts");
      await check(resolveOptions(options).config, options["json"] === true);
    });

  addSettings(program.command("migrate"), ["databaseUrl"])
    .summary("Bring the schema of the store up to date.")
    .description(
      "Bring the schema of the store up to date. The service does it by itself at its start, where its user may.",
    )
    .option("--dry-run", "print the SQL, and change nothing")
    .action(async (options: Record<string, unknown>) => {
      const { migrate } = await import("./migrate.ts");
      await migrate(resolveOptions(options).config, options);
    });
}
