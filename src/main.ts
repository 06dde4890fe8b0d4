import { run } from "./cli/program.ts";
import { failOutput } from "./cli/terminal.ts";

const args = process.argv.slice(2);

// The service avoids the runtime's streams: loading them takes 1/8 of the time to its first answer.
if (args[0] !== "serve") process.stdout.on("error", failOutput);

void run(args).then((exitCode) => {
  if (exitCode !== undefined) process.exitCode = exitCode;
});
