/** Starts the command line. */

import { run } from "./cli/program.ts";

// Whoever reads our output may have seen enough, as `head` has: that is no failure of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") return;
  process.stderr.write(`plantstore: standard output: ${error.message}\n`);
  process.exit(1);
});

const exitCode = await run(process.argv.slice(2));
if (exitCode !== undefined) process.exitCode = exitCode;
