/** The list in the memory of the page, without a page: what arrives for hours, and what is kept of it. */

import { heapStats } from "bun:jsc";
import { describe, expect, test } from "bun:test";
import { PlantList } from "../../console/state/plant-list.ts";
import { pickFilter } from "../../src/domain/filter.ts";
import type { SortName } from "../../src/domain/page.ts";

const everything = { ...pickFilter({}), order: "asc" } as const;
const time = (at: number): string => new Date(Date.UTC(2026, 10, 19) + at * 1000).toISOString();
const plantAt = (at: number) => ({
  id: BigInt(at),
  name: `Rosa ${at} of the nursery`,
  tag: "shrub",
  changed: time(at),
});

/** A store of so many plants. */
function create(length: number, sort?: SortName, order: "asc" | "desc" = "asc") {
  const read: (bigint | string | undefined)[] = [];
  const list = new PlantList(
    { ...everything, order, sort },
    {
      readPage: async (_filter, { after, cursor }, limit) => {
        read.push(after ?? cursor);
        const from = after === undefined ? 1 : Number(after) + 1;
        const last = Math.min(length, from + limit - 1);
        const plants = Array.from({ length: Math.max(0, last - from + 1) }, (_, at) =>
          plantAt(from + at),
        );
        return {
          plants,
          next: last < length ? { after: BigInt(last), cursor: undefined } : undefined,
        };
      },
      findTaken: async () => undefined,
      findLastChange: async () => undefined,
      onTaken: () => undefined,
    },
  );
  return { list, read };
}

async function open(...given: Parameters<typeof create>) {
  const opened = create(...given);
  await opened.list.loadMore();
  return opened;
}

test("the number of matches is exact once the list has ended, where the service stopped counting", async () => {
  const { list } = create(150);
  list.count.value = { count: 0, exact: false };
  expect(list.matches.value).toBeUndefined();
  await list.loadMore();
  expect(list.matches.value).toEqual({ count: 100, exact: false });
  await list.loadMore();
  expect(list.matches.value).toEqual({ count: 150, exact: true });
});

describe("a list that is left open", () => {
  test("holds no plant of those that arrive where it is not loaded", async () => {
    const { list } = await open(235_000);
    const before = list.held;
    for (let at = 0; at < 100_000; at++) list.put(plantAt(300_000 + at));
    expect(list.held).toBe(before);
  });

  for (const [name, sort, order] of [
    ["by id", undefined, "asc"],
    ["by the last change", "changed", "desc"],
  ] as const)
    test(`takes no more memory after 50,000 plants than after 5,000: ${name}`, async () => {
      const { list } = await open(0, sort, order);
      list.see(30);
      const hear = (from: number, to: number): number => {
        for (let at = from; at < to; at++) {
          list.put(plantAt(at));
          if (at % 3 === 0) list.take(BigInt(at - 1));
        }
        Bun.gc(true);
        return heapStats().heapSize;
      };
      const first = hear(1, 5_000);
      const last = hear(5_000, 50_000);
      expect(list.plants.length).toBeLessThan(5_000);
      expect(last / first).toBeLessThan(1.2);
    });

  test("loads what it has dropped, from where it ends", async () => {
    const { list, read } = await open(0);
    list.see(30);
    for (let at = 1; at <= 6_000; at++) list.put(plantAt(at));
    expect(list.phase.value).toBe("ready");
    const last = list.plants.at(-1)?.id;
    expect(list.plants.length).toBe(Number(last));
    await list.loadMore();
    expect(read).toEqual([undefined, last]);
  });

  test("keeps what was seen, and what is selected", async () => {
    const { list } = await open(0);
    list.see(3_000);
    for (let at = 1; at <= 20_000; at++) {
      list.put(plantAt(at));
      if (at === 4_500) list.selection.value = { isAll: false, ids: new Set([4_500n]) };
    }
    expect(list.plants.slice(0, 4_500).map(({ id }) => id)).toEqual(
      Array.from({ length: 4_500 }, (_, at) => BigInt(at + 1)),
    );
    expect(list.plants.length).toBeLessThan(9_000);
  });
});
