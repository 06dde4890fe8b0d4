/**
 * Loaded before every test file (bunfig.toml): gives each test and hook a timeout that only catches hangs, and the
 * file itself, which the runtime would wait for without end. The runtime has no setting for it, and forgets
 * `setDefaultTimeout` after each file. So the calls are put around every file, on its first line and behind its last,
 * where they move no line number.
 */

import { readFileSync } from "node:fs";
import { plugin } from "bun";

const TIMEOUT_MS = 300_000;

/** The runner counts the file as failed and continues with the next one in a new process, if it has several. */
const giveUp = (path: string): string =>
  `() => { console.error(${JSON.stringify(`${path}: not loaded after ${TIMEOUT_MS / 1_000} s`)}); process.exit(1); }`;

/** A file that fails while it loads leaves its timer to the next one. */
const before = (path: string): string =>
  `import { setDefaultTimeout as setHangTimeout } from "bun:test"; setHangTimeout(${TIMEOUT_MS}); ` +
  `${STOP} globalThis.hangTimer = setTimeout(${giveUp(path)}, ${TIMEOUT_MS}); `;

const STOP = "clearTimeout(globalThis.hangTimer);";

plugin({
  name: "test timeout",
  setup: (build) => {
    build.onLoad({ filter: /\.test\.ts$/ }, ({ path }) => ({
      contents: `${before(path)}${readFileSync(path, "utf8")}\n${STOP}\n`,
      loader: "ts",
    }));
  },
});
