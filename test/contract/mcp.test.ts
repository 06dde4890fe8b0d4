/** The tools of /mcp, on every engine. */

import { describe, expect, test } from "bun:test";
import { Client } from "../../client/client.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { hashToken } from "../../src/auth/token.ts";
import { filterNames } from "../../src/domain/filter.ts";
import { limits } from "../support/limits.ts";
import { ask, call, judged, listTools, readRpc } from "../support/mcp.ts";
import { rejectionOf } from "../support/expect.ts";
import { until } from "../support/until.ts";
import { readRefusal } from "../support/plants.ts";
import {
  grantToken,
  startService,
  startShared,
  storePlants,
  TEST_TOKEN,
  type TestService,
} from "../support/service.ts";

const LARGE = "9007199254740993";
const INT64_MIN = "-9223372036854775808";
const INT64_MAX = "9223372036854775807";

const shared = await startShared();

const refused = (reason: ErrorName, ...says: readonly string[]): object => ({
  isError: true,
  error: catalogue[reason].code,
  message: expect.stringMatching(
    new RegExp(says.map((part) => part.replaceAll(/[^\w ]/g, String.raw`\$&`)).join(".*")),
  ) as string,
});

/** Follows the cursor to the last page. */
async function readPages(service: TestService, name: string, given: object) {
  const pages: Record<string, unknown>[] = [];
  let after: unknown;
  do {
    const page = (await call(service, name, { after, ...given })) as Record<string, unknown>;
    pages.push(page);
    after = page["next"];
  } while (after !== undefined);
  return pages;
}

const READING = ["read_plant", "find_plants", "count_plants", "plant_history"];
const WRITING = ["create_plant", "replace_plant", "remove_plant"];
/** They show what was not sent. */
const BOTH = ["patch_plant", "change_plants", "remove_plants", "write_plants", "revert_changes"];

describe("a token", () => {
  test.each([
    ["plants:read", ["plants:read"], READING],
    ["plants:write", ["plants:write"], WRITING],
    ["both", ["plants:read", "plants:write"], [...READING, ...WRITING, ...BOTH]],
    ["tokens:manage", ["tokens:manage"], []],
  ] as const)("with %s is shown the tools that it may call", async (_, scopes, names) => {
    const token = await grantToken(shared, scopes);
    expect((await listTools(shared, token)).map(({ name }) => name)).toEqual([...names]);
  });

  test("cannot call a tool that it is not shown: 403, with the scope that it lacks", async () => {
    await call(shared, "create_plant", { id: "70", name: "kept" });
    const [reader, writer] = await Promise.all([
      grantToken(shared, ["plants:read"]),
      grantToken(shared, ["plants:write"]),
    ]);
    const calls = [
      ...[...WRITING, ...BOTH].map((name) => [name, reader, "plants:write"]),
      ...[...READING, ...BOTH].map((name) => [name, writer, "plants:read"]),
    ];
    for (const [name = "", token, scope] of calls) {
      const given = { name, arguments: { id: "70", dryRun: false, from: 1 } };
      const response = await ask(shared, "tools/call", given, token);
      expect([name, response.status, response.headers.get("www-authenticate")]).toEqual([
        name,
        403,
        `Bearer realm="plants", error="insufficient_scope", scope="${scope}"`,
      ]);
      expect(await readRefusal(response)).toBe("insufficient_scope");
    }
    expect(await call(shared, "read_plant", { id: "70" })).toMatchObject({ name: "kept" });
  });
});

describe("the list of tools", () => {
  test("has hints, and ids as strings", async () => {
    for (const { name, description, inputSchema, annotations } of await listTools(shared)) {
      const { properties = {}, required = [], additionalProperties } = inputSchema;
      expect(annotations).toEqual({
        readOnlyHint: READING.includes(name),
        destructiveHint: [...WRITING.slice(1), ...BOTH].includes(name),
        idempotentHint: true,
        openWorldHint: false,
      });
      expect(description?.length).toBeGreaterThan(20);
      expect(additionalProperties).toBe(false);
      expect(required.filter((member) => !(member in properties))).toEqual([]);
      if (properties["id"] !== undefined)
        expect(properties["id"]).toMatchObject({ type: "string" });
    }
  });

  test("has every filter of plants", async () => {
    const tools = await listTools(shared);
    const membersOf = (asked: string): string[] =>
      Object.keys(tools.find(({ name }) => name === asked)?.inputSchema.properties ?? {});
    expect(membersOf("count_plants")).toEqual([...filterNames]);
    for (const name of ["change_plants", "remove_plants"])
      expect(membersOf(name)).toEqual(expect.arrayContaining([...filterNames]));
    expect(membersOf("find_plants")).toEqual([
      ...filterNames,
      "order",
      "limit",
      "sort",
      "include",
      "after",
    ]);
  });
});

describe("one plant", () => {
  test("is created, read, replaced and removed, with every digit of its id", async () => {
    for (const id of [LARGE, INT64_MIN, INT64_MAX, "0", "-1"]) {
      const plant = { id, name: 'Aloë "vera", {"id":5', tag: "t" };
      expect(await call(shared, "create_plant", plant)).toEqual({ id, replayed: false });
      expect(await call(shared, "create_plant", plant)).toEqual({ id, replayed: true });
      const taken = await call(shared, "create_plant", { id, name: "other" });
      expect(taken).toEqual(refused("id_taken", id));
      const { etag, ...read } = (await call(shared, "read_plant", { id })) as { etag: string };
      expect(read).toEqual(plant as object);
      const replaced = await call(shared, "replace_plant", { id, name: "new", ifMatch: etag });
      expect(replaced).toEqual({ id, etag: expect.not.stringMatching(etag) as string });
      const now = await call(shared, "read_plant", { id });
      expect(now).toEqual({ ...(replaced as object), name: "new" });
      const changes = { replace_plant: { id, name: "lost" }, remove_plant: { id } };
      const lost = refused("precondition_failed");
      for (const [name, given] of Object.entries(changes))
        expect(await call(shared, name, { ...given, ifMatch: etag })).toEqual(lost);
      expect(await call(shared, "remove_plant", { id })).toEqual({ id });
      for (const [name, given] of Object.entries({ ...changes, read_plant: { id } }))
        expect(await call(shared, name, given)).toEqual(refused("plant_not_found"));
    }
  });

  test("may be sent with null for what it lacks, as models do", async () => {
    const given = { id: "71", name: "a", tag: null, batch: null };
    expect(await call(shared, "create_plant", given)).toEqual({ id: "71", replayed: false });
    expect(await shared.findPlant(71n)).toMatchObject({ id: 71n, name: "a", tag: null });
  });
});

/** What `in` finds in any object. */
const ofEveryObject = Object.getOwnPropertyNames(Object.prototype);

const [create, find] = ["create_plant", "find_plants"] as const;
test.each<[tool: string, given: object, ...says: string[]]>([
  [create, { id: 1, name: "a" }, "id: expected a string with the digits", "got 1"],
  [create, { id: "9223372036854775808", name: "a" }, "id: expected", INT64_MAX],
  [create, { id: "72" }, "name: expected a string", "got nothing"],
  [create, { name: 5, tag: {} }, "name: expected a string", "got 5; tag: expected", "an object"],
  [create, { id: "72", name: "\0" }, "name: expected text without U+0000", "a string with U+0000"],
  [create, { id: "72", name: "a", Tag: "b" }, '"Tag": unknown'],
  [find, { limit: 0 }, "limit: expected an integer from 1 to 200, got 0"],
  [find, { limit: "1" }, "limit: expected", 'got the string "1"'],
  [find, { after: "x" }, "after: expected an integer", 'got the string "x"'],
  [find, { order: "up" }, "order: expected asc or desc"],
  [find, { sort: "colour" }, "sort: expected id, -id, name"],
  [find, { sort: "name", after: "5" }, "after: expected next of an answer with sort name, got"],
  [find, { tag: 1, name: [], q: {} }, "tag: expected text", "name: expected", "q: expected"],
  [find, { tags: "a" }, '"tags": unknown'],
  ["plant_history", { id: "72", after: "1" }, "after: expected"],
  ["plant_history", { id: "72", after: -1 }, "after: expected"],
  ["plant_history", { id: "72", after: 1.5 }, "after: expected"],
  ["patch_plant", { id: "72" }, "patch: expected an object with name, tag or both, got nothing"],
  ["patch_plant", { id: "72", patch: [] }, "body: expected an object, got an array"],
  ["patch_plant", { id: "72", patch: { id: "1" } }, "the id of a plant never changes"],
  [
    "patch_plant",
    { id: "72", patch: {}, ifMatch: "x" },
    "ifMatch: expected the etag of an earlier",
  ],
  ["remove_plant", { id: "72", ifMatch: "x" }, "ifMatch: expected the etag of an earlier answer"],
  ["change_plants", { tag: "t", patch: { name: null } }, "name: expected a string, got null"],
  ["change_plants", { tag: "t", patch: { Tag: "x" } }, '"Tag": unknown; allowed: name, tag'],
  ["remove_plants", { tag: "t", dryRun: "false" }, "dryRun: expected true or false"],
  ["remove_plants", { all: true, except: [7] }, "except: expected a list of at most 1000 ids"],
  ["remove_plants", { all: true, except: "7" }, "except: expected a list of at most 1000 ids"],
  ["remove_plants", { all: "true" }, "all: expected true or false"],
  ["write_plants", { writes: {} }, "writes: expected a list of at most 1000 objects"],
  ["write_plants", { writes: [1] }, "writes: expected a list"],
  ["write_plants", { writes: [{ id: 72, name: "a" }] }, "line 1: id: expected a string with", "72"],
  ["write_plants", { writes: [{ id: "72", nam: "a" }] }, '"nam": unknown; allowed: id, name'],
  ["write_plants", { writes: [{ id: "72", name: "\0" }] }, "line 1: name: expected text"],
  ["write_plants", { writes: [{ id: "72", removed: false }], dryRun: false }, "removed: expected"],
  [
    "write_plants",
    { writes: [{ id: "72", removed: true, ifMatch: "x" }], dryRun: false },
    "line 1: ifMatch: expected * or a list of entity tags",
  ],
  ["find_plants", { tagged: "false" }, "tagged: expected true or false"],
  ["revert_changes", {}, "expected at least one of from, to, by, batch and types"],
  ["revert_changes", { batch: "b", dryRun: "false" }, "dryRun: expected true or false"],
  ["revert_changes", { from: "yesterday" }, "from: expected the number of a change, or a time"],
  ["revert_changes", { since: 1 }, '"since": unknown'],
])("%s with %j is refused before it stores anything", async (tool, given, ...says) => {
  const before = await shared.readPlants();
  expect(await call(shared, tool, given)).toEqual(refused("invalid_body", ...says));
  expect(await shared.readPlants()).toEqual(before);
});

test("every tool names the arguments of its description when it refuses another", async () => {
  for (const { name, inputSchema } of await listTools(shared)) {
    const known = Object.keys(inputSchema.properties ?? {}).join(", ");
    for (const other of ["nonesuch", ...ofEveryObject]) {
      const says = `"${other}": unknown; allowed: ${known}`;
      const given = Object.fromEntries([[other, 1]]);
      expect(await call(shared, name, given)).toEqual(refused("invalid_body", says));
    }
  }
});

test.each(ofEveryObject)("a write or a patch with the member %s is refused", async (member) => {
  const more = Object.fromEntries([[member, 1]]);
  const says = `"${member}": unknown; allowed: `;
  for (const [tool, given] of [
    ["write_plants", { writes: [{ id: "72", name: "a", ...more }] }],
    ["change_plants", { tag: "t", patch: { name: "a", ...more } }],
    ["patch_plant", { id: "72", patch: { name: "a", ...more } }],
  ] as const)
    expect([tool, await call(shared, tool, given)]).toEqual([tool, refused("invalid_body", says)]);
});

describe("finding plants", () => {
  test("pages and filters as GET /plants does", async () => {
    await using service = await startService();
    const client = new Client(service.url, TEST_TOKEN, { delaysMs: [] });
    const ids = [INT64_MIN, "-5", "1", LARGE, INT64_MAX];
    for (const [index, id] of ids.entries())
      await client.create({ id: BigInt(id), name: `Plant ${index}`, tag: index < 2 ? "a" : "b" });
    const walk = async (query: object): Promise<unknown[]> =>
      (await readPages(service, "find_plants", query))
        .flatMap(({ plants }) => plants as { readonly id: string }[])
        .map(({ id }) => id);
    for (const limit of [1, 2, 200]) {
      expect(await walk({ limit })).toEqual(ids);
      expect(await walk({ limit, order: "desc" })).toEqual(ids.toReversed());
      expect(await walk({ limit, tag: "b" })).toEqual(ids.slice(2));
      expect(await walk({ limit, name: "PLANT 3" })).toEqual([LARGE]);
      expect(await walk({ limit, q: "4 plant" })).toEqual([INT64_MAX]);
      expect(await walk({ limit, q: " ", tag: "a" })).toEqual(ids.slice(0, 2));
      expect(await walk({ limit, tag: "c" })).toEqual([]);
      expect(await walk({ limit, tagged: true })).toEqual(ids);
      expect(await walk({ limit, sort: "-name" })).toEqual(ids.toReversed());
      expect(await walk({ limit, sort: "tag", name: "plant" })).toEqual(ids);
    }
    for (const [filter, count] of [
      [{}, 5],
      [{ tag: "b", q: "plant" }, 3],
      [{ tagged: false }, 0],
    ] as const)
      expect(await call(service, "count_plants", filter)).toEqual({ count, exact: true });
  });

  test("reads on over plants that do not match, instead of answering empty pages", async () => {
    await using service = await startService(limits({ scanRowsMax: 2 }));
    await storePlants(service, 40, "other");
    await call(service, "create_plant", { id: "40", name: "wanted" });
    const pages = await readPages(service, "find_plants", { name: "wanted" });
    expect(pages.flatMap(({ plants }) => plants)).toEqual([{ id: "40", name: "wanted" }]);
    expect(pages.length).toBeLessThan(10);
  });
});

test("the history of a plant has each change with its token and batch, in pages by a cursor", async () => {
  const [id, by] = ["73", "agent"];
  const token = await grantToken(shared, ["plants:read", "plants:write"], { name: by });
  const write = (name: string, given: object): Promise<unknown> =>
    call(shared, name, { id, ...given }, token);
  await write("create_plant", { name: "a", batch: "spring" });
  await call(shared, "create_plant", { id: "74", name: "another" });
  await write("replace_plant", { name: "b", tag: "t" });
  await write("remove_plant", {});
  const readAll = async (given: object) =>
    (await readPages(shared, "plant_history", given)).flatMap(({ changes }) => changes);
  const history = await readAll({ id });
  expect(history).toMatchObject([
    { id, type: "created", by, batch: "spring", plant: { name: "a" } },
    { id, type: "replaced", by, before: { name: "a" }, plant: { name: "b", tag: "t" } },
    { id, type: "removed", by, before: { name: "b", tag: "t" } },
  ]);
  const pages = await readPages(shared, "plant_history", { id, limit: 1 });
  expect(pages.flatMap(({ changes }) => changes)).toEqual(history);
  expect(pages.every(({ changes }) => (changes as unknown[]).length <= 1)).toBe(true);
  const [first] = history as [{ readonly seq: number }];
  expect(await readAll({ id, after: first.seq })).toEqual(history.slice(1));
  expect(await readAll({ id: "75" })).toEqual([]);
});

test("a page of long names ends early, also of their changes", async () => {
  await using service = await startService();
  const name = "x".repeat(20_000);
  for (const id of ["1", "2", "3", "4"]) await call(service, "create_plant", { id, name });
  expect(await call(service, "find_plants", {})).toEqual({
    plants: ["1", "2"].map((id) => ({ id, name })),
    next: "2",
  });
  await call(service, "replace_plant", { id: "1", name: name.toUpperCase() });
  await call(service, "remove_plant", { id: "1" });
  const pages = await readPages(service, "plant_history", { id: "1" });
  const types = pages.map(({ changes }) => (changes as { type: string }[]).map(({ type }) => type));
  expect(types.flat()).toEqual(["created", "replaced", "removed"]);
  expect(types.every(({ length }) => length <= 1)).toBe(true);
});

describe("a revert", () => {
  test("is a dry run unless `dryRun` is false", async () => {
    await using service = await startService();
    await call(service, "create_plant", { id: LARGE, name: "before" });
    await call(service, "create_plant", { id: "2", name: "before" });
    const batch = "a mistake";
    await call(service, "replace_plant", { id: LARGE, name: "after", batch });
    await call(service, "replace_plant", { id: "2", name: "after", batch });
    await call(service, "create_plant", { id: "3", name: "new", batch });
    await call(service, "replace_plant", { id: "2", name: "since" });
    const counts = { plants: 3, unchanged: 0, changedSince: 1 };
    const sample = [
      { id: "3", now: { name: "new" } },
      { id: LARGE, now: { name: "after" }, before: { name: "before" } },
    ];
    const skipped = [{ id: "2", now: { name: "since" } }];
    const preview = { ...counts, revertible: 2, sample, skipped };
    for (const dryRun of [true, null, undefined])
      expect(await call(service, "revert_changes", { batch, dryRun })).toEqual(preview);
    expect(await call(service, "read_plant", { id: LARGE })).toMatchObject({ name: "after" });
    const report = await call(service, "revert_changes", { batch, dryRun: false });
    const { code: error, status } = catalogue.precondition_failed;
    expect(report).toEqual({
      ...counts,
      reverted: 2,
      refused: 0,
      batch: expect.stringMatching(/^revert \d{4}-/) as string,
      complete: true,
      left: [{ id: "2", status, error, message: expect.any(String) as string }],
    });
    expect(await call(service, "read_plant", { id: LARGE })).toMatchObject({ name: "before" });
    expect(await call(service, "read_plant", { id: "3" })).toEqual(refused("plant_not_found"));
    const { batch: own } = report as { batch: string };
    expect(await call(service, "plant_history", { id: "3" })).toMatchObject({
      changes: [{ batch }, { type: "removed", batch: own, by: "PLANTSTORE_TOKEN" }],
    });
  });

  test("of more plants than a dry run accepts is refused", async () => {
    await using service = await startService(limits({ revertPlantsMax: 2 }));
    for (const id of ["1", "2", "3"])
      await call(service, "create_plant", { id, name: "a", batch: "b" });
    const large = refused("range_too_large");
    for (const dryRun of [true, false])
      expect(await call(service, "revert_changes", { batch: "b", dryRun })).toEqual(large);
    expect(await call(service, "count_plants", {})).toMatchObject({ count: 3 });
  });

  test("ends when its token is revoked, or its client leaves", async () => {
    await using service = await startService();
    for (let id = 1; id <= 40; id++) {
      const name = id <= 20 ? "revoked" : "left";
      await call(service, "create_plant", { id: String(id), name, batch: name });
    }
    // Its rate pays for half of its plants. Then it would wait for hours.
    const revert = async (batch: string, signal?: AbortSignal) => {
      const scopes = ["plants:read", "plants:write"] as const;
      const token = await grantToken(service, scopes, { rate: "10/h" });
      const given = { name: "revert_changes", arguments: { batch, dryRun: false } };
      const answer = ask(service, "tools/call", given, token, signal);
      await until(
        "a plant to be reverted",
        async () => (await service.readPlants()).filter(({ name }) => name === batch).length < 20,
      );
      return { token, answer };
    };
    const { token, answer } = await revert("revoked");
    await service.store.revokeToken(hashToken(token), Date.now());
    const { result } = await readRpc(await answer);
    const ended = { complete: false, error: catalogue.token_invalid.code };
    expect(result?.["structuredContent"]).toMatchObject(ended);
    const leaving = new AbortController();
    const { answer: left } = await revert("left", leaving.signal);
    leaving.abort();
    expect(await rejectionOf(left)).toBeInstanceOf(Error);
    await until("the revert to end", () =>
      service.logLines.some((line) => /"bulk_broken_off".*"body_incomplete"/.test(line)),
    );
  });

  test("lists at most 20 of the plants that it left alone", async () => {
    for (let id = 101; id <= 125; id++) {
      await call(shared, "create_plant", { id: String(id), name: "a", batch: "many" });
      await call(shared, "replace_plant", { id: String(id), name: "since" });
    }
    expect(await call(shared, "revert_changes", { batch: "many", dryRun: false })).toMatchObject({
      plants: 25,
      changedSince: 25,
      complete: true,
      left: Array.from({ length: 20 }, () => ({ status: 412 })),
    });
  });
});

describe("changing many", () => {
  test("one plant, by a patch", async () => {
    await using service = await startService();
    await call(service, "create_plant", { id: LARGE, name: "Fern", tag: "shade" });
    const patched = await call(service, "patch_plant", { id: LARGE, patch: { tag: null } });
    expect(patched).toEqual({ id: LARGE, name: "Fern", etag: expect.any(String) as string });
    const given = { id: LARGE, patch: { name: "x" }, ifMatch: '"old"' };
    expect(await call(service, "patch_plant", given)).toEqual(refused("precondition_failed"));
    expect(await call(service, "patch_plant", { id: "1", patch: {} })).toEqual(
      refused("plant_not_found"),
    );
  });

  test("a list of writes is a dry run unless `dryRun` is false", async () => {
    await using service = await startService();
    await call(service, "create_plant", { id: LARGE, name: "Fern" });
    const writes = [
      { id: LARGE, name: "Ivy" },
      { id: "2", name: "Moss", tag: "shade" },
      { id: "2", removed: true },
      { id: "3", removed: true },
    ];
    const outcomesOf = (result: unknown): unknown[] =>
      (result as { results: { outcome?: string; status: number }[] }).results.map(
        ({ outcome, status }) => outcome ?? status,
      );
    const run = async (more: object): Promise<unknown[]> =>
      outcomesOf(await call(service, "write_plants", { writes, ...more }));
    expect(await run({})).toEqual([409, "created", "removed", 404]);
    const upserted = ["replaced", "created", "removed", "replayed"];
    for (const dryRun of [true, null])
      expect(await run({ upsert: true, dryRun })).toEqual(upserted);
    expect(await call(service, "find_plants", {})).toEqual({
      plants: [{ id: LARGE, name: "Fern" }],
    });
    const atomic = { writes, atomic: true, dryRun: false };
    expect(await call(service, "write_plants", atomic)).toEqual(refused("id_taken", "line 1: "));
    expect(await run({ upsert: true, atomic: true, dryRun: false, batch: "b" })).toEqual(upserted);
    expect(await run({ upsert: true, dryRun: false })).toEqual([
      "replayed",
      "created",
      "removed",
      "replayed",
    ]);
    expect(await call(service, "find_plants", {})).toEqual({
      plants: [{ id: LARGE, name: "Ivy" }],
    });
  });

  test("a change of all that match is a dry run unless `dryRun` is false", async () => {
    await using service = await startService();
    for (const id of ["1", LARGE]) await call(service, "create_plant", { id, name: "a", tag: "t" });
    const given = { tag: "t", patch: { tag: null } };
    for (const dryRun of [undefined, null, true])
      expect(await call(service, "change_plants", { ...given, dryRun })).toEqual({
        plants: 2,
        exact: true,
        sample: ["1", LARGE].map((id) => ({
          id,
          now: { name: "a", tag: "t" },
          after: { name: "a" },
        })),
      });
    expect(await call(service, "remove_plants", { name: "A" })).toMatchObject({ plants: 2 });
    expect(await call(service, "count_plants", { tag: "t" })).toMatchObject({ count: 2 });
    expect(await call(service, "change_plants", { ...given, dryRun: false })).toMatchObject({
      replaced: 2,
      complete: true,
      left: [],
    });
    const removed = await call(service, "remove_plants", { name: "a", dryRun: false, batch: "x" });
    expect(removed).toMatchObject({ removed: 2, batch: "x", complete: true });
    await call(service, "revert_changes", { batch: "x", dryRun: false });
    expect(await call(service, "count_plants", {})).toMatchObject({ count: 2 });
    const all = { all: true, except: [LARGE] };
    expect(await call(service, "remove_plants", all)).toMatchObject({ sample: [{ id: "1" }] });
    expect(await call(service, "remove_plants", { ...all, dryRun: false })).toMatchObject({
      removed: 1,
    });
    expect(await call(service, "find_plants", {})).toMatchObject({ plants: [{ id: LARGE }] });
  });

  test.each([{}, { name: "" }, { q: " " }, { q: "", name: "", batch: "b" }, { except: [] }])(
    "all plants, by %j, is refused",
    async (filter) => {
      await using service = await startService();
      await call(service, "create_plant", { id: "1", name: "a" });
      for (const dryRun of [true, false]) {
        const given = { ...filter, dryRun };
        const none = refused("invalid_query", "expected a filter");
        expect(await call(service, "remove_plants", given)).toEqual(none);
        const patching = { ...given, patch: { name: "b" } };
        expect(await call(service, "change_plants", patching)).toEqual(none);
      }
      expect(await call(service, "count_plants", { name: "a" })).toMatchObject({ count: 1 });
    },
  );
});

test("a temporary refusal is a result that says so", async () => {
  await using service = await startService(limits({ plantsMax: 1 }));
  await call(service, "create_plant", { id: "1", name: "a" });
  const full = await call(service, "create_plant", { id: "2", name: "b" });
  expect(full).toEqual(refused("store_full"));
  const logged = service.logLines.find((line) => line.includes("tool_refused")) ?? "";
  const about = { tool: "create_plant", token: "PLANTSTORE_TOKEN", reason: "store_full" };
  expect(JSON.parse(logged)).toMatchObject({ event: "tool_refused", ...about });
});

test("a failure of ours answers 500 without its cause", async () => {
  await using service = await startService();
  await service.database.failPlantsNamed("boom");
  const given = { name: "create_plant", arguments: { id: "1", name: "boom" } };
  const response = await ask(service, "tools/call", given);
  expect([response.status, await readRefusal(response)]).toEqual([500, "internal"]);
});

test("each tool answered by then what its schema says", async () => {
  const names = (await listTools(shared)).map(({ name }) => name);
  expect([...judged].toSorted()).toEqual(names.toSorted());
});
