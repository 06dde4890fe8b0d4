/** A Chromium to test with: one that is named, one that is here, or Debian's. */

import { existsSync } from "node:fs";
import { canInstall, installPackages } from "./packages.ts";
import { runSync } from "./processes.ts";

/** Chromium without the parts for windows: a page costs it two thirds of the CPU time. */
const SHELL = "chromium-headless-shell";
const commands = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const applications = ["Chromium", "Google Chrome"].map(
  (name) => `/Applications/${name}.app/Contents/MacOS/${name}`,
);

let sought: { readonly path: string | undefined } | undefined;

/** The program's path. Where there is none and none can be installed, says so, and that once. */
export function findChromium(): string | undefined {
  sought ??= { path: findNamed() ?? findInstalled() ?? install() };
  return sought.path;
}

/** What the tester has named has to be there: another in its place would be a surprise. */
function findNamed(): string | undefined {
  const path = process.env["PLANTSTORE_CHROMIUM"] || undefined;
  if (path !== undefined && !runs(path))
    throw new Error(`PLANTSTORE_CHROMIUM: ${path} does not run`);
  return path;
}

function findInstalled(): string | undefined {
  const isVisible = process.env["PLANTSTORE_TEST_VISIBLE"] === "true";
  const own = isVisible ? commands : [SHELL, ...commands];
  const paths = [...own.map((command) => Bun.which(command)), ...applications];
  return paths.find((path): path is string => path !== null && existsSync(path) && runs(path));
}

/** Ubuntu has a command of this name that does nothing but ask for another installation. */
function runs(path: string): boolean {
  try {
    return runSync([path, "--version"], { stdout: "ignore", stderr: "ignore" }).success;
  } catch {
    return false;
  }
}

function install(): string | undefined {
  if (canInstall()) {
    process.stderr.write("\nNo Chromium is here: installing the distribution's.\n");
    // Not every distribution has the shell.
    for (const name of [SHELL, "chromium"]) {
      const path = installPackages(name) ? findInstalled() : undefined;
      if (path !== undefined) return path;
    }
  }
  process.stderr.write(
    "\nTHE BROWSER TESTS ARE SKIPPED: no Chromium is here, and none can be installed.\n" +
      "Install one (on Debian: apt-get install chromium), or set PLANTSTORE_CHROMIUM to its path.\n",
  );
  return undefined;
}
