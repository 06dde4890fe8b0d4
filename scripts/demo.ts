/** npm run demo: a service full of plants to look around in. It leaves nothing behind. */

import { parseArgs } from "node:util";
import { startDemo } from "./demo-service.ts";

const PLANTS = 3000;

const { values } = parseArgs({
  options: {
    port: { type: "string", default: process.env["PORT"] ?? "8080" },
    quiet: { type: "boolean", default: false },
  },
});
if (!/^\d{1,5}$/.test(values.port)) {
  process.stderr.write("plantstore: --port or PORT: expected a number\n");
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

  ${values.quiet ? "There is no traffic." : "The demo sends some traffic."} Ctrl-C stops it and removes everything.

`);

/** Ctrl-C arrives twice: from the terminal, and forwarded by npm. */
async function stop(): Promise<void> {
  if (stopping.signal.aborted) return;
  stopping.abort();
  // Requests in flight fail when the service stops.
  await bustling.catch(() => undefined);
  await demo[Symbol.asyncDispose]();
  process.exit(0);
}
