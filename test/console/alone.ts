/**
 * Imports files of the console in a process that has no page, and prints what they do when they are imported: the
 * globals of a page that they look at, and the effects that they start.
 */

import * as signals from "@preact/signals";

const did: string[] = [];

/** With the file that did it. */
function note(what: string): void {
  const [, file = ""] = /(?<!test)\/console\/([^:]+)/.exec(new Error().stack ?? "") ?? [];
  did.push(`${file}: ${what}`);
}

Bun.plugin({
  name: "effects",
  setup: (build) =>
    void build.module("@preact/signals", () => ({
      exports: { ...signals, effect: () => note("effect") },
      loader: "object",
    })),
});

const globals =
  "window document location history navigator localStorage sessionStorage addEventListener matchMedia fetch Worker " +
  "BroadcastChannel WebSocket setTimeout setInterval requestAnimationFrame";
for (const name of globals.split(" "))
  Object.defineProperty(globalThis, name, { get: () => note(name) });

for (const file of process.argv.slice(2))
  await import(file).catch((error: unknown) => did.push(`${file}: ${String(error)}`));
process.stdout.write(JSON.stringify(did));
