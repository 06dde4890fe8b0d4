/** A field of a request is what its schema says, and an operation asks for nothing beside its fields and scopes. */

import { describe, expect, test } from "bun:test";
import { Glob } from "bun";
import { join } from "node:path";
import { Compile } from "typebox/schema";
import { resolveConfig } from "../src/config.ts";
import { splitPlace, listOperations } from "../src/http/operations.ts";
import type { Field } from "../src/http/field.ts";

const endpoints = Object.entries(listOperations(resolveConfig({}, {}).config)).flatMap(
  ([, operations]) => Object.entries(operations),
);

/** Values around every bound and of every kind. */
const inputs = [
  "|0|1|-1|7|100|101|999|1000|1001|9999|1.5|1e3| 1|9223372036854775807|9223372036854775808",
  "-9223372036854775808|1767225600000001|true|false|TRUE|yes|asc|desc|ASC|id|-id|name|-name|tag",
  "changed|-changed|sort|created|created,removed|created,created|replaced,|batch|run|by|by,batch",
  "batch,by|by,by|failed|2xx|404|199|6xx|15m|1h|1d|0d|2026-11-15T10:00:00Z|2026-11-15|a\u0000b|\n",
  `9f86d081884c7d65|${"x".repeat(100)}|${"x".repeat(101)}|1,2|1,2,|1,x|spring.csv|a b c`,
]
  .join("|")
  .split("|");

const fields = endpoints.flatMap(([id, { path = {}, query = {}, streamQuery = {} }]) =>
  [path, query, streamQuery].flatMap((group) =>
    Object.entries(group).map(([name, field]) => [id, name, field] as const),
  ),
);

/** What the text stands for, as OpenAPI says. */
function toValue(text: string, { schema }: Pick<Field<unknown>, "schema">): unknown {
  const { type, items } = schema as { type?: string; items?: Field<unknown>["schema"] };
  if (type === "array")
    return text.split(",").map((each) => toValue(each, { schema: items ?? {} }));
  if (type === "boolean" && /^(true|false)$/.test(text)) return text === "true";
  return type === "integer" && /^-?\d+$/.test(text) ? Number(text) : text;
}

/** These say all that there is to say. Others have more rules, as words. */
const isExact = ({ schema }: Field<unknown>): boolean =>
  ["enum", "maximum", "pattern"].some((name) => schema[name] !== undefined) ||
  schema["type"] === "boolean";

describe("what the parser of a field accepts, its schema accepts", () => {
  test.each(fields)("%s: %s", (_id, _name, field) => {
    const schema = Compile(field.schema as object);
    const accepted = inputs.filter((input) => field.find(input) !== undefined);
    expect(accepted.filter((input) => !schema.Check(toValue(input, field)))).toEqual([]);
    const isRefusedAlways = field.expected.startsWith("no ");
    if (!isExact(field) || isRefusedAlways) return;
    const allowed = inputs.filter((input) => schema.Check(toValue(input, field)));
    expect(accepted).toEqual(allowed);
    expect(accepted).not.toEqual([]);
  });
});

test("each field has words, and each value that stands in for an absent one is its default", () => {
  expect(fields.length).toBeGreaterThan(100);
  for (const [id, name, { schema, fallback, refusal, expected }] of fields) {
    const isShown = !expected.startsWith("no ");
    if (isShown) expect([id, name, schema["description"]]).toEqual([id, name, expect.any(String)]);
    const due = schema["default"];
    if (due !== undefined && fallback !== undefined && isShown)
      expect([id, name, fallback]).toEqual([id, name, due]);
    expect(refusal === undefined || typeof refusal === "string").toBe(true);
  }
});

test("a path names the fields of its operation", () => {
  for (const [id, endpoint] of endpoints) {
    const [, path] = splitPlace(endpoint);
    const named = Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name);
    expect([id, Object.keys(endpoint.path ?? {})]).toEqual([id, named as string[]]);
  }
});

test("the media types of a body are described", () => {
  const bodies = endpoints.filter(([, { body }]) => body !== undefined);
  expect(bodies.length).toBeGreaterThan(8);
  for (const [id, { body, accepts = {} }] of bodies)
    expect([id, body?.types.toSorted()]).toEqual([id, Object.keys(accepts).toSorted()]);
});

describe("only the flow of a request", () => {
  const root = join(import.meta.dir, "../src/http");
  const findFiles = async (pattern: RegExp): Promise<string[]> => {
    const names = [...new Glob("*.ts").scanSync(root)].toSorted();
    const texts = await Promise.all(names.map((name) => Bun.file(join(root, name)).text()));
    return names.filter((_, at) => pattern.test(texts[at] ?? ""));
  };

  test("asks for scopes, so each operation declares those that it needs", async () => {
    // A token cannot grant a scope that it lacks; a tool declares its own.
    const others = ["endpoint.ts", "handle.ts", "mcp.ts", "tokens.ts"];
    expect(await findFiles(/requireScopes\(|"insufficient_scope"/)).toEqual(others);
  });

  test("reads the head of a request: operations get what their fields found", async () => {
    const operations = await findFiles(/\bInput</);
    const reading = await findFiles(/searchParams|\bparams\b|request\.url|headers\.get\(/);
    expect(operations.length).toBeGreaterThan(8);
    expect(operations.filter((name) => reading.includes(name))).toEqual(["exchange.ts"]);
  });
});
