/** Debian's packages, for tests that need programs which npm does not have. */

import { existsSync, rmSync, writeFileSync } from "node:fs";

export const canInstall = (): boolean => process.getuid?.() === 0 && Bun.which("apt-get") !== null;

/** Debian starts a new server at once, unless this program says that it must not. */
const POLICY = "/usr/sbin/policy-rc.d";

/** As root on Debian. False if they could not be installed, with the reason on standard error. */
export function installPackages(...names: readonly string[]): boolean {
  const isOurs = !existsSync(POLICY);
  if (isOurs) writeFileSync(POLICY, "#!/bin/sh\nexit 101\n", { mode: 0o755 });
  try {
    return runAptGet("update") && runAptGet("install", "-y", "--no-install-recommends", ...names);
  } finally {
    if (isOurs) rmSync(POLICY);
  }
}

function runAptGet(...args: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const { success, stderr } = Bun.spawnSync(["apt-get", "-q", ...args], { env, stdout: "ignore" });
  if (!success) process.stderr.write(`apt-get ${args.join(" ")}: ${stderr.toString().trim()}\n`);
  return success;
}
