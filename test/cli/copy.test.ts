/** plantstore copy as its users run it: everything, once, verified; differences, collisions, signals, exit codes. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { linkSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { hashToken, mintToken } from "../../src/auth/token.ts";
import { migrations } from "../../src/store/sqlite/database.ts";
import { runCommand, runForJson, spawnService, startCommand } from "../support/command.ts";
import { failure } from "../support/expect.ts";
import { FURTHER_STEP } from "../support/limits.ts";
import { makeWorkplace } from "../support/folder.ts";
import type { StoredPlant } from "../support/plants.ts";
import { send } from "../support/service.ts";
import {
  alter,
  countPlants,
  makeStore,
  readFolder,
  readPlants,
  storePlants,
} from "../support/stores.ts";
import { until } from "../support/until.ts";

const urlOf = (path: string): string => `sqlite:${path}`;
const argsFor = (from: string, to: string) => ["copy", "--from", urlOf(from), "--to", urlOf(to)];

/** A workplace with two stores. The second may not exist yet. */
function makePair(plants: readonly StoredPlant[], held?: readonly StoredPlant[]) {
  const at = makeWorkplace();
  const [from, to] = [at.file("from.db"), at.file("to.db")];
  storePlants(from, plants);
  if (held !== undefined) storePlants(to, held);
  return { ...at, from, to, args: argsFor(from, to) };
}

const plant = (id: number | bigint, name = `plant ${id}`, tag: string | null = null) => ({
  id: BigInt(id),
  name,
  tag,
});

const many = (count: number): StoredPlant[] =>
  Array.from({ length: count }, (_, index) => plant(1 + index));

const none = { copied: 0, present: 0 };

describe("plantstore copy", () => {
  const awkward = [
    plant(-(2n ** 63n), "least"),
    plant(-(2n ** 53n) - 1n, "", ""),
    plant(0, "no tag"),
    plant(1, "empty tag", ""),
    plant(2n ** 53n + 1n, "é e\u0301 🌵 \u2028 \" \\ '", "\u0001"),
    plant(2n ** 63n - 1n, "greatest", "tag"),
  ];

  test("copies all, exactly, leaves the source as it was, and recognises it the next time", async () => {
    using at = makePair(awkward);
    const source = readFileSync(at.from);
    const first = await runForJson(at.args);
    expect(readPlants(at.to)).toEqual(awkward);
    const exported = await runCommand(["export"], { DATABASE_URL: urlOf(at.from) });
    const sum = { count: 6, sha256: Bun.SHA256.hash(exported.stdout, "hex") };
    const summary = {
      event: "copied",
      finished: true,
      from: at.from,
      to: at.to,
      plants: { ...none, copied: 6 },
      tokens: none,
      verification: { equal: true, from: sum, to: sum },
      seconds: expect.any(Number),
    };
    expect(first).toEqual(summary);
    expect(readFileSync(at.from).equals(source)).toBe(true);
    const target = readFileSync(at.to);
    const again = await runForJson(at.args);
    expect(again).toEqual({ ...summary, plants: { ...none, present: 6 } });
    expect(readFileSync(at.to).equals(target)).toBe(true);
  });

  test.each([
    ["from", "to"],
    ["to", "from"],
  ] as const)("with --%s, and --%s by DATABASE_URL, says what it did", async (given, left) => {
    using at = makePair(many(1_200), many(200));
    const env = { DATABASE_URL: urlOf(at[left]) };
    const finished = await runCommand(["copy", `--${given}`, urlOf(at[given])], env);
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    expect(finished.stdout.replace(/[0-9a-f]{64}/, "…").replace(/\d+\.\d s/, "… s")).toBe(
      "Copied, and verified: both stores hold the same plants (SHA-256 …).\n\n" +
        `  From    ${at.from}\n  To      ${at.to}\n  Plants  1,000 copied, 200 present\n` +
        "  Tokens  0 copied, 0 present\n  Time    … s\n",
    );
  });

  test("copies webhooks paused, behind what it copied, and says so", async () => {
    using at = makePair(many(3));
    const webhook = (path: string, ...args: string[]) =>
      runForJson<object[]>(["webhook", ...args], { DATABASE_URL: urlOf(path) });
    const secretsOf = (path: string): unknown[] => {
      using db = new Database(path);
      return db.query("SELECT record ->> 'secret' AS secret FROM webhooks").all();
    };
    await webhook(at.from, "add", "https://shop.example/plants", "--types", "created");
    const source = await webhook(at.from, "list");

    const { exitCode, stdout, stderr } = await runCommand(at.args);
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/^ {2}Webhooks {2}1 copied, 0 present$/m);
    expect(stderr).toContain("1 webhook is paused in the copy: plantstore webhook resume");
    const [shop] = await webhook(at.to, "list");
    const changes = await runCommand(["changes", "--json"], { DATABASE_URL: urlOf(at.to) });
    const [, newest] = /"seq":(\d+)[^\n]*\n$/.exec(changes.stdout) ?? [];
    expect(shop).toMatchObject({
      url: "https://shop.example/plants",
      types: ["created"],
      state: "paused",
      lastChange: Number(newest),
    });
    expect(await webhook(at.from, "list")).toEqual(source);
    expect(secretsOf(at.to)).toEqual(secretsOf(at.from));

    await webhook(at.to, "resume", "shop.example");
    const again = await runCommand(at.args);
    expect(again).toMatchObject({ exitCode: 0, stderr: "" });
    expect(again.stdout).toMatch(/^ {2}Webhooks {2}0 copied, 1 present$/m);
    expect((await webhook(at.to, "list"))[0]).toMatchObject({ state: "active" });
  });

  test("plants that only the target holds are left alone, and counted: exit 3", async () => {
    using at = makePair([], many(3));
    const extra = await runCommand([...at.args, "--json"]);
    expect(extra).toMatchObject({
      exitCode: 3,
      stderr: `plantstore: ${at.to} holds 3 plants that ${at.from} does not. They were left alone.\n`,
    });
    expect(JSON.parse(extra.stdout)).toMatchObject({
      finished: true,
      plants: none,
      verification: { equal: false, from: { count: 0 }, to: { count: 3 } },
    });
    expect(readPlants(at.to)).toEqual(many(3));
  });

  test.each([
    [[], "--from, --to: give at least one; DATABASE_URL is the default for the other"],
    [["--from", ""], '--from: "" is not allowed (unknown scheme); expected sqlite:'],
    [["--to", "postgres://me:secret"], '--to: "postgres://********" is not allowed ('],
    [["--from", "sqlite:a.db", "--to", "sqlite:a.db"], "both are the same store"],
    [["--from", "sqlite:a.db", "--to", "sqlite:./a.db"], "--to: ./a.db is the store"],
    [["extra"], "too many arguments"],
    [["--database-url", "sqlite:a.db"], "unknown option"],
  ])("%j is not understood: exit 2, no secret repeated, nothing made", async (args, says) => {
    using at = makeWorkplace();
    const finished = await runCommand(["copy", ...args], at.env);
    expect(finished).toEqual(failure(2, says));
    expect(finished.stderr).not.toContain("secret");
    expect(readdirSync(at.path)).toEqual([]);
  });

  test("the same store by another name, through a link or in place of its log is refused", async () => {
    using at = makePair(many(3));
    linkSync(at.from, at.file("hard.db"));
    symlinkSync(at.from, at.file("soft.db"));
    const before = readFolder(at.path);
    for (const name of ["hard.db", "soft.db", "from.db-wal"]) {
      const to = at.file(name);
      const says = `--to: ${to} is the store, or a part of it`;
      expect(await runCommand(argsFor(at.from, to))).toEqual(failure(2, says));
    }
    expect(readFolder(at.path)).toEqual(before);
  });

  test.each<[string, (path: string) => unknown, string]>([
    ["missing", () => undefined, "There is no store"],
    ["an empty file", (path) => writeFileSync(path, ""), "There is no store"],
    ["no store", (path) => writeFileSync(path, "text ".repeat(999)), "cannot be read"],
    [
      "old",
      (path) => makeStore(path, 3),
      `has schema ${migrations.length}, and a copy does not change its source`,
    ],
  ])("a source that is %s is a failure, and nothing is made or changed", async (_, make, says) => {
    using at = makeWorkplace();
    make(at.file("from.db"));
    const before = readFolder(at.path);
    const finished = await runCommand(argsFor(at.file("from.db"), at.file("to.db")), FURTHER_STEP);
    expect(finished).toEqual(failure(1, says));
    expect(readFolder(at.path)).toEqual(before);
  });
});

describe("tokens", () => {
  /** The seed gives a token its hash, its prefix and, unless it is given, its name. */
  function addToken(
    path: string,
    seed: string,
    name = seed,
    times = "NULL, NULL, NULL",
    // A token with tags has a comma after each scope.
    rights = "'plants:read plants:write', NULL",
  ): void {
    const texts = [hashToken(seed), seed.slice(0, 8), name].map((text) => `'${text}'`).join(", ");
    alter(
      path,
      `INSERT INTO tokens (hash, prefix, name, scopes, tags, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms)
        VALUES (${texts}, ${rights}, 1000, ${times})`,
    );
  }

  function readTokens(path: string): readonly { readonly hash: string }[] {
    using db = new Database(path, { readwrite: true, create: false });
    return db.query<{ hash: string }, []>("SELECT * FROM tokens ORDER BY hash").all();
  }

  test("a target that holds a different plant under one of the ids is refused, keeps all it held and gets no token: exit 3", async () => {
    const from = [plant(1), plant(2, "same", ""), plant(3, "a"), plant(4, "b", ""), plant(5, "c")];
    const to = [plant(-7), plant(2, "same", ""), plant(3, "A"), plant(4, "b"), plant(9)];
    using at = makePair(from, to);
    addToken(at.from, "till");
    const finished = await runCommand([...at.args, "--json"]);
    expect(finished.exitCode).toBe(3);
    expect(finished.stderr).toBe(
      `plantstore: ${at.to} holds a different plant under the id 3, 4. ` +
        "Nothing in it was replaced. Copy into an empty store.\n",
    );
    expect(JSON.parse(finished.stdout)).toMatchObject({ finished: false, verification: null });
    const after = readPlants(at.to);
    for (const one of to) expect(after).toContainEqual(one);
    expect(readPlants(at.from)).toEqual(from);
    expect(readTokens(at.to)).toEqual([]);
  });

  test("are copied with every field, also revoked and expired ones, and go on working", async () => {
    const token = mintToken();
    using at = makePair(many(3));
    addToken(at.from, token, "client", "NULL, 5000, NULL");
    addToken(at.from, "expired", "expired", "2000, NULL, NULL");
    addToken(at.from, "revoked", "client", "NULL, 2500, 3000");
    addToken(at.from, "till", "till", "NULL, NULL, NULL", `'plants:read,', '["indoor"]'`);
    expect(await runForJson(at.args)).toMatchObject({ tokens: { ...none, copied: 4 } });
    expect(readTokens(at.to)).toEqual(readTokens(at.from));
    await using service = await spawnService({ DATABASE_URL: urlOf(at.to) });
    expect(service.started.tokenFile).toBeUndefined();
    const statusOf = async (bearer: string): Promise<number> => {
      const headers = { authorization: `Bearer ${bearer}` };
      return (await send(service.started, "GET", "/plants/1", { headers })).status;
    };
    expect([await statusOf(token), await statusOf("revoked")]).toEqual([200, 401]);
  });

  test("a token whose name is taken in the target is not copied, and named: exit 1", async () => {
    using at = makePair(many(3), []);
    addToken(at.from, "laptop", "me");
    addToken(at.from, "other");
    addToken(at.to, "cluster", "me");
    const has = (seed: string): boolean =>
      readTokens(at.to).some(({ hash }) => hash === hashToken(seed));
    const says =
      `1 token cannot be copied, because other tokens of ${at.to} have the same name: me. ` +
      "Revoke those there (plantstore token revoke) and run the copy again.\n";
    expect(await runCommand(at.args)).toEqual(failure(1, says));
    expect([has("laptop"), has("other")]).toEqual([false, true]);
    const way = ["token", "revoke", "me", "--database-url", urlOf(at.to)];
    expect((await runCommand(way)).exitCode).toBe(0);
    expect((await runCommand(at.args)).exitCode).toBe(0);
    expect(has("laptop")).toBe(true);
    expect(readPlants(at.to)).toEqual(many(3));
  });
});

test("a copy that is interrupted says how far it got, and the next one continues it, also after a kill", async () => {
  using at = makePair(many(30_000));
  const interrupted = startCommand([...at.args, "--json"]);
  await until("a plant is copied", () => countCopied(at.to) > 0);
  interrupted.kill("SIGINT");
  const finished = await interrupted.finished;
  expect(finished.exitCode).toBe(130);
  expect(finished.stderr).toMatch(
    /^plantstore: interrupted\. [\d,]+ plants copied, 0 already there\. Running the copy again continues it\.\n$/,
  );
  const copied = countCopied(at.to);
  const summary = { finished: false, plants: { copied }, verification: null };
  expect(JSON.parse(finished.stdout)).toMatchObject(summary);

  const killed = startCommand(at.args);
  await until("more plants are copied", () => countCopied(at.to) > copied);
  killed.kill("SIGKILL");
  expect((await killed.finished).exitCode).toBe(137);
  const before = countCopied(at.to);
  expect(before).toBeLessThan(30_000);
  expect(await runForJson(at.args)).toMatchObject({
    plants: { ...none, copied: 30_000 - before, present: before },
    verification: { equal: true },
  });
  expect(Bun.deepEquals(readPlants(at.to), readPlants(at.from))).toBe(true);
});

/** None while the store is being made. */
function countCopied(path: string): number {
  try {
    return countPlants(path);
  } catch {
    return 0;
  }
}
