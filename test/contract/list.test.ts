/** GET /plants: pages by key, filters, order, streams, and every bad parameter. */

import { beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import type { PlantQuery } from "../../src/domain/page.ts";
import type { ListedPlant } from "../../src/domain/plant.ts";
import { takePage, toExact } from "../support/plants.ts";
import { expectError } from "../support/expect.ts";
import { parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import {
  getJson,
  getText,
  send,
  startService,
  startShared,
  walkPages,
} from "../support/service.ts";

const service = await startShared(limits({ scanRowsMax: 100 }));
/** Empty at the beginning of each test. */
const small = await startShared();

beforeEach(() => small.database.run("DELETE FROM plants"));

type Listed = { readonly id: number };

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);
const tens = range(1, 25).map((n) => n * 10);

beforeAll(() =>
  service.store.createPlants(
    range(1, 250).map((id) => ({
      id: BigInt(id),
      name: id === 240 ? "Große EICHE" : `Plant ${id}`,
      tag: id % 10 === 0 ? "ten" : id % 25 === 3 ? "a b&c=ü" : undefined,
    })),
  ),
);

const list = (query: string, from = service): Promise<Response> =>
  send(from, "GET", `/plants${query}`);
const idsOf = async (response: Response): Promise<number[]> =>
  ((await response.json()) as Listed[]).map(({ id }) => id);
const nextOf = (response: Response): string | undefined =>
  /^<\/plants(\?[^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];

/** Follows the next links to the end. */
async function walk(query: string, from = service): Promise<{ ids: number[]; pages: number }> {
  const { items, pages } = await walkPages(from, `/plants${query}`);
  return { ids: (items as Listed[]).map(({ id }) => id), pages };
}

/** All of it, in one answer. */
const stream = (accept: string, query = "", from = service): Promise<Response> =>
  send(from, "GET", `/plants${query}`, { headers: { accept } });
async function streamedIds(query: string, from = service): Promise<number[]> {
  const text = await (await stream("application/x-ndjson", query, from)).text();
  return (parseLines(text) as Listed[]).map(({ id }) => id);
}

describe("a page", () => {
  test("has 100 plants in the order of their ids by default", async () => {
    const response = await list("");
    expect(nextOf(response)).toBe("?after=100&limit=100");
    expect(await idsOf(response)).toEqual(range(1, 100));
    expect(response.headers.get("vary")).toBe("Accept, Accept-Encoding");
  });

  test("has plants with id, name and, where there is one, tag", async () => {
    const tagged = '[{"id":10,"name":"Plant 10","tag":"ten"}]';
    expect(await getText(service, "/plants?limit=1&after=9")).toBe(tagged);
    expect(await getText(service, "/plants?limit=1")).toBe('[{"id":1,"name":"Plant 1"}]');
  });

  test.each([7, 125, 249, 250, 251])("of %d leads through all plants, each once", async (limit) => {
    const { ids, pages } = await walk(`?limit=${limit}`);
    expect(ids).toEqual(range(1, 250));
    expect(pages).toBe(Math.ceil(250 / limit));
  });

  test("behind the last id is empty, at either end of int64", async () => {
    for (const query of [
      "?after=250",
      "?after=9223372036854775807",
      "?order=desc&after=-9223372036854775808",
    ]) {
      const response = await list(query);
      expect([await response.text(), response.headers.has("link")]).toEqual(["[]", false]);
    }
    expect(await idsOf(await list("?limit=1&after=-9223372036854775808"))).toEqual([1]);
    expect(await idsOf(await list("?limit=1&order=desc&after=9223372036854775807"))).toEqual([250]);
  });

  test("keeps both ends of int64 exact, in the body and in the link", async () => {
    for (const id of ["-9223372036854775808", "9007199254740993", "9223372036854775807"])
      await small.create(`{"id":${id},"name":"n"}`);
    const first = await list("?limit=2", small);
    expect(await first.text()).toBe(
      '[{"id":-9223372036854775808,"name":"n"},{"id":9007199254740993,"name":"n"}]',
    );
    const second = await list(nextOf(first) ?? "", small);
    expect(await second.text()).toBe('[{"id":9223372036854775807,"name":"n"}]');
  });

  test("neither skips nor repeats an untouched plant while others are added and removed", async () => {
    const untouched = range(1, 200).map((n) => n * 10);
    const toPlant = (id: number) => ({ id: BigInt(id), name: "n", tag: undefined });
    const others = [5, 1005, 1995].map(toPlant);
    await small.store.createPlants(untouched.map(toPlant));
    const seen: number[] = [];
    let next: string | undefined = "?limit=7";
    for (let turn = 0; next !== undefined; turn++) {
      const response = await list(next, small);
      seen.push(...(await idsOf(response)));
      next = nextOf(response);
      if (turn % 2 === 0) await small.store.createPlants(others);
      else for (const { id } of others) await small.store.removePlant(id, {});
    }
    expect(seen.filter((id) => id % 10 === 0)).toEqual(untouched);
    expect(new Set(seen).size).toBe(seen.length);
  });
});

describe("a filter", () => {
  test("by tag is exact on every page", async () => {
    expect((await walk("?tag=ten&limit=4")).ids).toEqual(tens);
    expect((await walk("?tag=ten&limit=4&order=desc")).ids).toEqual(tens.toReversed());
    for (const other of ["Ten", "te", "ten%20", ""])
      expect((await walk(`?tag=${other}`)).ids).toEqual([]);
    await small.create('{"id":1,"name":"a","tag":""}');
    await small.create('{"id":2,"name":"a"}');
    expect((await walk("?tag=", small)).ids).toEqual([1]);
  });

  test("by tag takes any text, percent-encoded or with + for a space", async () => {
    const expected = range(1, 250).filter((id) => id % 25 === 3);
    for (const tag of ["a+b%26c%3D%C3%BC", "a%20b%26c%3d%c3%bc"])
      expect((await walk(`?limit=3&tag=${tag}`)).ids).toEqual(expected);
  });

  test("by name looks at a bounded number of plants a page, which then ends early with a link", async () => {
    const first = await list("?name=eiche");
    expect(await first.clone().text()).toBe("[]");
    // On a slow machine the time limit may end a page earlier still.
    const [, after] = /^\?after=(\d+)&limit=100&name=eiche$/.exec(nextOf(first) ?? "") ?? [];
    expect(Number(after)).toBeWithin(1, 101);
    const walked = await walk("?name=eiche");
    expect(walked.ids).toEqual([240]);
    expect(walked.pages).toBeGreaterThanOrEqual(3);
    expect((await walk("?name=oSSe+E")).ids).toEqual([240]);
    const others = range(1, 250).filter((id) => id !== 240);
    expect((await walk("?name=PLANT&limit=30&order=desc")).ids).toEqual(others.toReversed());
  });
});

describe("tagged", () => {
  const untagged = range(1, 250).filter((id) => id % 10 !== 0 && id % 25 !== 3);

  test("finds the plants without a tag, or those with one, page after page", async () => {
    expect((await walk("?tagged=false&limit=7")).ids).toEqual(untagged);
    expect((await walk("?tagged=false&order=desc&limit=7")).ids).toEqual(untagged.toReversed());
    const others = range(1, 250).filter((id) => !untagged.includes(id));
    expect((await walk("?tagged=true&limit=7")).ids).toEqual(others);
    expect((await walk("?tagged=true&name=eiche")).ids).toEqual([240]);
    expect((await walk("?tagged=false&q=eiche")).ids).toEqual([]);
    expect(await streamedIds("?tagged=false")).toEqual(untagged);
    // Filters that contradict each other match nothing.
    expect((await walk("?tag=ten&tagged=false")).ids).toEqual([]);
    expect((await walk("?tag=ten&tagged=true")).ids).toEqual(tens);
  });

  test("counts an empty tag as a tag", async () => {
    await small.create('{"id":1,"name":"a","tag":""}');
    await small.create('{"id":2,"name":"a"}');
    expect((await walk("?tagged=false", small)).ids).toEqual([2]);
    expect((await walk("?tagged=true", small)).ids).toEqual([1]);
  });
});

describe("words", () => {
  test("lead through all pages that end early", async () => {
    const { ids, pages } = await walk("?q=eiche+grosse");
    expect(ids).toEqual([240]);
    expect(pages).toBeGreaterThan(2);
    const others = tens.filter((id) => id !== 240);
    expect((await walk("?q=TEN+plant&order=desc&limit=7")).ids).toEqual(others.toReversed());
    const csv = await stream("text/csv", "?q=eiche+grosse");
    expect(await csv.text()).toBe('id,name,tag\r\n240,"Große EICHE","ten"\r\n');
  });

  test("are found wherever our own comparison finds them, by the database too", async () => {
    const letters = fc.constantFrom(...Array.from("aAäßsS%_\\ж \u0308"), "a\u0308");
    const text = fc.array(letters, { maxLength: 5 }).map((all) => all.join(""));
    const plants = fc
      .sample(fc.tuple(text, fc.option(text, { nil: undefined })), 150)
      .map(([name, tag], id) => ({ id: BigInt(id), name, tag }));
    await small.store.createPlants(plants);
    const filters = fc.record({
      q: fc.option(text, { nil: undefined }),
      name: fc.option(text, { nil: undefined }),
      tagged: fc.option(fc.boolean(), { nil: undefined }),
      order: fc.constantFrom("asc" as const, "desc" as const),
    });
    for (const filter of fc.sample(filters, 60)) {
      const query: PlantQuery = { ...filter, after: undefined, limit: 1_000, tag: undefined };
      const rows = filter.order === "asc" ? plants : plants.toReversed();
      const found: ListedPlant[] = [];
      // On a busy machine a page may end early.
      for (let after: bigint | undefined, isOver = false; !isOver; isOver = after === undefined) {
        const page = await small.store.listPlants({ ...query, after });
        found.push(...page.plants);
        after = page.next;
      }
      const { plants: expected } = takePage(rows, query, 1_000, Infinity);
      expect([filter, toExact(found)]).toEqual([filter, toExact(expected)]);
    }
  });
});

describe("a count", () => {
  test.each([
    ["", 250],
    ["?tag=ten", 25],
    ["?tag=Ten", 0],
    ["?name=plant+1&tag=ten", 11],
    ["?q=TEN+plant", 24],
    ["?tagged=true", 35],
    ["?tagged=false", 215],
    ["?tagged=false&tag=ten", 0],
  ])("with the filters %j is exact: %d", async (query, count) => {
    expect(await getJson(service, `/plants/count${query}`)).toEqual({ count, exact: true });
  });

  test("that takes too long is a lower bound, shared by equal requests", async () => {
    const one = service.store.countPlants({ name: "plant" }, 0);
    const other = service.store.countPlants({ name: "plant" }, 0);
    expect(await one).toEqual({ count: 100, exact: false, next: 100n });
    expect(await other).toBe(await one);
  });

  test("is continued by its next link until it is exact", async () => {
    await using hasty = await startService(limits({ scanRowsMax: 1, countSecondsMax: 0 }));
    await hasty.store.createPlants(
      range(1, 5).map((id) => ({ id: BigInt(id), name: "a", tag: undefined })),
    );
    const counts: unknown[] = [];
    for (let next: string | undefined = "/count?name=a"; next !== undefined;) {
      const response = await list(next, hasty);
      counts.push(await response.json());
      next = /^<\/plants(\/count\?after=\d+&name=a)>/.exec(response.headers.get("link") ?? "")?.[1];
    }
    const some = counts.slice(0, -1);
    expect(some).toEqual(some.map(() => ({ count: 1, exact: false })));
    expect(counts.length).toBeGreaterThan(4);
    expect(counts.at(-1)).toMatchObject({ exact: true });
    const all = counts as { readonly count: number }[];
    expect(all.reduce((sum, { count }) => sum + count, 0)).toBe(5);
    await expectError(await list("/count?after=x"), "invalid_query", "after: expected an integer");
  });
});

describe("long names", () => {
  const long = (id: number): string => `${id} ${"x".repeat(700_000)}`;

  test("make shorter pages, which still lead through all plants", async () => {
    for (const id of range(1, 10)) await small.create(JSON.stringify({ id, name: long(id) }));
    expect((await idsOf(await list("?limit=1000", small))).length).toBeWithin(1, 6);
    expect((await walk("?limit=1000", small)).ids).toEqual(range(1, 10));
    expect((await walk("?name=X", small)).ids).toEqual(range(1, 10));
    expect(await streamedIds("", small)).toEqual(range(1, 10));
  });

  test("of marks without end do not hold a search up", async () => {
    const marks = `a${"\u0323\u0301".repeat(150_000)}`;
    await small.create(JSON.stringify({ id: 1, name: marks }));
    await small.create(JSON.stringify({ id: 2, name: "Rose" }));
    expect((await walk("?name=rose", small)).ids).toEqual([2]);
  });
});

describe("a parameter", () => {
  test.each<[query: string, says: string[]]>([
    ["?limit=0", ['limit: expected an integer from 1 to 1000, got "0"']],
    ...["=1001", "=", "", "=-1", "=1.5", "=1e2", "=ten", `=${"9".repeat(20)}`].map(
      (wrong): [string, string[]] => [`?limit${wrong}`, ["limit: "]],
    ),
    ["?after=x", ["after: expected an integer from -9223372036854775808 to 9", ', got "x"']],
    ...["", "9223372036854775808", "1.0", "01"].map((wrong): [string, string[]] => [
      `?after=${wrong}`,
      ["after: "],
    ]),
    ["/count?limit=5", ['"limit": unknown']],
    ["/count?q=a&q=b", ["q: given more than once"]],
    ["?order=up", ['order: expected asc or desc, got "up"']],
    ["?tag=%FF&name=%00", ["tag: expected UTF-8", "name: expected UTF-8 without U+0000"]],
    ["?tag=%&name=%ED%A0%80", ["tag: expected UTF-8", "name: expected UTF-8"]],
    [`?q=${"a+".repeat(17)}`, ["q: expected at most 16 words"]],
    ["?tagged=no", ['tagged: expected true or false, got "no"']],
    ["/count?tagged=", ['tagged: expected true or false, got ""']],
    ["?offset=5", ['"offset": unknown']],
    ["?constructor=5&__proto__=5", ['"constructor": unknown', '"__proto__": unknown']],
    ["?Limit=5&%FF=1&=1", ['"Limit": unknown', '"%FF": unknown', '"": unknown']],
    ["?limit=5&limit=5", ["limit: given more than once"]],
    ["?limit=0&after=x&order=&a=1", ['"a": unknown', "; limit: ", "; after: ", "; order: "]],
  ])("%s gets a 400 that names the fault", async (query, says) => {
    await expectError(await list(query), "invalid_query", ...says);
  });

  test.each(["?", "?&", "?limit=5&"])("%s has none that is wrong", async (query) => {
    expect((await list(query)).status).toBe(200);
  });
});

describe("a stream", () => {
  test("as NDJSON has every plant, a line each, in order", async () => {
    const response = await stream("application/x-ndjson");
    expect(response.headers.get("content-type")).toBe("application/x-ndjson");
    expect(response.headers.has("link")).toBe(false);
    const text = await response.text();
    expect(text).toContain('\n{"id":10,"name":"Plant 10","tag":"ten"}\n');
    expect(text).toEndWith("}\n");
    expect(await streamedIds("")).toEqual(range(1, 250));
  });

  test("as CSV has every plant, quoted, with formulas defused", async () => {
    await small.create(JSON.stringify({ id: -5, name: "=1+1", tag: "" }));
    await small.create(JSON.stringify({ id: 1, name: 'say "hi",\r\nplease' }));
    await small.create(JSON.stringify({ id: 2, name: "'@x", tag: "'quoted'" }));
    await small.create(JSON.stringify({ id: 3, name: "\n=1", tag: "＝1" }));
    const response = await stream("text/csv", "", small);
    expect(response.headers.get("content-type")).toBe("text/csv; charset=utf-8; header=present");
    expect(await response.text()).toBe(
      'id,name,tag\r\n-5,"\'=1+1",""\r\n1,"say ""hi"",\r\nplease",\r\n2,"\'\'@x","\'quoted\'"\r\n3,"\'\n=1","\'＝1"\r\n',
    );
  });

  test("is filtered, ordered and resumed by the same parameters", async () => {
    const before = await streamedIds("?tag=ten&order=desc&after=240");
    expect(before).toEqual(tens.slice(0, 23).toReversed());
    expect(await streamedIds("?name=eiche")).toEqual([240]);
    await expectError(await stream("text/csv", "?limit=5"), "invalid_query");
  });

  test("of an empty store is empty, or a head alone", async () => {
    expect(await (await stream("application/json", "", small)).text()).toBe("[]");
    expect(await (await stream("application/x-ndjson", "", small)).text()).toBe("");
    expect(await (await stream("text/csv", "", small)).text()).toBe("id,name,tag\r\n");
  });

  test.each([
    ["*/*", "application/json"],
    ["text/*", "text/csv; charset=utf-8; header=present"],
    ["TEXT/CSV;q=0.5, application/json;q=0.4", "text/csv; charset=utf-8; header=present"],
    ["application/ndjson", "application/ndjson"],
    ["application/jsonl;q=0.5, application/x-ndjson;q=0.6", "application/x-ndjson"],
    ["application/json;q=0, application/x-ndjson", "application/x-ndjson"],
    ["text/html,application/xhtml+xml,*/*;q=0.8", "application/json"],
    ["image/png", "application/json"],
    [";;;,,,q=", "application/json"],
  ])("Accept: %s is answered as %s", async (accept, type) => {
    const response = await stream(accept);
    expect([response.status, response.headers.get("content-type")]).toEqual([200, type]);
    await response.body?.cancel();
  });
});
