/** The commands that move plants in bulk: their flags and their help. What they do is loaded when it is asked for. */

import { type Command, Option } from "commander";
import type { CopyOptions } from "./copy.ts";
import type { ExportOptions } from "./export.ts";
import type { ImportOptions } from "./import.ts";
import { addSettings, resolveOptions } from "./options.ts";

const formats = ["ndjson", "json", "csv"];
const URL_FLAG = "--url <url>";
const URL_MEANING = "a running service instead of the store; its token comes from PLANTSTORE_TOKEN";
const QUIET_MEANING = "no progress on the terminal";

export function addTransferCommands(program: Command): void {
  addImport(program.command("import"));
  addExport(program.command("export"));
  addCopy(program.command("copy"));
}

function addImport(command: Command): void {
  addSettings(command, ["databaseUrl"])
    .description("Store the plants of a file; those that are stored already are left as they are.")
    .argument("<file|->", "an .ndjson, .jsonl, .json, .csv or .tsv file, or - for standard input")
    .addOption(
      new Option("--format <format>", "what the file holds (default: by its name)").choices(
        formats,
      ),
    )
    .option("--map <fields>", "headings of CSV columns, as in id=Nr,name=Plant,tag=Type")
    .addOption(
      new Option("--delimiter <sign>", "what separates CSV cells (default: a comma)").choices([
        ",",
        ";",
        "|",
        "tab",
      ]),
    )
    .option(URL_FLAG, URL_MEANING)
    .option("--rejects <file>", "write the refused records there, with reasons, as NDJSON")
    .option("--json", "the summary as JSON")
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", IMPORT_HELP)
    .action(async (path: string, options: ImportOptions) => {
      const { config } = resolveOptions({ ...options });
      const { importPlants } = await import("./import.ts");
      await importPlants(config, path, options);
    });
}

const IMPORT_HELP = `
A bad record is refused alone, and the rest goes on. An import that was interrupted, or failed, is
simply run again: what is stored is recognised, and counted as replayed.

Formats: ndjson (one plant a line), json (an array of plants), csv (with a heading; an empty tag cell
is no tag, and one of two quotes is the empty tag). All in UTF-8. A record may be as large as a
request body (PLANTSTORE_BODY_BYTES_MAX).

Exit codes:
  0    everything is stored, now or before
  1    failed before the end; the message says how many are stored
  2    not understood
  3    finished, but records were refused
  130  interrupted by Ctrl-C; the summary says how far it came

Examples:
  plantstore import plants.ndjson
  plantstore import spring.csv --map id=Nr,name=Plant,tag=Type --rejects refused.ndjson
  zcat plants.ndjson.gz | plantstore import - --format ndjson --url http://127.0.0.1:8080`;

function addExport(command: Command): void {
  addSettings(command, ["databaseUrl"])
    .description("Write all plants, or those that are asked for, in the order of their ids.")
    .addOption(
      new Option(
        "--format <format>",
        "what to write (default: by the name of --output, or else ndjson)",
      ).choices(formats),
    )
    .option("--tag <tag>", "only plants with exactly this tag")
    .option("--name <part>", "only plants with this in their name, in any case")
    .option("--output <file>", "a file instead of standard output; it appears when it is complete")
    .option("--force", "replace the file of --output")
    .option(URL_FLAG, URL_MEANING)
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", EXPORT_HELP)
    .action(async (options: ExportOptions) => {
      const { config } = resolveOptions({ ...options });
      const { exportPlants } = await import("./export.ts");
      await exportPlants(config, options);
    });
}

const EXPORT_HELP = `
What is written, plantstore import reads again without a difference. In CSV, a cell that a
spreadsheet would run as a formula has an apostrophe in front, which import takes off.

Exit codes: 0 all written, 1 failed, 2 not understood, 130 interrupted by Ctrl-C.

Examples:
  plantstore export --output plants.csv
  plantstore export --tag tropical --url https://plants.example | gzip > tropical.ndjson.gz`;

function addCopy(command: Command): void {
  command
    .summary("Copy a store into another, and verify the copy.")
    .description("Copy all plants and tokens of a store into another, and verify the copy.")
    .option("--from <url>", "the store to copy, which is not changed (default: DATABASE_URL)")
    .option(
      "--to <url>",
      "the store to copy into, made where there is none (default: DATABASE_URL)",
    )
    .option(
      "--force",
      "make the target equal: replace and remove plants that are not as in the source",
    )
    .option("--json", "the summary as JSON")
    .option("--quiet", QUIET_MEANING)
    .addHelpText("after", COPY_HELP)
    .action(async (options: CopyOptions) => {
      const { copyStore } = await import("./copy.ts");
      await copyStore(options);
    });
}

const COPY_HELP = `
One of the two may be left out: DATABASE_URL stands in for it, and keeps a password off the command
line, where others on the machine can see it.

A copy that was interrupted, or failed, is simply run again: what the target has is recognised, and
not written. Without --force nothing that the target has is changed; where it has other plants, they
are counted, and the first few are named. Tokens are copied as they are and go on working; what
either store has revoked is revoked in the target, whose own tokens stay.

In the end both stores are read anew, and compared by count and checksum. To lose nothing, stop the
service, copy, and start it on the new store. A copy made before, while it runs, makes that one short.

Exit codes:
  0    the target has the same plants, and all the tokens
  1    failed before the end, or someone wrote to a store meanwhile: run it again
  2    not understood
  3    finished, but the target has plants or tokens that are different, which were left alone
  130  interrupted by Ctrl-C; the message says how far it came

Examples:
  plantstore copy --from sqlite:./data/plants.db --to sqlite:/mnt/new/plants.db
  DATABASE_URL=postgres://… plantstore copy --from sqlite:./data/plants.db`;
