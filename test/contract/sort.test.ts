/** GET /plants in the order of names, tags and last changes; the time of the last change itself. */

import { beforeEach, describe, expect, spyOn, test } from "bun:test";
import * as fc from "fast-check";
import { foldKey } from "../../src/domain/sort.ts";
import { Exchange } from "../../src/http/exchange.ts";
import { Queue } from "../../src/store/queue.ts";
import { expectError, rejectionOf } from "../support/expect.ts";
import { parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { runsFactor } from "../support/long.ts";
import { seed } from "../support/random.ts";
import {
  bearer,
  getJson,
  getText,
  send,
  startService,
  startShared,
  walkPages,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const service = await startShared(limits({ scanRowsMax: 20 }));

beforeEach(() => service.database.run("DELETE FROM plants"));

interface Listed {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
  readonly changed?: string;
}

const list = (query: string): Promise<Response> => send(service, "GET", `/plants${query}`);
interface Sent extends Pick<Listed, "id" | "name"> {
  readonly tag?: string | undefined;
}

const create = (...plants: readonly Sent[]): Promise<unknown> =>
  service.store.createPlants(plants.map(({ id, name, tag }) => ({ id: BigInt(id), name, tag })));
const walk = async (query: string): Promise<Listed[]> =>
  (await walkPages(service, `/plants${query}`)).items as Listed[];
const idsOf = (plants: readonly Listed[]): number[] => plants.map(({ id }) => id);
const nextOf = (response: Response): string =>
  /^<\/plants(\?[^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1] ?? "";

/** A second opinion: the rule as it is documented, without the service's own comparison. */
function sortByModel(plants: readonly Listed[], sort: string): Listed[] {
  const by = sort.replace("-", "") as "id" | "name" | "tag" | "changed";
  const sign = sort.startsWith("-") ? -1 : 1;
  const keyOf = (plant: Listed): string | number | undefined => {
    const { [by]: value } = plant;
    if (typeof value !== "string") return value;
    if (by === "changed") return Date.parse(value);
    const characters = Array.from(value).slice(0, 100);
    const codes = characters.map((one) => (/[A-Z]/.test(one) ? one.toLowerCase() : one));
    return codes.map((one) => String(one.codePointAt(0)).padStart(8, "0")).join("");
  };
  const keys = new Map(plants.map((plant) => [plant, keyOf(plant)]));
  return plants.toSorted((one, other) => {
    const [key, otherKey] = [keys.get(one), keys.get(other)];
    if (key === otherKey) return one.id - other.id;
    if (key === undefined) return 1;
    if (otherKey === undefined) return -1;
    return key < otherKey ? -sign : sign;
  });
}

const sorts = ["id", "-id", "name", "-name", "tag", "-tag", "changed", "-changed"];

const letter = fc.constantFrom(...Array.from("aAbBzZ_[~ éÉß\uE000\uFFFD🌱ж"), "e\u0301", "ab");
const anyText = fc.oneof(
  fc.array(letter, { maxLength: 4 }).map((all) => all.join("")),
  fc.array(letter, { maxLength: 2 }).map((all) => "🌱".repeat(99) + all.join("")),
);
const anyPlants = fc.uniqueArray(
  fc.record({
    id: fc.integer({ min: -60, max: 60 }),
    name: anyText,
    tag: fc.option(anyText, { nil: undefined }),
    /** In which of three commits it is created; that of 0 is from before there were times. */
    commit: fc.integer({ min: 0, max: 2 }),
  }),
  { selector: ({ id }) => id, maxLength: 40, size: "max" },
);

test("pages of every sort and filter lead through what the model says, whatever their length", () =>
  fc.assert(
    fc.asyncProperty(
      anyPlants,
      fc.record({
        limit: fc.constantFrom(1, 3, 7, 100),
        filter: fc.constantFrom("", "&tag=a", "&name=a", "&q=b", "&name=z&q=a", "&tagged=false"),
      }),
      async (plants, { limit, filter }) => {
        await service.database.run("DELETE FROM plants");
        for (const commit of [0, 1, 2]) {
          await create(...plants.filter((plant) => plant.commit === commit));
          if (commit === 0) await service.database.run("UPDATE plants SET changed_at_ms = NULL");
        }
        const all = await walk(`?limit=1000&include=changed${filter}`);
        for (const sort of sorts) {
          const query = `?sort=${sort}&limit=${limit}${filter}`;
          const expected = sortByModel(all, sort);
          expect([query, await walk(`${query}&include=changed`)]).toEqual([query, expected]);
          expect([query, idsOf(await walk(query))]).toEqual([query, idsOf(expected)]);
        }
      },
    ),
    { seed, numRuns: Math.ceil(15 * runsFactor), interruptAfterTimeLimit: 240_000 },
  ));

describe("a sorted list", () => {
  test("has A to Z as lower case, other characters by code point, equal ones by id", async () => {
    const names = [
      "Zebra",
      "apple",
      "Ärger",
      "apple",
      "Banana",
      "🌱",
      "\uFFFD",
      "_",
      "a".repeat(200),
    ];
    await create(...names.map((name, index) => ({ id: index + 1, name })));
    expect(idsOf(await walk("?sort=name&limit=2"))).toEqual([8, 9, 2, 4, 5, 1, 3, 7, 6]);
    expect(idsOf(await walk("?sort=-name&limit=2"))).toEqual([6, 7, 3, 1, 5, 2, 4, 9, 8]);
  });

  test("has plants without a tag last in both directions", async () => {
    await create(
      { id: 1, name: "a" },
      { id: 2, name: "b", tag: "z" },
      { id: 3, name: "c", tag: "" },
    );
    await create({ id: 4, name: "d" });
    expect(idsOf(await walk("?sort=tag&limit=1"))).toEqual([3, 2, 1, 4]);
    expect(idsOf(await walk("?sort=-tag&limit=1"))).toEqual([2, 3, 1, 4]);
  });

  test("is the same as a stream of lines and as CSV", async () => {
    await create({ id: 1, name: "b" }, { id: 2, name: "a", tag: "t" });
    const stream = async (accept: string, query: string): Promise<string> =>
      (await send(service, "GET", `/plants${query}`, { headers: { accept } })).text();
    const lines = parseLines(await stream("application/x-ndjson", "?sort=name")) as Listed[];
    expect(idsOf(lines)).toEqual([2, 1]);
    expect(await stream("text/csv", "?sort=name")).toBe('id,name,tag\r\n2,"a","t"\r\n1,"b",\r\n');
    expect(await stream("text/csv", "?sort=-name&tag=t&include=changed")).toMatch(
      /^id,name,tag,changed\r\n2,"a","t",\d{4}-[-\dT:.]+Z\r\n$/,
    );
  });

  test("of very long names has shorter pages, which lead through all", async () => {
    const plants = Array.from({ length: 8 }, (_, index) => ({
      id: index,
      name: `${9 - index}${"x".repeat(700_000)}`,
    }));
    await create(...plants);
    const first = await list("?sort=name&limit=1000");
    expect(((await first.json()) as Listed[]).length).toBeWithin(1, 6);
    expect(nextOf(first)).toStartWith("?cursor=name~");
    expect(idsOf(await walk("?sort=name&limit=1000"))).toEqual([7, 6, 5, 4, 3, 2, 1, 0]);
  });

  test("shows a plant that does not change exactly once while others change", async () => {
    const names = Array.from({ length: 60 }, (_, index) => String(index).padStart(3, "0"));
    await create(...names.map((name, id) => ({ id, name })));
    const seen: Listed[] = [];
    for (let next = "?sort=name&limit=7", turn = 0; next !== ""; turn++) {
      const response = await list(next);
      const page = (await response.json()) as Listed[];
      expect(page.map(({ name }) => name)).toEqual(page.map(({ name }) => name).toSorted());
      seen.push(...page);
      next = nextOf(response);
      for (const id of [3n, 30n, 57n])
        await service.store.replacePlant({ id, name: `${(turn * 13) % 60}x` }, {});
      await service.store.removePlant(BigInt(10 + turn), {}).catch(() => undefined);
    }
    const still = idsOf(seen).filter((id) => ![3, 30, 57].includes(id) && (id < 10 || id > 25));
    const expected = names.map((_, id) => id);
    expect(still).toEqual(
      expected.filter((id) => ![3, 30, 57].includes(id) && (id < 10 || id > 25)),
    );
  });
});

test.each<[query: string, says: string[]]>([
  ["?sort=colour", ["sort: expected id, -id, name, -name, tag, -tag, changed, -changed, got"]],
  ["?sort=", ["sort: expected"]],
  ["?sort=name,tag", ["sort: expected"]],
  ["?sort=name&sort=tag", ["sort: given more than once"]],
  ["?sort=name&order=desc", ["order: expected nothing with sort"]],
  ["?sort=id&order=asc", ["order: expected nothing with sort"]],
  ["?sort=name&after=5", ["after: expected nothing with sort=name; use cursor"]],
  ["?cursor=name~1~a", ["cursor: expected nothing unless sort"]],
  ["?sort=id&cursor=name~1~a", ["cursor: expected nothing unless sort"]],
  ["?sort=name&cursor=tag~1~a", ["cursor: expected the cursor of a next page with sort=name, got"]],
  ["?sort=name&cursor=-name~1~a", ["cursor: expected the cursor"]],
  ["?sort=name&cursor=5", ["cursor: expected the cursor"]],
  ["?sort=name&cursor=name~1", ["cursor: expected the cursor"]],
  ["?sort=name&cursor=name~9223372036854775808~a", ["cursor: expected the cursor"]],
  ["?sort=name&cursor=name~1~A", ["cursor: expected the cursor"]],
  ["?sort=changed&cursor=changed~1~x", ["cursor: expected the cursor"]],
  ["?include=all", ['include: expected changed, got "all"']],
  ["/1?include=changed", ['"include": unknown']],
  ["/count?sort=name", ['"sort": unknown']],
])("%s gets a 400 that names the fault", async (query, says) => {
  await expectError(await list(query), "invalid_query", ...says);
});

describe("the last change", () => {
  const changedOf = async (id: number): Promise<string | undefined> =>
    (await getJson<Listed[]>(service, `/plants?after=${id - 1}&limit=1&include=changed`))[0]
      ?.changed;
  const newestOf = async (id: number): Promise<string | undefined> =>
    (await getJson<{ time: string }[]>(service, `/changes?id=${id}&order=desc&limit=1`))[0]?.time;
  const write = (method: string, path: string, body: unknown): Promise<Response> =>
    send(service, method, path, {
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    });

  test("is shown on a page, on request only", async () => {
    await create({ id: 1, name: "a", tag: "t" });
    expect(await getText(service, "/plants")).toBe('[{"id":1,"name":"a","tag":"t"}]');
    const changed = await newestOf(1);
    expect(await getText(service, "/plants?include=changed")).toBe(
      `[{"id":1,"name":"a","tag":"t","changed":"${changed}"}]`,
    );
  });

  test.each<[what: string, change: () => Promise<unknown>]>([
    ["a replacement", () => write("PUT", "/plants/1", { name: "b" })],
    ["a patch", () => write("PATCH", "/plants/1", { tag: "u" })],
    ["an upsert", () => write("POST", "/plants/batch?upsert=true", [{ id: 1, name: "c" }])],
    [
      "an atomic batch",
      () => write("POST", "/plants/batch?upsert=true&atomic=true", [{ id: 1, name: "d" }]),
    ],
    [
      "a change by filter",
      async () => (await write("PATCH", "/plants?tag=t", { name: "e" })).text(),
    ],
    [
      "a revert",
      async () => {
        await write("PUT", "/plants/1?batch=b", { name: "f" });
        await service.database.run("UPDATE plants SET changed_at_ms = NULL");
        return (await write("POST", "/changes/revert", { batch: "b" })).text();
      },
    ],
    [
      "a removal and a new plant",
      async () => {
        await send(service, "DELETE", "/plants/1");
        await create({ id: 1, name: "g" });
      },
    ],
  ])("is that of its newest change in the journal, after %s", async (_what, change) => {
    await create({ id: 1, name: "a", tag: "t" }, { id: 2, name: "b", tag: "t2" });
    const created = await changedOf(2);
    expect([await changedOf(1), created]).toEqual([await newestOf(1), await newestOf(2)]);
    await service.database.run("UPDATE plants SET changed_at_ms = NULL");
    expect(await changedOf(1)).toBeUndefined();
    await change();
    expect(await changedOf(1)).toBe((await newestOf(1)) ?? "");
    // What was not changed stays as it was.
    expect(await changedOf(2)).toBeUndefined();
  });

  test("stays if a write changes nothing", async () => {
    await create({ id: 1, name: "a" });
    await service.database.run("UPDATE plants SET changed_at_ms = NULL");
    await create({ id: 1, name: "a" });
    await write("PATCH", "/plants/1", { name: "a" });
    await write("POST", "/plants/batch?upsert=true", [{ id: 1, name: "a" }]);
    expect(await changedOf(1)).toBeUndefined();
  });
});

test("a store of many pieces is sorted as a whole", async () => {
  const plants = Array.from({ length: 25_000 }, (_, id) => ({
    id,
    name: String((id * 7_919) % 25_000).padStart(5, "0"),
    ...(id % 3 === 0 ? {} : { tag: `t${id % 7}` }),
  }));
  await create(...plants);
  const sorted = sortByModel(plants, "-name");
  const stream = await send(service, "GET", "/plants?sort=-name", {
    headers: { accept: "application/x-ndjson" },
  });
  expect(idsOf(parseLines(await stream.text()) as Listed[])).toEqual(idsOf(sorted));
  const middle = sorted[12_000] as Listed;
  const cursor = encodeURIComponent(`-name~${middle.id}~${middle.name}`);
  const page = (await getJson(service, `/plants?sort=-name&cursor=${cursor}`)) as Listed[];
  expect(idsOf(page)).toEqual(idsOf(sorted.slice(12_001, 12_101)));
  const tagged = sortByModel(plants, "tag").slice(0, 1_000);
  expect(await getJson(service, "/plants?sort=tag&limit=1000")).toEqual(tagged);
  const few = sortByModel(plants, "name").filter(({ tag }) => tag === "t4");
  expect(idsOf(await getJson<Listed[]>(service, "/plants?sort=name&tag=t4"))).toEqual(
    idsOf(few.slice(0, 100)),
  );
});

test("keys that differ in case, after U+FFFF or only after their end are in order across pieces", async () => {
  const endings = ["", "a", "B", "b", "\u{10FFFF}", "Ä", "ä", "[", "\uE000", "🌱"];
  const heads = ["", "x", "X", "🌱".repeat(99), "🌱".repeat(100), "a".repeat(100)];
  const texts = heads.flatMap((head) => endings.map((ending) => head + ending));
  const textAt = (index: number): string => texts[index % texts.length] as string;
  const plants = Array.from({ length: 12_000 }, (_, id) => ({
    id,
    name: textAt(id * 7),
    ...(id % 4 === 0 ? {} : { tag: textAt(id * 11 + (id >> 7)) }),
  }));
  await create(...plants);
  for (const sort of ["name", "-name", "tag", "-tag"]) {
    const sorted = sortByModel(plants, sort);
    const read = async (page: string) =>
      idsOf(await getJson(service, `/plants?sort=${sort}${page}`));
    expect([sort, await read("&limit=1000")]).toEqual([sort, idsOf(sorted.slice(0, 1_000))]);
    for (const at of [3_000, 7_000, 11_000]) {
      const last = sorted[at] as Listed;
      const key = last[sort.replace("-", "") as "name" | "tag"];
      const cursor = [sort, last.id, ...(key === undefined ? [] : [foldKey(key)])].join("~");
      const page = await read(`&cursor=${encodeURIComponent(cursor)}`);
      expect([sort, at, page]).toEqual([sort, at, idsOf(sorted.slice(at + 1, at + 101))]);
    }
  }
});

/** Long reads wait in lanes, which are queues. `answer` resolves to undefined for what the store shall read. */
function spyOnLanes(answer: (kind: string) => Promise<unknown> | undefined) {
  const kinds: string[] = [];
  const submit = Reflect.get(Queue.prototype, "submit");
  const spy = spyOn(Queue.prototype, "submit");
  spy.mockImplementation(function (this: Queue<unknown, unknown>, request, ...rest) {
    const { kind } = Object(request) as { readonly kind?: string };
    if (kind !== undefined) kinds.push(kind);
    return answer(kind ?? "") ?? submit.call(this, request, ...rest);
  });
  return { kinds, [Symbol.dispose]: () => spy.mockRestore() };
}

test.each(["application/json", "application/x-ndjson"])(
  "a scan as %s may take longer than the idle time, until its client leaves",
  async (accept) => {
    await using own = await startService({
      PLANTSTORE_WORKERS: "1",
      PLANTSTORE_LOG_LEVEL: "info",
    });
    using waits = spyOn(Exchange.prototype, "waitLong");
    const begun = Promise.withResolvers<void>();
    const beginPiece = async () => {
      begun.resolve();
      await new Promise(setImmediate);
      return { positions: [], next: 1n };
    };
    using _ = spyOnLanes((kind) => (kind === "sort" ? beginPiece() : undefined));
    const leaving = new AbortController();
    const { signal } = leaving;
    const answer = fetch(`${own.url}/plants?sort=name`, {
      headers: { ...bearer(), accept },
      signal,
    });
    await begun.promise;
    expect(waits).toHaveBeenCalledTimes(1);
    leaving.abort();
    expect(await rejectionOf(answer)).toBeInstanceOf(Error);
    await until("the scan ends", () =>
      own.logLines.some((line) => line.includes('"body_incomplete"')),
    );
  },
);

test("a short page scans pieces as large as those of a long one", async () => {
  await create(...Array.from({ length: 15 }, (_, id) => ({ id, name: `n${id}` })));
  using lanes = spyOnLanes(() => undefined);
  const query = { name: "n", limit: 5, order: "asc", after: undefined, charactersMax: 1 } as const;
  const sort = { by: "name", isDescending: false } as const;
  await service.store.readPlants({ ...query, sort }, "json");
  expect(lanes.kinds).toEqual(["sort", "plants"]);
});

test("a sort key has the first 100 whole characters", () => {
  expect(foldKey(`${"🌱".repeat(99)}ÄBC`)).toBe(`${"🌱".repeat(99)}Ä`);
});
