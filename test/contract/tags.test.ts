/** GET /tags: pages in order, prefixes, and every bad parameter. */

import { beforeAll, describe, expect, test } from "bun:test";
import { countTags } from "../../src/http/plant-list.ts";
import { openTestStore } from "../support/database.ts";
import { expectError } from "../support/expect.ts";
import { toExact } from "../support/plants.ts";
import {
  getJson,
  send,
  startService,
  startShared,
  type TestService,
  walkPages,
} from "../support/service.ts";

const service = await startShared();

/** In the order of their bytes. */
const sorted = "|%|100%|100_|A|\\|_|a|a b&c=d|aa|b"
  .split("|")
  .concat("x".repeat(99), "ä", "\uffee", "🌵", "🌵🌵");
const long = ["x".repeat(100), "x".repeat(500)];

const fill = ({ store }: Pick<TestService, "store">, tags: readonly (string | undefined)[]) =>
  store.createPlants(tags.map((tag, id) => ({ id: BigInt(id), name: "n", tag })));

beforeAll(() => fill(service, [...sorted.toReversed(), ...sorted, undefined, ...long]));

const list = (query: string): Promise<Response> => send(service, "GET", `/tags${query}`);
const tagsOf = (query: string, from = service): Promise<string[]> => getJson(from, `/tags${query}`);
const nextOf = (response: Response): string | undefined =>
  /^<\/tags(?:\/counts)?(\?[^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];

const walk = async (query: string): Promise<unknown[]> =>
  (await walkPages(service, `/tags${query}`)).items;

describe("a page of tags", () => {
  test("has each tag of up to 99 characters once, in the order of its bytes", async () => {
    const response = await list("");
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.has("link")).toBe(false);
    expect(await response.json()).toEqual(sorted);
  });

  test.each([1, 15, 1000])("of %d leads through all tags, each once", async (limit) => {
    expect(await walk(`?limit=${limit}`)).toEqual(sorted);
  });

  test("is linked to the next with what was asked for, percent-encoded", async () => {
    expect(nextOf(await list("?limit=2"))).toBe("?after=%25&limit=2");
    const next = nextOf(await list("?limit=1&prefix=a&after=a"));
    expect(next).toBe("?after=a%20b%26c%3Dd&limit=1&prefix=a");
  });

  test("begins behind the empty tag if `after` is empty", async () => {
    expect(await tagsOf("?after=")).toEqual(sorted.slice(1));
  });

  test("begins behind `after`, whether there is such a tag or not", async () => {
    expect(await tagsOf("?after=a")).toEqual(sorted.slice(8));
    expect(await tagsOf("?after=aZ")).toEqual(sorted.slice(9));
    expect(await tagsOf(`?after=${encodeURIComponent("🌵")}`)).toEqual(["🌵🌵"]);
    expect(await tagsOf(`?after=${encodeURIComponent("\u{10ffff}")}`)).toEqual([]);
    expect(await tagsOf(`?after=${"x".repeat(150)}`)).toEqual(sorted.slice(12));
  });

  test("lacks a tag once its last plant is removed or has another", async () => {
    await using small = await startService();
    expect(await tagsOf("", small)).toEqual([]);
    await fill(small, [undefined]);
    expect(await tagsOf("", small)).toEqual([]);
    for (const id of [1, 2, 3]) await small.create(JSON.stringify({ id, name: "n", tag: "t" }));
    await send(small, "DELETE", "/plants/1");
    await send(small, "PUT", "/plants/2", { body: '{"name":"n","tag":"u"}' });
    expect(await tagsOf("", small)).toEqual(["t", "u"]);
    await send(small, "PUT", "/plants/3", { body: '{"name":"n"}' });
    expect(await tagsOf("", small)).toEqual(["u"]);
    await send(small, "DELETE", "/plants/2");
    expect(await tagsOf("", small)).toEqual([]);
  });
});

test("counts of tags come in the same order and pages, each exact", async () => {
  const expected = sorted.map((tag) => ({ tag, count: 2, exact: true }));
  expect(await walk("/counts?limit=7")).toEqual(expected);
  expect(await walk("/counts?prefix=a&after=a")).toEqual(expected.slice(8, 10));
});

describe("a prefix", () => {
  test.each([
    ["", sorted],
    ["a", ["a", "a b&c=d", "aa"]],
    ["%", ["%"]],
    ["_", ["_"]],
    ["\\", ["\\"]],
    ["100", ["100%", "100_"]],
    ["🌵", ["🌵", "🌵🌵"]],
    ["x".repeat(99), ["x".repeat(99)]],
    ["x".repeat(100), []],
    ["\u{10ffff}", []],
  ])("of %j finds exactly what begins with it", async (prefix, expected) => {
    expect(await walk(`?limit=2&prefix=${encodeURIComponent(prefix)}`)).toEqual(expected);
  });

  test("and `after` narrow each other", async () => {
    expect(await tagsOf("?prefix=a&after=a")).toEqual(["a b&c=d", "aa"]);
    expect(await tagsOf("?prefix=a&after=A")).toEqual(["a", "a b&c=d", "aa"]);
    expect(await tagsOf("?prefix=a&after=b")).toEqual([]);
    expect(await tagsOf("?prefix=a&after=")).toEqual(["a", "a b&c=d", "aa"]);
    // By bytes the one is behind the other, and by the units of a string before it.
    const [cacti, before] = ["🌵🌵", "\uffee"].map(encodeURIComponent);
    expect(await tagsOf(`?prefix=${cacti}&after=${before}`)).toEqual(["🌵🌵"]);
  });
});

test("a page of counts that takes longer than a second ends early", async () => {
  let nowMs = 0;
  const store = {
    countPlants: async () => {
      nowMs += 600;
      return { count: 1, exact: true };
    },
  };
  const count = (next?: string, ...tags: string[]) => countTags(store, { tags, next }, () => nowMs);
  const [a, b, c] = ["a", "b", "c"].map((tag) => ({ tag, count: 1, exact: true }));
  expect(await count("c", "a", "b", "c")).toEqual({ tags: [a, b], next: "b" } as never);
  expect(await count("b", "a", "b")).toEqual({ tags: [a, b], next: "b" } as never);
  expect(await count(undefined, "c")).toEqual({ tags: [c], next: undefined } as never);
});

describe("long tags", () => {
  const query = { prefix: "", after: undefined, limit: 1_000 };

  test("that are many end a page early", async () => {
    const many = Array.from({ length: 2_500 }, (_, at) => `m${at + 100_000}${"x".repeat(100)}`);
    await using store = await openTestStore();
    await fill({ store }, ["a", ...many, "z"]);
    const first = await store.listTags(query);
    expect(first).toEqual({ tags: ["a"], next: many[1_998]?.slice(0, 100) });
    const second = await store.listTags({ ...query, after: first.next });
    expect(second).toEqual({ tags: ["z"], next: undefined });
  });

  test("of a megabyte, all with the same beginning, are skipped in one step", async () => {
    const same = Array.from({ length: 8 }, (_, index) => "y".repeat(1_000_000) + index);
    await using store = await openTestStore();
    await fill({ store }, ["x", ...same, "y", "z"]);
    expect(await store.listTags(query)).toEqual({ tags: ["x", "y", "z"], next: undefined });
  });

  test("that no index could hold find their plants", async () => {
    const tag = Buffer.from(crypto.getRandomValues(new Uint8Array(60_000))).toString("base64");
    const tags = [tag, `${tag}x`, tag.slice(0, 100)];
    await using store = await openTestStore();
    await fill({ store }, tags);
    for (const [id, wanted] of tags.entries()) {
      const asked = { after: undefined, limit: 9, name: undefined, order: "asc" } as const;
      const { plants } = await store.listPlants({ ...asked, tag: wanted });
      expect(toExact(plants)).toEqual([{ id: BigInt(id), name: "n", tag: wanted }]);
    }
  });
});

test.each([
  ["?limit=1001", ["limit: expected an integer from 1 to 1000"]],
  ["?prefix=a&prefix=b", ["prefix: given more than once"]],
  ["?after=%FF", ["after: expected UTF-8"]],
  ["?tag=a", ['"tag": unknown']],
  ["/counts?tag=a", ['"tag": unknown']],
  ["?limit=0&a=1&prefix=%00", ['"a": unknown', "; prefix: ", "; limit: "]],
])("%s gets a 400 that names the fault", async (query, says) => {
  await expectError(await list(query), "invalid_query", ...says);
});
