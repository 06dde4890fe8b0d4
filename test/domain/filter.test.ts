/** One table of filters: the service, the client and the commands have the same ones. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import type { Filter as ClientFilter } from "../../client/client.ts";
import {
  createFilter,
  type Filter,
  type FilterName,
  filterNames,
  filters,
  narrows,
  needsScan,
} from "../../src/domain/filter.ts";
import type { Content } from "../../src/domain/plant.ts";
import { filterFields } from "../../src/http/field.ts";
import { runsFactor } from "../support/long.ts";
import { seed } from "../support/random.ts";

test("every filter is a parameter, and one of the client", () => {
  expect(Object.keys(filterFields)).toEqual([...filterNames]);
  // Does not compile if the client lacks one.
  filterNames satisfies readonly (keyof ClientFilter)[];
});

test("every filter is in docs/api.md", async () => {
  const api = await Bun.file(`${import.meta.dir}/../../docs/api.md`).text();
  const [, list = ""] = /\nFilters\..*\n\n((?:- .*\n)+)/.exec(api) ?? [];
  expect([...list.matchAll(/^- `(\w+)`: /gm)].map(([, name]) => name)).toEqual([...filterNames]);
});

test("a search has at most 16 words", () => {
  const words = "rose ".repeat(16);
  expect(filters.q.find(words)).toBe(words);
  expect(filters.q.find(`${words}fern`)).toBeUndefined();
});

/** For each filter a value, a plant that it finds, and one that it does not. Until a new one is here, it does not compile. */
const cases: {
  readonly [Name in FilterName]: readonly [value: Filter[Name], found: Content, other: Content];
} = {
  tag: ["Rose", { name: "Fern", tag: "Rose" }, { name: "Rose", tag: "Roses" }],
  name: ["ros", { name: "A Rose", tag: "Fern" }, { name: "Fern", tag: "Rose" }],
  q: ["Rose fern", { name: "Fern", tag: "rose" }, { name: "Fern", tag: "Ivy" }],
  tagged: [true, { name: "Rose", tag: "" }, { name: "Rose" }],
};

test.each(filterNames)("%s finds plants that match, and no other", (name) => {
  const [value, found, other] = cases[name];
  const filter = { [name]: value };
  expect([found, other].map((plant) => createFilter(filter)({ id: 1n, ...plant }))).toEqual([
    true,
    false,
  ]);
  expect([needsScan(filter), narrows(filter)]).toEqual([!filters[name].isIndexed, true]);
});

test("tagged distinguishes no tag from an empty one", () => {
  const tags = [undefined, "", "Rose"];
  const find = (tagged: boolean) =>
    tags.filter((tag) => createFilter({ tagged })({ id: 1n, name: "Rose", tag }));
  expect([find(false), find(true)]).toEqual([[undefined], ["", "Rose"]]);
  for (const tagged of [false, true])
    expect([needsScan, narrows].map((is) => is({ tagged }))).toEqual([true, true]);
});

test("whatever its text is, a filter finds only plants with some of it, or counts as none", () => {
  // Marks, spaces, and what is not shown.
  const odd = fc.constantFrom(
    ...Array.from("\u0301\u034f\u0345 \u00a0\ufeff\u200b\u200d\u00ad\u2060\ufe0f\u20d0\u3099"),
  );
  const text = fc.string({
    unit: fc.oneof(odd, odd, fc.constantFrom(...Array.from("aÉßΐ花"))),
    maxLength: 6,
  });
  const upper = (value: string): string => value.toUpperCase();
  const plain = (value: string): string =>
    upper(value.normalize("NFD").replaceAll(/[\u0300-\u036f]/g, ""));
  const seen = { none: 0, some: 0 };
  fc.assert(
    fc.property(fc.constantFrom("q", "name"), text, fc.array(text), (filter, value, names) => {
      const matches = createFilter({ [filter]: value });
      const texts = filter === "q" ? plain(value).split(/\s+/) : [upper(value.normalize("NFC"))];
      const parts = texts.filter((part) => part !== "");
      const isSome = narrows({ [filter]: value });
      seen[isSome ? "some" : "none"]++;
      expect([isSome, needsScan({ [filter]: value })]).toEqual([
        parts.length > 0,
        parts.length > 0,
      ]);
      for (const name of [value, "", ...names]) {
        const folded = filter === "q" ? plain(name) : upper(name.normalize("NFC"));
        const isFound = parts.every((part) => folded.includes(part));
        expect([name, matches({ id: 1n, name, tag: undefined })]).toEqual([name, isFound]);
      }
    }),
    { seed, numRuns: 1_000 * runsFactor },
  );
  expect(Math.min(seen.none, seen.some)).toBeGreaterThan(50);
});
