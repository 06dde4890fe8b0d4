/** The state of the console can be imported without a page: nothing acts before it is started. */

import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";

const folder = join(import.meta.dir, "../../console");
const files = [...new Glob("{state,api,text}/*.ts").scanSync(folder)].concat(
  ["state", "status"].map((name) => `import/${name}.ts`),
);

test("no module of the state acts when it is imported", async () => {
  const paths = files.map((file) => join(folder, file));
  const script = Bun.fileURLToPath(new URL("./alone.ts", import.meta.url));
  const child = Bun.spawn([process.execPath, script, ...paths], { stderr: "inherit" });
  expect(await new Response(child.stdout).json()).toEqual([]);
  expect(files.length).toBeGreaterThan(35);
});
