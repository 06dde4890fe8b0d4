/** The client as a package: what is in it, its types, and every operation on Node.js. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../client/package.json";
import rootPackageJson from "../../package.json";
import { buildClient } from "../../scripts/build-client.ts";
import { clientComments } from "../../scripts/tables.ts";
import { readSamples } from "../support/samples.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { startShared, TEST_TOKEN } from "../support/service.ts";
import { run } from "../support/shipped.ts";

const root = join(import.meta.dir, "../..");

/** The client as its users have it: built, in a node_modules folder. */
const folder = makeTemporaryFolder();
const installed = join(folder.path, "node_modules/@plantstore/client");
beforeAll(async () => {
  mkdirSync(installed, { recursive: true });
  cpSync(join(root, "client/package.json"), join(installed, "package.json"));
  await buildClient(join(installed, "dist"));
});
afterAll(() => folder[Symbol.dispose]());

const service = await startShared();

/** Resolves to what it prints. */
function runOnNode(name: string, program: string): Promise<string> {
  writeFileSync(join(folder.path, name), program);
  const env = { SERVICE: service.url, TOKEN: TEST_TOKEN, NO_COLOR: "1" };
  return run(["node", name], { cwd: folder.path, env });
}

/** Each example in a function of its own. */
const typedExamples = [
  'import { type Bulk, type Client, type FailureOf, ServiceError } from "@plantstore/client";',
  "declare const client: Client;",
  ...Array.from(
    clientComments,
    ([name, { example }]) => `export async function of_${name}(): Promise<void> {\n${example}}`,
  ),
].join("\n");

describe("the package of the client", () => {
  test("is one script, with types, without dependencies, of the service's version", () => {
    const script = readFileSync(join(installed, "dist/client.js"));
    const files = readdirSync(join(installed, "dist"));
    expect(files.filter((file) => !file.endsWith(".d.ts"))).toEqual(["client.js"]);
    expect(packageJson).not.toContainKeys(["dependencies", "peerDependencies"]);
    expect(packageJson.version).toBe(rootPackageJson.version);
    expect(script.toString()).not.toMatch(/^import |require\(/m);
  });

  test("is packed with its licence", async () => {
    const packed = await run(["npm", "pack", "--dry-run", "--json"], { cwd: join(root, "client") });
    const [{ files }] = JSON.parse(packed) as [{ files: { readonly path: string }[] }];
    expect(files.map(({ path }) => path)).toEqual(
      expect.arrayContaining(["LICENSE", "README.md", "package.json"]),
    );
    const read = (file: string): string => readFileSync(join(root, file), "utf8");
    expect(read("client/LICENSE")).toBe(read("LICENSE"));
  });

  test.each(["bundler", "nodenext"])(
    "has types that hold, with %s resolution",
    async (moduleResolution) => {
      cpSync(join(import.meta.dir, "../support/client-types.ts"), join(folder.path, "types.ts"));
      writeFileSync(join(folder.path, "examples.ts"), typedExamples);
      const module = moduleResolution === "bundler" ? "preserve" : "nodenext";
      const compilerOptions = {
        moduleResolution,
        module,
        target: "es2022",
        lib: ["es2022", "dom"],
        types: [],
        strict: true,
        exactOptionalPropertyTypes: true,
        skipLibCheck: false,
        noEmit: true,
      };
      const config = join(folder.path, "tsconfig.json");
      writeFileSync(
        config,
        JSON.stringify({ compilerOptions, files: ["types.ts", "examples.ts"] }),
      );
      writeFileSync(join(folder.path, "package.json"), '{"type":"module"}');
      const tsc = [join(root, "node_modules/.bin/tsc"), "-p", config];
      expect(await run(tsc, { cwd: folder.path })).toBe("");
    },
  );

  test("runs every operation on Node.js", async () => {
    const scenario = join(import.meta.dir, "../support/client-scenario.ts");
    await Bun.build({ entrypoints: [scenario], outdir: folder.path, naming: "scenario.js" });
    const program = `
      import * as Package from "@plantstore/client";
      import { useClient } from "./scenario.js";
      console.log(JSON.stringify(await useClient(Package, process.env.SERVICE, process.env.TOKEN)));`;
    expect(JSON.parse(await runOnNode("main.mjs", program))).toEqual([]);
  });
});

test("docs/client.md: every sample prints what the page says", async () => {
  await service.database.run("DELETE FROM plants");
  const samples = readSamples("js", "client").replaceAll("http://127.0.0.1:8080", service.url);
  expect(await runOnNode("samples.mjs", samples)).toBe(readSamples("", "client"));
});

test("docs/api.md: the sample for exact ids runs on Node.js 20", async () => {
  await service.database.run("DELETE FROM plants");
  const ids = [-(2n ** 63n), 9_007_199_254_740_993n];
  await service.store.createPlants(ids.map((id) => ({ id, name: '{"id":1', tag: undefined })));
  const page = readFileSync(join(root, "docs/api.md"), "utf8");
  const [, sample = ""] = /## Ids in clients\n[^]*?```js\n([^]*?)```/.exec(page) ?? [];
  const program = `
    const headers = { authorization: "Bearer " + process.env.TOKEN };
    const text = await (await fetch(process.env.SERVICE + "/plants", { headers })).text();
    ${sample}
    console.log(plants);`;
  expect(await runOnNode("ids.mjs", program)).toBe(
    `[\n  { id: -9223372036854775808n, name: '{"id":1' },\n  { id: 9007199254740993n, name: '{"id":1' }\n]\n`,
  );
});
