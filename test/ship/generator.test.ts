/** A client that a generator makes of the description. The generator is installed for the test alone. */

import { expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readSamples } from "../support/samples.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { run } from "../support/shipped.ts";

const root = join(import.meta.dir, "../..");

test("orval: the generated client creates a plant exactly, as docs/client.md shows", async () => {
  using folder = makeTemporaryFolder();
  const use = (command: readonly string[], env: Record<string, string> = {}): Promise<string> =>
    run(command, { cwd: folder.path, env });
  cpSync(join(import.meta.dir, "generator"), folder.path, { recursive: true });
  await use(["npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"]);
  await using service = await startService();
  const local = (text: string): string =>
    text.replaceAll("http://127.0.0.1:8080", service.url).replaceAll("./plants", "./generated");
  writeFileSync(join(folder.path, "orval.config.mjs"), local(readSamples("js", "generator")));
  await use([process.execPath, "node_modules/.bin/orval"]);
  writeFileSync(join(folder.path, "use.ts"), local(readSamples("ts", "generator")));
  // As a program of a user: strict, with the types of Node.js.
  const compilerOptions = {
    target: "es2024",
    module: "nodenext",
    strict: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    typeRoots: [join(root, "node_modules/@types")],
    types: ["bun"],
  };
  writeFileSync(join(folder.path, "package.json"), '{"type":"module"}');
  writeFileSync(
    join(folder.path, "tsconfig.json"),
    JSON.stringify({ compilerOptions, files: ["use.ts"] }),
  );
  await use([join(root, "node_modules/.bin/tsc"), "-p", folder.path]);
  await use([process.execPath, "use.ts"], { TOKEN: TEST_TOKEN });
  expect(await service.readPlants()).toEqual([
    { id: 9_007_199_254_740_993n, name: "Monstera deliciosa", tag: null },
  ]);
  const generated = readFileSync(join(folder.path, "generated.ts"), "utf8");
  // A batch is an array of lines and answers with an array of results.
  expect(generated).toMatch(/createPlants = async \(\w+: BatchLine\[\]/);
  expect(generated).toMatch(/data: BatchResult\[\]/);
});
