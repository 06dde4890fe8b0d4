/** Debian's packages, for tests that need programs which npm does not have. */

import { existsSync, rmSync, writeFileSync } from "node:fs";

export const canInstall = (): boolean => process.getuid?.() === 0 && Bun.which("apt-get") !== null;

/** Debian starts a new server at once, unless this program says that it must not. */
const POLICY = "/usr/sbin/policy-rc.d";

/** Held by one test process at a time: apt-get refuses to run twice at once. */
const LOCK = "/tmp/plantstore-test-packages.lock";

/** As root on Debian. False if they could not be installed, with the reason on standard error. */
export function installPackages(...names: readonly string[]): boolean {
  const isOurs = !existsSync(POLICY);
  if (isOurs) writeFileSync(POLICY, "#!/bin/sh\nexit 101\n", { mode: 0o755 });
  try {
    const install =
      'apt-get -q update && apt-get -q install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"';
    const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
    const command = ["flock", LOCK, "sh", "-c", install, "sh", ...names];
    const { success, stderr } = Bun.spawnSync(command, { env, stdout: "ignore" });
    if (!success) process.stderr.write(`apt-get: ${stderr.toString().trim()}\n`);
    return success;
  } finally {
    if (isOurs) rmSync(POLICY, { force: true });
  }
}
