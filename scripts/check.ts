/** Runs all checks in parallel, and prints the output of those that fail. */

import packageJson from "../package.json";

const checks = Object.keys(packageJson.scripts).filter((script) => script.startsWith("check:"));

async function passes(script: string): Promise<boolean> {
  const child = Bun.spawn(["npm", "run", "--silent", script], { stdout: "pipe", stderr: "pipe" });
  const output = await Promise.all([child.stdout.text(), child.stderr.text()]);
  const hasPassed = (await child.exited) === 0;
  if (!hasPassed) process.stderr.write(`${script} failed:\n${output.join("")}`);
  return hasPassed;
}

export const results = await Promise.all(checks.map(passes));
process.exitCode = results.every(Boolean) ? 0 : 1;
