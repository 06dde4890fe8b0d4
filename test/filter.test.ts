/** One table of filters: the service, the client and the commands have the same ones. */

import { expect, test } from "bun:test";
import type { Filter as ClientFilter } from "../client/client.ts";
import {
  createFilter,
  type FilterName,
  filterNames,
  filters,
  isSearch,
} from "../src/domain/filter.ts";
import { filterParameters } from "../src/http/query.ts";
import { runCommand } from "./support/command.ts";
import { makeWorkplace } from "./support/folder.ts";

/** A filter that the client lacks does not compile. */
const inClient: { readonly [Name in FilterName]: Name & keyof ClientFilter } = {
  tag: "tag",
  name: "name",
  q: "q",
};

test("every filter is a parameter, and one of the client", () => {
  expect(Object.keys(filterParameters)).toEqual([...filterNames]);
  expect(Object.keys(inClient)).toEqual([...filterNames]);
});

test.each(filterNames)("%s: what it lets through is judged by itself", (name) => {
  const plant = { id: 1n, name: "Rose", tag: "Rose" };
  expect(createFilter({ [name]: "Rose" })(plant)).toBe(true);
  expect(createFilter({ [name]: "Fern" })(plant)).toBe(false);
  expect(isSearch({ [name]: "Rose" })).toBe(!filters[name].isIndexed);
});

test("export takes every filter, and refuses what a query refuses", async () => {
  using at = makeWorkplace();
  const lines = '{"id":1,"name":"Red rose","tag":"shrub"}\n{"id":2,"name":"Fern","tag":"shade"}\n';
  await Bun.write(at.file("plants.ndjson"), lines);
  expect((await runCommand(["import", at.file("plants.ndjson")], at.env)).exitCode).toBe(0);
  for (const option of [
    ["--tag", "shrub"],
    ["--name", "ROSE"],
    ["--q", "rose shrub"],
  ]) {
    const { stdout } = await runCommand(["export", ...option], at.env);
    expect(stdout).toBe(`${lines.split("\n")[0]}\n`);
  }
  const refused = await runCommand(["export", "--q", "word ".repeat(17)], at.env);
  expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
  expect(refused.stderr).toContain("--q: ");
  expect(refused.stderr).toContain("expected at most 16 words");
});
