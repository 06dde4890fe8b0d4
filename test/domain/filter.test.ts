/** One table of filters: the service, the client and the commands have the same ones. */

import { expect, test } from "bun:test";
import type { Filter as ClientFilter } from "../../client/client.ts";
import { createFilter, filterNames, filters, narrows, needsScan } from "../../src/domain/filter.ts";
import { filterParameters } from "../../src/http/query.ts";

test("every filter is a parameter, and one of the client", () => {
  expect(Object.keys(filterParameters)).toEqual([...filterNames]);
  // Does not compile if the client lacks one.
  filterNames satisfies readonly (keyof ClientFilter)[];
});

test("every filter is in docs/api.md", async () => {
  const api = await Bun.file(`${import.meta.dir}/../../docs/api.md`).text();
  const [, list = ""] = /\nFilters\..*\n\n((?:- .*\n)+)/.exec(api) ?? [];
  expect([...list.matchAll(/^- `(\w+)`: /gm)].map(([, name]) => name)).toEqual([...filterNames]);
});

test.each(["tag", "name", "q"] as const)("%s matches its text, and no other", (name) => {
  const plant = { id: 1n, name: "Rose", tag: "Rose" };
  expect(createFilter({ [name]: "Rose" })(plant)).toBe(true);
  expect(createFilter({ [name]: "Fern" })(plant)).toBe(false);
  expect(needsScan({ [name]: "Rose" })).toBe(!filters[name].isIndexed);
});

test("tagged distinguishes no tag from an empty one", () => {
  const tags = [undefined, "", "Rose"];
  const find = (tagged: boolean) =>
    tags.filter((tag) => createFilter({ tagged })({ id: 1n, name: "Rose", tag }));
  expect([find(false), find(true)]).toEqual([[undefined], ["", "Rose"]]);
  for (const tagged of [false, true])
    expect([needsScan, narrows].map((is) => is({ tagged }))).toEqual([true, true]);
});
