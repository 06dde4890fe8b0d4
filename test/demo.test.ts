/** npm run demo: alive at once, and gone without a trace. */

import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./support/folder.ts";
import { until } from "./support/until.ts";

test("the demo shows plants to its token while they come in, and leaves nothing behind", async () => {
  using folder = makeTemporaryFolder();
  const script = join(import.meta.dir, "../scripts/demo.ts");
  const child = Bun.spawn([process.execPath, script, "--port", "0"], {
    env: { ...process.env, TMPDIR: folder.path },
    stderr: "inherit",
  });
  let shown = "";
  for await (const bytes of child.stdout) {
    shown += new TextDecoder().decode(bytes);
    if (shown.includes("Ctrl-C")) break;
  }
  const [, url] = /Reference +(\S+)\/docs/.exec(shown) ?? [];
  const [, token] = /Token +(pst_\S+)/.exec(shown) ?? [];
  const headers = { authorization: `Bearer ${token}` };
  const read = async (path: string): Promise<string> =>
    (await fetch(`${url}${path}`, { headers })).text();
  expect(JSON.parse(await read("/plants?limit=1000"))).toHaveLength(1000);
  expect(await read("/plants/9223372036854775807")).toContain('"id":9223372036854775807,');
  // Those that come in get these ids.
  await until("a plant has come in", async () => (await read("/plants/100001")).includes('"name"'));

  expect(readdirSync(folder.path)).toHaveLength(1);
  child.kill("SIGINT");
  expect(await child.exited).toBe(0);
  expect(readdirSync(folder.path)).toEqual([]);
});
