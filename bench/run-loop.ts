/** Runs a program on the server's core that works on a store without a service; see loops.ts. */

import { join } from "node:path";
import { SERVER_CORE } from "./settings.ts";

/** How many rows a second it managed. */
export async function runLoop(...args: readonly string[]): Promise<number> {
  const child = Bun.spawn(
    ["taskset", "-c", SERVER_CORE, process.execPath, join(import.meta.dir, "loops.ts"), ...args],
    { stdout: "pipe", stderr: "inherit" },
  );
  const output = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`loops.ts ${args.join(" ")} failed`);
  return (JSON.parse(output) as { perSecond: number }).perSecond;
}
