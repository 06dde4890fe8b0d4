import { run } from "./cli/program.ts";

// A reader that closes the pipe early, as `head` does, is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") return;
  process.stderr.write(`plantstore: standard output: ${error.message}\n`);
  process.exit(1);
});

void run(process.argv.slice(2)).then((exitCode) => {
  if (exitCode !== undefined) process.exitCode = exitCode;
});
