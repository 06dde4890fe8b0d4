/** change, remove, revert and import --upsert: interrupted in the middle, and asked for on a terminal. */

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { runCommand, runOnTerminal, startCommand } from "../support/command.ts";
import { startService, storePlants, TEST_TOKEN, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";

const COUNT = 2_500;

/** Writes pass until `passes` are done; the next ones wait. */
function holdWrites({ store }: TestService, passes: number) {
  const writePlants = store.writePlants.bind(store);
  const gate = Promise.withResolvers<void>();
  let begun = 0;
  store.writePlants = async (...given) => {
    if (++begun > passes) await gate.promise;
    return writePlants(...given);
  };
  return {
    isHeld: (): boolean => begun > passes,
    release: (): void => {
      store.writePlants = writePlants;
      gate.resolve();
    },
  };
}

describe("Ctrl-C in the middle", () => {
  test.each([
    [["change", "--name", "n", "--set-tag", "t", "--yes"], 0],
    // So long that the service has a line about its progress to send.
    [["remove", "--name", "n", "--yes"], 1_100],
  ] as const)(
    "of %p exits 130 and says how to continue, which does the rest",
    async (args, heldMs) => {
      await using service = await startService();
      await storePlants(service, COUNT);
      const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
      const count = async (): Promise<number> => {
        const plants = await service.readPlants();
        return COUNT - plants.filter(({ tag }) => tag !== "t").length;
      };
      const held = holdWrites(service, 1);
      const command = startCommand([...args, "--url", service.url], env);
      await until("the second block is held", held.isHeld);
      command.kill("SIGINT");
      const { exitCode, stderr } = await command.finished;
      expect(exitCode).toBe(130);
      await until("the client is gone", () => service.logLines.join("").includes("answer_cut_off"));
      await Bun.sleep(heldMs);
      held.release();
      await until("the service noticed", () =>
        service.logLines.join("").includes("bulk_broken_off"),
      );
      // The block in flight may still be written, and nothing after it.
      const reached = await count();
      expect(reached).toBeGreaterThanOrEqual(1_000);
      expect(reached).toBeLessThanOrEqual(2_000);
      expect(stderr).toContain("Running it again continues it.");
      expect(stderr).toContain("to undo this");
      const again = await runCommand([...args, "--url", service.url], env);
      expect(again.exitCode).toBe(0);
      expect(await count()).toBe(COUNT);
    },
  );

  test("of revert exits 130 and says how to continue, which undoes the rest", async () => {
    await using service = await startService();
    await storePlants(service, COUNT);
    const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const args = ["revert", "--types", "created", "--yes", "--url", service.url];
    const held = holdWrites(service, 1);
    const command = startCommand(args, env);
    await until("the second block is held", held.isHeld);
    command.kill("SIGINT");
    expect(await command.finished).toMatchObject({
      exitCode: 130,
      stdout: expect.stringMatching(/^undone \d+, unchanged 0, .+; batch "revert .+"\n$/),
      stderr: expect.stringMatching(
        /^plantstore: interrupted\. [\d,]+ plants are known to be undone\. Running it again continues it\.\n$/,
      ),
    });
    held.release();
    expect((await runCommand(args, env)).exitCode).toBe(0);
    expect(await service.readPlants()).toEqual([]);
  });

  test("of import --upsert exits 130, and run again it completes", async () => {
    using folder = makeTemporaryFolder();
    const file = join(folder.path, "plants.csv");
    const rows = Array.from({ length: COUNT }, (_, id) => `${id},new ${id},t`);
    writeFileSync(file, `id,name,tag\n${rows.join("\n")}\n`);
    await using service = await startService();
    await storePlants(service, COUNT);
    const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const args = ["import", file, "--upsert", "--url", service.url];
    const held = holdWrites(service, 1);
    const command = startCommand(args, env);
    await until("writes are held", held.isHeld);
    command.kill("SIGINT");
    held.release();
    expect((await command.finished).exitCode).toBe(130);
    const again = await runCommand(args, env);
    expect(again.exitCode).toBe(0);
    expect((await service.readPlants()).every(({ tag }) => tag === "t")).toBe(true);
  });
});

describe("on a terminal", () => {
  test("remove shows what matches, and removes it only after a yes", async () => {
    using folder = makeTemporaryFolder();
    const env = { DATABASE_URL: `sqlite:${join(folder.path, "plants.db")}` };
    const file = join(folder.path, "plants.csv");
    writeFileSync(file, "id,name,tag\n1,Rose,t\n2,Fern,\n");
    expect((await runCommand(["import", file], env)).exitCode).toBe(0);
    const count = async (): Promise<number> =>
      (await runCommand(["export"], env)).stdout.trim().split("\n").length;
    const before = await count();
    for (const [reply, exitCode, says] of [
      ["no\n", 1, "Nothing was changed."],
      ["\n", 1, "Nothing was changed."],
      ["\u0003", 130, ""],
      ["yes\n", 0, "removed 1"],
    ] as const) {
      expect(await count()).toBe(before);
      const answer = { at: "Remove them?", reply };
      const shown = await runOnTerminal(["remove", "--tag", "t"], env, undefined, answer);
      expect([exitCode, shown.screen]).toEqual([shown.exitCode, expect.stringContaining(says)]);
      expect(shown.screen).toContain("1 plant matches");
    }
    expect(await count()).toBe(before - 1);
  });
});
