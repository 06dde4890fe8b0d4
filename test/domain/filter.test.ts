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

test.each(filterNames)("%s is in the documents, and where it needs a scan", async (name) => {
  const read = (page: string): Promise<string> =>
    Bun.file(`${import.meta.dir}/../../docs/${page}.md`).text();
  const [api, client] = [await read("api"), await read("client")];
  const sentence = (start: string): string => api.slice(api.indexOf(start)).split("\n")[0] ?? "";
  expect(api).toContain(`\n- \`${name}\`: `);
  expect(sentence("`GET /plants/count` accepts").split(";")[0]).toContain(`\`${name}\``);
  if (!filters[name].isIndexed)
    expect(sentence("**A page may be shorter")).toContain(`\`${name}\``);
  for (const [, members] of client.matchAll(/(?:listPage|countPlants)\(\{([^}]*q[^}]*)\}/g))
    expect(members?.match(/\w+/g)).toContain(name);
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
