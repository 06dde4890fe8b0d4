/** plantstore changes: the journal on the command line, of a store and of a service. */

import { describe, expect, test } from "bun:test";
import { createChangePage } from "../src/store/sql-store.ts";
import { launcher, runCommand, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";

interface Scene extends AsyncDisposable {
  readonly env: Record<string, string>;
  readonly url: string;
}

async function openScene(): Promise<Scene> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(makeTemporaryFolder());
  const env = {
    DATABASE_URL: `sqlite:${folder.path}/plants.db`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
  };
  const service = opened.use(await spawnService(env));
  const { url } = service.started;
  for (const id of [1n, 2n ** 63n - 1n])
    await sendPlant(url, { id, name: `plant ${id}`, tag: null });
  const headers = { authorization: `Bearer ${TEST_TOKEN}` };
  await fetch(`${url}/plants/1`, { method: "DELETE", headers });
  const stack = opened.move();
  return { env, url, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

describe("plantstore changes", () => {
  test("prints the same of the store and of the service, for people and as JSON", async () => {
    await using scene = await openScene();
    const { env, url } = scene;
    const local = await runCommand(["changes", "--json"], env);
    const remote = await runCommand(["changes", "--json", "--url", url], {
      PLANTSTORE_TOKEN: TEST_TOKEN,
    });
    expect(remote).toEqual(local);
    expect(local.exitCode).toBe(0);
    const lines = local.stdout.trimEnd().split("\n");
    expect(lines).toHaveLength(3);
    expect(lines[1]).toContain('"id":9223372036854775807,');
    const { seq } = JSON.parse(lines[1] ?? "") as { seq: number };
    const people = await runCommand(["changes", "--after", String(seq)], env);
    expect(people.stdout).toMatch(/^\d+ \S+Z removed  1 was "plant 1" by PLANTSTORE_TOKEN\n$/);
  });

  test("goes on with --follow until Ctrl-C", async () => {
    await using scene = await openScene();
    const { env, url } = scene;
    const command = Bun.spawn([launcher, "changes", "--follow"], {
      env: { ...process.env, ...env },
      stdout: "pipe",
      stderr: "pipe",
    });
    const reader = command.stdout.getReader();
    let text = "";
    const until = async (part: string): Promise<void> => {
      while (!text.includes(part)) text += new TextDecoder().decode((await reader.read()).value);
    };
    await until("removed");
    await sendPlant(url, { id: 7n, name: "later", tag: "x" });
    await until('"later" ["x"] by');
    command.kill("SIGINT");
    expect(await command.exited).toBe(130);
  });

  test("refuses numbers that are none, are not kept or are in the future", async () => {
    await using scene = await openScene();
    const { env, url } = scene;
    const run = (after: string, ...more: string[]) =>
      runCommand(
        ["changes", "--after", after, ...more],
        more.length > 0 ? { PLANTSTORE_TOKEN: TEST_TOKEN } : env,
      );
    expect(await run("x")).toMatchObject({ exitCode: 2 });
    for (const more of [[], ["--url", url]]) {
      const gone = await run("5", ...more);
      expect(gone.exitCode).toBe(1);
      expect(gone.stderr).toContain("The changes after 5 are not kept any more");
      expect((await run(String(Number.MAX_SAFE_INTEGER), ...more)).exitCode).toBe(1);
    }
    const missing = await runCommand(["changes"], { DATABASE_URL: "sqlite:./nowhere.db" });
    expect(missing.stderr).toContain("There is no store");
  });
});

test.each([
  [10, 10n],
  // The break before the oldest change.
  [0, 11n],
])("a page after %i gets further, however late its rows come", (after, first) => {
  const page = createChangePage({ after, limit: 5, id: undefined, types: ["created"] }, 11, -1);
  const row = { at_ms: 1n, kept: null };
  expect(page.add({ ...row, first, last: 10n, entries: "[]" })).toBe(true);
  page.add({ ...row, first: 11n, last: 11n, entries: '["c",null,7,"Fern",null]' });
  expect(page.finish()).toMatchObject({ last: 11, changes: [{ seq: 11, type: "created" }] });
});
