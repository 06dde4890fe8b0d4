/** Runs all test scripts in two rows side by side, because much of their time is waiting. */

/** The scripts of a row run one after the other. */
const rows = [
  ["test:sqlite", "test:torture"],
  ["test:browser", "test:servers", "test:postgres", "test:serializable", "test:ship"],
] as const;

interface Finished {
  readonly script: string;
  readonly exitCode: number;
  readonly seconds: number;
}

/** The output of a script is printed when it has ended, so two do not mix. */
async function run(script: string): Promise<Finished> {
  const startedAtMs = performance.now();
  const child = Bun.spawn(["npm", "run", "--silent", script], { stdout: "pipe", stderr: "pipe" });
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  const seconds = (performance.now() - startedAtMs) / 1000;
  process.stdout.write(`\n===== ${script} =====\n${stdout}${stderr}`);
  return { script, exitCode, seconds };
}

async function runRow(row: readonly string[]): Promise<Finished[]> {
  const finished: Finished[] = [];
  for (const script of row) finished.push(await run(script));
  return finished;
}

export const finished = (await Promise.all(rows.map(runRow))).flat();
process.stdout.write("\n");
for (const { script, exitCode, seconds } of finished)
  process.stdout.write(
    `${exitCode === 0 ? "passed" : "FAILED"}  ${script.padEnd(18)} ${seconds.toFixed(0).padStart(4)} s\n`,
  );
process.exitCode = finished.every(({ exitCode }) => exitCode === 0) ? 0 : 1;
