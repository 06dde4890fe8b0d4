/** GET /tags: pages in order, prefixes, and every bad parameter. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue } from "../../src/domain/errors.ts";
import { readError, send, startService, type TestService } from "../support/service.ts";

const service = await startService();

afterAll(() => service[Symbol.asyncDispose]());

/** In the order of their bytes. */
const sorted = [
  "",
  "%",
  "100%",
  "100_",
  "A",
  "\\",
  "_",
  "a",
  "a b&c=d",
  "aa",
  "b",
  "x".repeat(99),
  "ä",
  "\uffee",
  "🌵",
  "🌵🌵",
];

beforeAll(async () => {
  const tags = [...sorted.toReversed(), ...sorted, undefined, "x".repeat(100), "x".repeat(500)];
  for (const [id, tag] of tags.entries())
    await service.store.createPlant({ id: BigInt(id), name: "n", tag });
});

const list = (query: string, from: TestService = service): Promise<Response> =>
  send(from, "GET", `/tags${query}`);
const tagsOf = async (query: string, from?: TestService): Promise<string[]> =>
  (await (await list(query, from)).json()) as string[];
const nextOf = (response: Response): string | undefined =>
  /^<\/tags(?:\/counts)?(\?[^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];

async function walk(query: string): Promise<{ tags: string[]; pages: number }> {
  const tags: string[] = [];
  let pages = 0;
  for (let next: string | undefined = query; next !== undefined; pages++) {
    const response = await list(next);
    expect(response.status).toBe(200);
    tags.push(...((await response.json()) as string[]));
    next = nextOf(response);
  }
  return { tags, pages };
}

describe("a page of tags", () => {
  test("has each tag once, in the order of its bytes, and none of 100 characters or more", async () => {
    const response = await list("");
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.has("link")).toBe(false);
    expect(await response.json()).toEqual(sorted);
  });

  test.each([1, 2, 5, 15, 17, 1000])("of %d leads through all tags, each once", async (limit) => {
    const { tags } = await walk(`?limit=${limit}`);
    expect(tags).toEqual(sorted);
  });

  test("is linked to the next with what was asked for, percent-encoded, under the base path", async () => {
    expect(nextOf(await list("?limit=2"))).toBe("?after=%25&limit=2");
    expect(nextOf(await list("?limit=1&prefix=a&after=a"))).toBe(
      "?after=a%20b%26c%3Dd&limit=1&prefix=a",
    );
    await using shop = await startService({ PLANTSTORE_BASE_PATH: "/shop" });
    for (const [id, tag] of ["a", "b"].entries())
      await shop.create(JSON.stringify({ id, name: "n", tag }));
    expect((await list("?limit=1", shop)).headers.get("link")).toBe(
      '</shop/tags?after=a&limit=1>; rel="next"',
    );
  });

  test("begins behind `after`, whether there is such a tag or not; empty, it is the empty tag", async () => {
    expect(await tagsOf("?after=")).toEqual(sorted.slice(1));
    expect(await tagsOf("?after=a")).toEqual(sorted.slice(8));
    expect(await tagsOf("?after=aZ")).toEqual(sorted.slice(9));
    expect(await tagsOf(`?after=${encodeURIComponent("🌵")}`)).toEqual(["🌵🌵"]);
    expect(await tagsOf(`?after=${encodeURIComponent("\u{10ffff}")}`)).toEqual([]);
    expect(await tagsOf(`?after=${"x".repeat(150)}`)).toEqual(sorted.slice(12));
  });

  test("of an empty store, and of plants without tags, is empty", async () => {
    await using empty = await startService();
    expect(await tagsOf("", empty)).toEqual([]);
    await empty.create('{"id":1,"name":"a"}');
    expect(await tagsOf("", empty)).toEqual([]);
  });

  test("lacks a tag when its last plant is removed or has another", async () => {
    await using small = await startService();
    for (const id of [1, 2, 3]) await small.create(JSON.stringify({ id, name: "n", tag: "t" }));
    await send(small, "DELETE", "/plants/1");
    await send(small, "PUT", "/plants/2", { body: '{"name":"n","tag":"u"}' });
    expect(await tagsOf("", small)).toEqual(["t", "u"]);
    await send(small, "PUT", "/plants/3", { body: '{"name":"n"}' });
    expect(await tagsOf("", small)).toEqual(["u"]);
    await send(small, "DELETE", "/plants/2");
    expect(await tagsOf("", small)).toEqual([]);
  });

  test("needs plants:read", async () => {
    const token = mintToken();
    await service.store.createToken(
      toRecord(token, { name: "writer", scopes: ["plants:write"], createdAtMs: Date.now() }),
    );
    const headers = { authorization: `Bearer ${token}` };
    const refused = await readError(await send(service, "GET", "/tags", { headers }));
    expect(refused).toMatchObject({ status: 403, error: catalogue.insufficient_scope.code });
    expect((await fetch(`${service.url}/tags`)).status).toBe(401);
  });
});

describe("counts of tags", () => {
  test("come in the same order and pages, each exact", async () => {
    const expected = sorted.map((tag) => ({ tag, count: 2, exact: true }));
    const counted: unknown[] = [];
    for (let next: string | undefined = "?limit=7"; next !== undefined;) {
      const response = await send(service, "GET", `/tags/counts${next}`);
      counted.push(...((await response.json()) as unknown[]));
      next = nextOf(response);
    }
    expect(counted).toEqual(expected);
    const some = await send(service, "GET", "/tags/counts?prefix=a&after=a");
    expect(await some.json()).toEqual(expected.slice(8, 10));
  });

  test("refuse what is wrong, and need a token", async () => {
    const refused = await readError(await send(service, "GET", "/tags/counts?tag=a"));
    expect(refused.message).toContain('"tag": unknown; known are prefix, after, limit');
    expect((await fetch(`${service.url}/tags/counts`)).status).toBe(401);
  });
});

describe("a prefix", () => {
  test.each([
    ["", sorted],
    ["a", ["a", "a b&c=d", "aa"]],
    ["A", ["A"]],
    ["a ", ["a b&c=d"]],
    ["%", ["%"]],
    ["_", ["_"]],
    ["\\", ["\\"]],
    ["100", ["100%", "100_"]],
    ["100%", ["100%"]],
    ["100_", ["100_"]],
    ["🌵", ["🌵", "🌵🌵"]],
    ["ä", ["ä"]],
    ["x".repeat(99), ["x".repeat(99)]],
    ["x".repeat(100), []],
    ["x".repeat(500), []],
    ["zzz", []],
    ["\u{10ffff}", []],
  ])("of %j finds exactly what begins with it", async (prefix, expected) => {
    const { tags } = await walk(`?limit=2&prefix=${encodeURIComponent(prefix)}`);
    expect(tags).toEqual(expected);
  });

  test("and `after` narrow each other", async () => {
    expect(await tagsOf("?prefix=a&after=a")).toEqual(["a b&c=d", "aa"]);
    expect(await tagsOf("?prefix=a&after=A")).toEqual(["a", "a b&c=d", "aa"]);
    expect(await tagsOf("?prefix=a&after=b")).toEqual([]);
    expect(await tagsOf("?prefix=a&after=")).toEqual(["a", "a b&c=d", "aa"]);
    // By bytes the one is behind the other, and by the units of a string before it.
    const cacti = encodeURIComponent("🌵🌵");
    expect(await tagsOf(`?prefix=${cacti}&after=${encodeURIComponent("\uffee")}`)).toEqual([
      "🌵🌵",
    ]);
  });
});

describe("a parameter", () => {
  test.each([
    ["?limit=0", 'limit: expected an integer from 1 to 1000, got "0"'],
    ["?limit=1001", "limit: expected an integer from 1 to 1000"],
    ["?limit=", "limit: "],
    ["?limit=1.5", "limit: "],
    ["?limit=5&limit=5", "limit: given more than once"],
    ["?prefix=a&prefix=b", "prefix: given more than once"],
    ["?after=&after=", "after: given more than once"],
    ["?prefix=%00", "prefix: expected UTF-8 without U+0000"],
    ["?after=%FF", "after: expected UTF-8"],
    ["?after=%ED%A0%80", "after: expected UTF-8"],
    ["?tag=a", '"tag": unknown; known are prefix, after, limit'],
    ["?order=desc", '"order": unknown'],
    ["?Prefix=a", '"Prefix": unknown'],
    ["?limit=0&a=1&prefix=%00", '"a": unknown'],
    ["?limit=0&a=1&prefix=%00", "; prefix: "],
    ["?limit=0&a=1&prefix=%00", "; limit: "],
  ])("%s is refused, and named", async (query, says) => {
    const refused = await readError(await list(query));
    expect(refused).toMatchObject({ status: 400, error: catalogue.invalid_query.code });
    expect(refused.message).toContain(says);
  });
});
