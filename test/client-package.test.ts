/** The client as a package: what is in it, its types, and every operation on Node.js. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import packageJson from "../client/package.json";
import rootPackageJson from "../package.json";
import { buildClient } from "../scripts/build-client.ts";
import { readSamples } from "./support/samples.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { startService, TEST_TOKEN } from "./support/service.ts";

const root = join(import.meta.dir, "..");
const COMPRESSED_BYTES_MAX = 8_400;

/** The client as its users have it: built, in a node_modules folder. */
const folder = makeTemporaryFolder();
const installed = join(folder.path, "node_modules/@plantstore/client");
beforeAll(async () => {
  mkdirSync(installed, { recursive: true });
  cpSync(join(root, "client/package.json"), join(installed, "package.json"));
  await buildClient(join(installed, "dist"));
});
afterAll(() => folder[Symbol.dispose]());

/** Resolves to standard output. */
async function run(command: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const child = Bun.spawn([...command], {
    cwd: folder.path,
    env: { ...process.env, ...env },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (exitCode !== 0)
    throw new Error(`${command.join(" ")} exits ${exitCode}:\n${stdout}${stderr}`);
  return stdout;
}

describe("the package of the client", () => {
  test("is one script of at most 8.4 kB compressed, with types and without dependencies", () => {
    const script = readFileSync(join(installed, "dist/client.js"));
    expect(gzipSync(script).length).toBeLessThanOrEqual(COMPRESSED_BYTES_MAX);
    const files = readdirSync(join(installed, "dist"));
    expect(files.filter((file) => !file.endsWith(".d.ts"))).toEqual(["client.js"]);
    expect(packageJson).not.toContainKeys(["dependencies", "peerDependencies"]);
    expect(script.toString()).not.toMatch(/^import |require\(/m);
  });

  test("is packed with its licence", async () => {
    const packed = Bun.spawn(["npm", "pack", "--dry-run", "--json"], {
      cwd: join(root, "client"),
      stdout: "pipe",
      stderr: "ignore",
    });
    const [{ files }] = (await packed.stdout.json()) as [{ files: { readonly path: string }[] }];
    expect(files.map(({ path }) => path)).toEqual(
      expect.arrayContaining(["LICENSE", "README.md", "package.json"]),
    );
    const read = (file: string): string => readFileSync(join(root, file), "utf8");
    expect(read("client/LICENSE")).toBe(read("LICENSE"));
  });

  test("docs/api.md: the sample for exact ids runs on Node.js 20", async () => {
    await using service = await startService();
    const ids = [-(2n ** 63n), 9_007_199_254_740_993n];
    await service.store.createPlants(ids.map((id) => ({ id, name: '{"id":1', tag: undefined })));
    const [, sample = ""] =
      /## Ids in clients\n[^]*?```js\n([^]*?)```/.exec(
        readFileSync(join(root, "docs/api.md"), "utf8"),
      ) ?? [];
    const program = `
      const headers = { authorization: "Bearer " + process.env.TOKEN };
      const text = await (await fetch(process.env.SERVICE + "/plants", { headers })).text();
      ${sample}
      console.log(plants);`;
    writeFileSync(join(folder.path, "ids.mjs"), program);
    const env = { SERVICE: service.url, TOKEN: TEST_TOKEN, NO_COLOR: "1" };
    expect(await run(["node", "ids.mjs"], env)).toBe(
      `[\n  { id: -9223372036854775808n, name: '{"id":1' },\n  { id: 9007199254740993n, name: '{"id":1' }\n]\n`,
    );
  });

  test("has the version of the service", () =>
    expect(packageJson.version).toBe(rootPackageJson.version));

  test.each(["bundler", "nodenext"])(
    "has types that hold, with %s resolution",
    async (moduleResolution) => {
      cpSync(join(import.meta.dir, "support/client-types.ts"), join(folder.path, "types.ts"));
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
      writeFileSync(config, JSON.stringify({ compilerOptions, files: ["types.ts"] }));
      writeFileSync(join(folder.path, "package.json"), '{"type":"module"}');
      expect(await run([join(root, "node_modules/.bin/tsc"), "-p", config])).toBe("");
    },
  );

  test("docs/client.md: every sample prints what the page says", async () => {
    await using service = await startService();
    const samples = readSamples("js", "client").replaceAll("http://127.0.0.1:8080", service.url);
    writeFileSync(join(folder.path, "samples.mjs"), samples);
    expect(await run(["node", "samples.mjs"], { TOKEN: TEST_TOKEN })).toBe(
      readSamples("", "client"),
    );
  });

  test("runs every operation on Node.js", async () => {
    await using service = await startService();
    const scenario = join(import.meta.dir, "support/client-scenario.ts");
    await Bun.build({ entrypoints: [scenario], outdir: folder.path, naming: "scenario.js" });
    const program = `
      import * as Package from "@plantstore/client";
      import { useClient } from "./scenario.js";
      console.log(JSON.stringify(await useClient(Package, process.env.SERVICE, process.env.TOKEN)));`;
    writeFileSync(join(folder.path, "main.mjs"), program);
    const env = { SERVICE: service.url, TOKEN: TEST_TOKEN };
    expect(JSON.parse(await run(["node", "main.mjs"], env))).toEqual([]);
  });
});
