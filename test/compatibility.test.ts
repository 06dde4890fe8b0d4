/** The interface that we must keep, the description that was released with its version 1.0.0, and the one that is served today. */

import { expect, test } from "bun:test";
import { resolveConfig } from "../src/config.ts";
import { catalogue, type ErrorName } from "../src/domain/errors.ts";
import { describeApi } from "../src/http/description.ts";
import promised from "./frozen/interface.openapi.json";
import released from "./frozen/openapi.json";

type Json = null | boolean | number | string | readonly Json[] | Members;
interface Members {
  readonly [name: string]: Json;
}

const isMembers = (value: Json | undefined): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The same with what it refers to in place of each reference, and with parameters by name. */
function inline(document: Members, value: Json = document, key = ""): Json {
  if (Array.isArray(value)) {
    const items = value.map((item: Json) => inline(document, item));
    if (key !== "parameters") return items;
    const parameters = items as { in: string; name: string }[];
    return Object.fromEntries(parameters.map((one) => [`${one.in} ${one.name}`, one]));
  }
  if (!isMembers(value)) return value;
  const { $ref } = value;
  if (typeof $ref !== "string")
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, inline(document, member, name)]),
    );
  const find = (node: Json | undefined, name: string): Json | undefined =>
    isMembers(node) ? node[name] : undefined;
  const found = $ref.replace("#/", "").split("/").reduce<Json | undefined>(find, document);
  if (found === undefined) throw new Error(`${$ref} leads nowhere`);
  return inline(document, found);
}

/** They say something to people only. */
const annotations = new Set(
  "description title summary tags operationId example examples deprecated".split(" "),
);
/** Their members have names of their own, and there may be more of them. */
const maps = new Set(["responses", "content", "headers", "properties", "parameters"]);
const sets = new Set(["type", "enum", "required"]);

/** Every way in which the second description breaks a client of the first. Of what is not understood, any change does. */
function findBreaks(old: Json, now: Json | undefined, path: readonly string[]): string[] {
  const [parent = "", name = ""] = path.slice(-2);
  const say = (what: string): string[] => [`${path.join(" ")}: ${what}`];
  const isOfClient = path.includes("parameters") || path.includes("requestBody");
  // An operation that fails in fewer ways breaks no client.
  if (now === undefined) return parent === "responses" && Number(name) >= 400 ? [] : say("is gone");
  // A header by its name alone.
  if (parent === "headers") return [];
  if (sets.has(name) && parent !== "properties") {
    // What one side may send, the other must know.
    const mayGrow = isOfClient === (name !== "required");
    const [some, all] = (mayGrow ? [old, now] : [now, old]).map((value) =>
      [value].flat().filter((one) => one !== false),
    );
    return some?.every((one) => all?.includes(one)) ? [] : say("has changed");
  }
  if (Array.isArray(old) && Array.isArray(now) && old.length === now.length)
    return old.flatMap((item: Json, at) => findBreaks(item, now[at], [...path, String(at)]));
  if (!isMembers(old) || !isMembers(now)) return old === now ? [] : say("has changed");
  // So have paths, their methods, and an operation.
  const isMap = maps.has(name) || path.length <= 3;
  const isCompared = (key: string): boolean =>
    (isMap && path.length !== 3) || !annotations.has(key);
  const isBreak = (key: string): boolean =>
    isMap
      ? (isOfClient || key === "requestBody") && (now[key] as Members)["required"] === true
      : now[key] !== false && key !== "headers";
  return [
    ...Object.keys(old)
      .filter(isCompared)
      .flatMap((key) => findBreaks(old[key] as Json, now[key], [...path, key])),
    ...Object.keys(now)
      .filter((key) => isCompared(key) && !(key in old) && isBreak(key))
      .flatMap((key) => say(`${key} is new`)),
  ];
}

/** Clients had to expect error codes that they do not know, but not scopes. Only tokens made for them have the new ones. */
const accepted =
  "paths /token get responses 200 content application/json schema properties scopes items enum: is gone";

const served = JSON.parse(JSON.stringify(describeApi(resolveConfig({}, {}).config))) as Members;

test.each([
  ["the interface that we must keep", promised],
  ["the released description", released],
])("a client written against %s works with the served one", (_name, old) => {
  const [first, now] = [inline(old), inline(served)] as [Members, Members];
  const breaks = ["paths", "security"].flatMap((name) =>
    findBreaks(first[name] as Json, now[name], [name]),
  );
  // A release freezes the description again, so later there may be fewer.
  expect(breaks.filter((found) => found !== accepted)).toEqual([]);
  expect(now["openapi"]).toBe("3.1.0");
  expect((now["info"] as Members)["version"]).toBe((first["info"] as Members)["version"] as string);
});

test("the interface that we must keep has its security, and in its schemas no more members", () => {
  const { schemas, securitySchemes } = promised.components;
  expect(served["components"]).toMatchObject({ schemas, securitySchemes });
  const { schemas: now } = served["components"] as { schemas: typeof schemas };
  for (const name of ["Plant", "NewPlant", "Error"] as const)
    expect(Object.keys(now[name].properties)).toEqual(Object.keys(schemas[name].properties));
});

test("a released error keeps its code, name and status", () => {
  const rows = [...released.info.description.matchAll(/^\| `(\d+) (\w+)` \| (\d+) \|/gm)];
  expect(rows.length).toBeGreaterThan(0);
  for (const [, code, name, status] of rows)
    expect(catalogue[name as ErrorName]).toMatchObject({
      code: Number(code),
      status: Number(status),
    });
});

test("no code of an error is used twice", () => {
  const codes = Object.values(catalogue).map(({ code }) => code);
  expect(new Set(codes).size).toBe(codes.length);
});

test("codes from 5000 are those of the service", () => {
  for (const { code, status } of Object.values(catalogue)) expect(code >= 5000).toBe(status >= 500);
});
