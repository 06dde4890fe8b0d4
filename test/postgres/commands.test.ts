/** The command line on PostgreSQL: the same commands, and from one engine to the other and back. */

import { describe, expect, test } from "bun:test";
import { runCommand, spawnService } from "../support/command.ts";
import { failure } from "../support/expect.ts";
import { lines, makeWorkplace } from "../support/folder.ts";
import { createTestDatabase } from "../support/postgres-server.ts";
import { readFolder } from "../support/stores.ts";

async function makePlace(files: Readonly<Record<string, string>> = {}) {
  const stack = new AsyncDisposableStack();
  const { url, run } = stack.use(await createTestDatabase());
  const at = stack.use(makeWorkplace(files));
  const dispose = (): Promise<void> => stack.disposeAsync();
  return { url, run, at, env: { DATABASE_URL: url }, [Symbol.asyncDispose]: dispose };
}

const extremes = `{"id":-9223372036854775808,"name":"least \\"quoted\\" \\\\ {a,b}","tag":""}
{"id":0,"name":"","tag":"NULL"}
{"id":9007199254740993,"name":"🌵 beyond"}
{"id":9223372036854775807,"name":"most","tag":"t"}
`;

describe("on PostgreSQL", () => {
  test("a command that only reads does not create a missing store", async () => {
    await using place = await makePlace();
    for (const command of [["export"], ["token", "list"], ["token", "revoke", "x"], ["check"]])
      expect(await runCommand(command, place.env)).toMatchObject({
        exitCode: 1,
        stdout: expect.not.stringContaining("pst_") as string,
      });
    const args = ["copy", "--from", place.url, "--to", `sqlite:${place.at.file("to.db")}`];
    expect(await runCommand(args)).toMatchObject({ exitCode: 1 });
    expect(readFolder(place.at.path)).toEqual({});
    const tables = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'public'";
    expect(await place.run(tables)).toEqual([]);
  });

  test("serve makes no first token, because nothing would show it, and says how to make one", async () => {
    await using place = await makePlace();
    await using service = await spawnService(place.env);
    service.kill("SIGTERM");
    expect(await service.stderr).toContain("plantstore token create");
    expect(await place.run("SELECT name FROM plantstore_tokens")).toEqual([]);
  });

  test("check says what is in it, and what is wrong with it", async () => {
    await using place = await makePlace({ "in.ndjson": extremes });
    await runCommand(["import", place.at.file("in.ndjson")], place.env);
    await runCommand(["token", "create", "--name", "till"], place.env);
    const sound = await runCommand(["check", "--json"], place.env);
    expect(sound.exitCode).toBe(0);
    expect(sound.stdout).toContain('"idMin":-9223372036854775808,"idMax":9223372036854775807');
    expect(JSON.parse(sound.stdout)).toMatchObject({
      ok: true,
      faults: [],
      plants: { count: 4, tagged: 3, tags: 3 },
      tokens: { active: 1, expired: 0, revoked: 0 },
    });
    await place.run("DROP INDEX plants_tag");
    await place.run("DROP TABLE plantstore_marks");
    const spoilt = await runCommand(["check"], place.env);
    expect(spoilt.exitCode).toBe(1);
    expect(spoilt.stdout).toContain("The index plants_tag is missing");
    expect(spoilt.stdout).toContain("The table plantstore_marks is missing");
  });

  test.each(["backup", "restore"])("%s says what to use instead", async (command) => {
    await using place = await makePlace();
    const finished = await runCommand([command, place.at.file("x")], place.env);
    expect(finished).toEqual(failure(1, "pg_dump"));
    expect(readFolder(place.at.path)).toEqual({});
  });
});

describe("a copy from one engine to the other", () => {
  test("and back has every plant and token, and the same checksum", async () => {
    await using place = await makePlace({ "in.ndjson": extremes + lines(1, 2_500) });
    const { at, url } = place;
    const token = await runCommand(["token", "create", "--name", "till"], at.env);
    await runCommand(["token", "create", "--name", "old"], at.env);
    await runCommand(["token", "revoke", "old"], at.env);
    await runCommand(["import", at.file("in.ndjson")], at.env);

    const over = await copy("--from", `sqlite:${at.store}`, "--to", url);
    expect(over).toMatchObject({
      plants: { copied: 2_504 },
      verification: { equal: true, from: { count: 2_504 }, to: { count: 2_504 } },
    });
    const back = await copy("--from", url, "--to", `sqlite:${at.file("back.db")}`);
    expect(back.verification.to).toEqual(over.verification.from);
    const list = async (env: Readonly<Record<string, string>>): Promise<string> =>
      (await runCommand(["token", "list", "--json"], env)).stdout;
    const original = await list(at.env);
    expect(await list({ DATABASE_URL: `sqlite:${at.file("back.db")}` })).toBe(original);
    expect(JSON.parse(await list(place.env))).toEqual(JSON.parse(original));
    expect(token.stdout).toStartWith("pst_");
  });

  test("onto itself changes nothing, even under another of its hosts", async () => {
    await using place = await makePlace({ "one.ndjson": lines(1, 1) });
    const { at, env, url } = place;
    const other = url.replace(/@([^/]+)\//, "@nowhere.invalid:1,$1/");
    const same = await runCommand(["copy", "--from", url, "--to", url]);
    expect(same).toEqual(failure(2, "both are the same store"));
    await runCommand(["import", at.file("one.ndjson")], env);
    const { plants, verification } = await copy("--from", url, "--to", other);
    expect([plants, verification.equal]).toEqual([{ copied: 0, present: 1 }, true]);
  });
});

interface Summary {
  readonly plants: Readonly<Record<string, number>>;
  readonly verification: { readonly equal: boolean; readonly from: object; readonly to: object };
}

async function copy(...args: readonly string[]): Promise<Summary> {
  const finished = await runCommand(["copy", ...args, "--json"]);
  expect(finished).toMatchObject({ exitCode: 0 });
  return JSON.parse(finished.stdout) as Summary;
}
