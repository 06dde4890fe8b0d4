/** plantstore changes: the journal on the command line, of a store and of a service. */

import { afterAll, describe, expect, test } from "bun:test";
import { launcher, runCommand, spawnService } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";

const at = makeWorkplace();
const remote = { PLANTSTORE_TOKEN: TEST_TOKEN };
const env = { ...at.env, ...remote };
const service = await spawnService(env);
const { url } = service.started;
for (const id of [1n, 2n ** 63n - 1n]) await sendPlant(url, { id, name: `plant ${id}`, tag: null });
await send(service.started, "DELETE", "/plants/1");
afterAll(async () => {
  await service[Symbol.asyncDispose]();
  at[Symbol.dispose]();
});

describe("plantstore changes", () => {
  test("prints the same of the store and of the service, for people and as JSON", async () => {
    const local = await runCommand(["changes", "--json"], env);
    expect(await runCommand(["changes", "--json", "--url", url], remote)).toEqual(local);
    expect(local.exitCode).toBe(0);
    const lines = local.stdout.trimEnd().split("\n");
    expect(lines).toHaveLength(3);
    expect(lines[1]).toContain('"id":9223372036854775807,');
    const { seq } = JSON.parse(lines[1] ?? "") as { seq: number };
    const people = await runCommand(["changes", "--after", String(seq)], env);
    expect(people.stdout).toMatch(/^\d+ \S+Z removed  1 was "plant 1" by PLANTSTORE_TOKEN\n$/);
  });

  test("keeps printing with --follow until Ctrl-C", async () => {
    const child = Bun.spawn([launcher, "changes", "--follow"], { env: { ...process.env, ...env } });
    const reader = child.stdout.getReader();
    let text = "";
    const until = async (part: string): Promise<void> => {
      while (!text.includes(part)) text += new TextDecoder().decode((await reader.read()).value);
    };
    await until("removed");
    await sendPlant(url, { id: 7n, name: "later", tag: "x" });
    await until('"later" ["x"] by');
    child.kill("SIGINT");
    expect(await child.exited).toBe(130);
  });

  test("refuses numbers that are none, are not kept or are in the future", async () => {
    const run = (after: string, ...more: string[]) =>
      runCommand(["changes", "--after", after, ...more], more.length > 0 ? remote : env);
    expect(await run("x")).toMatchObject({ exitCode: 2 });
    for (const more of [[], ["--url", url]]) {
      const gone = await run("1767225600000001", ...more);
      expect(gone.exitCode).toBe(1);
      expect(gone.stderr).toContain("1767225600000001 belongs to another store");
      expect((await run(String(Number.MAX_SAFE_INTEGER), ...more)).exitCode).toBe(1);
    }
    const missing = await runCommand(["changes"], { DATABASE_URL: "sqlite:./nowhere.db" });
    expect(missing.stderr).toContain("There is no store");
  });
});
