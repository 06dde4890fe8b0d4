import { run } from "./cli/program.ts";
import { failOutput } from "./cli/terminal.ts";

const args = process.argv.slice(2);

// The service avoids the runtime's streams: loading them delays its first answer.
const isHelp = args.includes("--help") || args.includes("-h");
if (args[0] !== "serve" || isHelp) process.stdout.on("error", failOutput);

void run(args).then((exitCode) => {
  if (exitCode !== undefined) process.exitCode = exitCode;
});
