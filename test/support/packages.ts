/** Debian's packages, for tests that need programs which npm does not have. */

import { runSync } from "./processes.ts";

export const canInstall = (): boolean => process.getuid?.() === 0 && Bun.which("apt-get") !== null;

/** One test process at a time: apt-get refuses to run twice at once. */
const LOCK = "/tmp/plantstore-test-packages.lock";

/** Debian starts a new server at once, unless policy-rc.d says that it must not. */
const INSTALL = `
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\\nexit 101\\n' > $policy
    chmod 755 $policy
  fi
  apt() { apt-get -q -o Acquire::Retries=1 -o DPkg::Lock::Timeout=300 "$@"; }
  apt update
  apt install -y --no-install-recommends "$@"`;

/** Without a network apt-get tries for minutes, mirror by mirror. */
const INSTALL_SECONDS_MAX = 600;

/** As root on Debian. False if they could not be installed, with the reason on standard error. */
export function installPackages(...names: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  // `timeout` ends apt-get too, which would hold its lock beyond the test.
  const bounded = ["timeout", "--kill-after=10", `${INSTALL_SECONDS_MAX}`];
  const command = [...bounded, "flock", LOCK, "sh", "-ec", INSTALL, "sh", ...names];
  const timeout = 1_000 * (INSTALL_SECONDS_MAX + 20);
  const { success, exitCode, stderr } = runSync(command, { env, stdout: "ignore", timeout });
  if (!success) process.stderr.write(`apt-get (exit ${exitCode}): ${stderr.toString().trim()}\n`);
  return success;
}
