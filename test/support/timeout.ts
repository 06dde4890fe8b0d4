/**
 * Loaded before every test file (bunfig.toml): gives each test and hook a timeout that only catches hangs. The runtime
 * has no setting for it, and forgets `setDefaultTimeout` after each file. So the call is put in front of every file,
 * on its first line, where it moves no line number.
 */

import { readFileSync } from "node:fs";
import { plugin } from "bun";

const TIMEOUT_MS = 300_000;

const prefix = `import { setDefaultTimeout as setHangTimeout } from "bun:test"; setHangTimeout(${TIMEOUT_MS});`;

plugin({
  name: "test timeout",
  setup: (build) => {
    build.onLoad({ filter: /\.test\.ts$/ }, ({ path }) => ({
      contents: `${prefix} ${readFileSync(path, "utf8")}`,
      loader: "ts",
    }));
  },
});
