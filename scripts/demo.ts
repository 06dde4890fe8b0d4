/** npm run demo: the service, full of plants, for a look around. Nothing of it stays. */

import { parseArgs } from "node:util";
import { startDemo } from "./demo-service.ts";

const PLANTS = 3000;

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "8080" },
    quiet: { type: "boolean", default: false },
  },
});
if (!/^\d{1,5}$/.test(values.port)) {
  process.stderr.write("--port: expected a number\n");
  process.exit(2);
}

const demo = await startDemo({ port: values.port, plants: PLANTS });
const stopping = new AbortController();
const bustling = values.quiet ? Promise.resolve() : demo.bustle(stopping.signal);

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.on(signal, () => void stop());

process.stdout.write(`
  Plant Store with ${PLANTS.toLocaleString("en")} plants, to look around in

  Console    ${demo.hasConsole ? `${demo.url}/` : "not built: npm run build"}
  Reference  ${demo.url}/docs
  Token      ${demo.token}

  ${values.quiet ? "Nothing happens by itself." : "Plants keep coming in, so that there is something to see."} Ctrl-C ends it, and nothing stays.

`);

/** A terminal tells npm and us, and npm tells us again: once is enough. */
async function stop(): Promise<void> {
  if (stopping.signal.aborted) return;
  stopping.abort();
  // A request that the end cuts off is no news any more.
  await bustling.catch(() => undefined);
  await demo[Symbol.asyncDispose]();
  process.exit(0);
}
