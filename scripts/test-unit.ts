/** Runs the tests that start no service, database, browser or other process, wherever they are: seconds, not minutes. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");

/** What a unit test may import from test/support/. Other modules there, and those beside a test, start something. */
const QUIET = "arbitrary|expect|folder|history|limits|long|oracle|plants|random|samples|workbook";
const STARTS = new RegExp(
  `support/(?!(?:${QUIET})\\.ts")[\\w-]+\\.ts"|from "\\./(?!support/)|\\bBun\\.(?:spawn|spawnSync|serve|listen)\\(`,
);

const isUnit = (file: string): boolean => !STARTS.test(readFileSync(join(root, file), "utf8"));
const files = [...new Glob("test/**/*.test.ts").scanSync(root)].filter(isUnit).toSorted();

const { exitCode } = Bun.spawnSync(
  [process.execPath, "test", "--parallel=2", "--no-isolate", ...files.map((file) => `./${file}`)],
  { cwd: root, stdio: ["ignore", "inherit", "inherit"] },
);
process.exitCode = exitCode;
