/** Debian's packages, for tests that need programs which npm does not have. */

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
  apt-get -q update
  apt-get -q install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"`;

/** As root on Debian. False if they could not be installed, with the reason on standard error. */
export function installPackages(...names: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const command = ["flock", LOCK, "sh", "-ec", INSTALL, "sh", ...names];
  const { success, stderr } = Bun.spawnSync(command, { env, stdout: "ignore" });
  if (!success) process.stderr.write(`apt-get: ${stderr.toString().trim()}\n`);
  return success;
}
