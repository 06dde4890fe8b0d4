/** What is judged first: a request with several faults is answered for the first of them. */

import { describe, expect, test } from "bun:test";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { describeApi } from "../../src/http/description.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { send, startShared, TEST_TOKEN } from "../support/service.ts";

export const groups = ["sqlite"];

const service = await startShared(limits({ bodyBytesMax: 64 }));

const worst = {
  path: "/nowhere",
  method: "PUT",
  authorization: "",
  type: "text/plain",
  body: Buffer.from(`"\xff${"x".repeat(100)}`, "latin1") as string | Uint8Array,
};

/** Each step mends the fault that was answered for, and meets the next one. */
const steps: [ErrorName, Partial<typeof worst>][] = [
  ["path_not_found", {}],
  ["method_not_allowed", { path: "/plants" }],
  ["token_missing", { method: "POST" }],
  ["unsupported_media_type", { authorization: `Bearer ${TEST_TOKEN}` }],
  ["body_too_large", { type: "application/json" }],
  ["invalid_utf8", { body: Buffer.from('{"id":1.5,"name":"\xff"', "latin1") }],
  ["invalid_json", { body: '{"id":1.5,"name":"a"' }],
  ["invalid_plant", { body: '{"id":1.5,"name":"a"}' }],
];

test.each(steps.map(([reason], index) => [reason, index] as const))(
  "the first fault answers: %s",
  async (reason, index) => {
    const mended = steps.slice(0, index + 1).map(([, part]) => part);
    const faulty: typeof worst = Object.assign({}, worst, ...mended);
    const { path, method, authorization, type, body } = faulty;
    const headers = { "content-type": type, authorization };
    await expectError(await send(service, method, path, { body, headers }), reason);
  },
);

describe("methods", () => {
  const ask = (method: string, path: string): Promise<Response> =>
    fetch(service.url + path, { method });

  test("PUT /plants answers 405 with Allow", async () => {
    const response = await ask("PUT", "/plants");
    expect(response.headers.get("allow")).toBe("GET, HEAD, POST, PATCH, DELETE, OPTIONS");
    await expectError(response, "method_not_allowed");
  });

  test("OPTIONS answers 204 with Allow, without a token", async () => {
    const plants = await ask("OPTIONS", "/plants");
    expect([plants.status, await plants.text()]).toEqual([204, ""]);
    expect(plants.headers.get("allow")).toBe("GET, HEAD, POST, PATCH, DELETE, OPTIONS");
    expect(plants.headers.has("content-type")).toBe(false);
    const live = await ask("OPTIONS", "/livez");
    expect(live.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
  });

  test.each(["/livez", "/readyz", "/openapi.json"])(
    "HEAD %s has the headers of GET and no body, and both ignore a query",
    async (path) => {
      const [get, head] = await Promise.all([
        ask("GET", `${path}?a=1&a=2&limit=x&%FF`),
        ask("HEAD", path),
      ]);
      expect(get.status).toBe(200);
      const comparable = ({ headers }: Response): object => ({
        ...Object.fromEntries(headers),
        "x-request-id": null,
        date: null,
      });
      expect(comparable(head)).toEqual(comparable(get));
      expect(await head.text()).toBe("");
      expect((await get.bytes()).length).toBe(Number(head.headers.get("content-length")));
    },
  );
});

test.each([
  ["POST", "/plants", { body: '{"id":1,"name":"a"}' }],
  ["POST", "/plants/batch", { body: '[{"id":1,"name":"a"}]' }],
  ["GET", "/plants/1", {}],
  ["PUT", "/plants/1", { body: '{"name":"a"}' }],
  ["PATCH", "/plants/1", { body: '{"name":"a"}' }],
  ["DELETE", "/plants/1", {}],
  ["GET", "/token", {}],
  ["GET", "/metrics", {}],
])("%s %s refuses unknown parameters before it does anything", async (method, path, sent) => {
  const refused = await send(service, method, `${path}?dryRun=true&id=1`, sent);
  await expectError(refused, "invalid_query", '"dryRun": unknown; ', '; "id": unknown; ');
  expect(await service.readPlants()).toEqual([]);
  expect((await send(service, method, `${path}?`, sent)).status).not.toBe(400);
  await service.store.removePlant(1n, {}).catch(() => undefined);
});

interface Parameter {
  readonly in: string;
  readonly name: string;
  readonly required?: boolean;
  readonly schema: {
    readonly type: string;
    readonly format?: string;
    readonly enum?: readonly string[];
    readonly items?: Parameter["schema"];
    readonly pattern?: string;
  } & Readonly<Partial<Record<"minimum" | "maximum" | "minLength" | "maxLength", number>>>;
}

interface Described {
  readonly security?: readonly object[];
  readonly parameters: readonly Parameter[];
  readonly requestBody?: object;
}

const { paths } = describeApi(service.config) as { paths: Record<string, object> };
const described = Object.entries(paths).flatMap(([path, operations]) =>
  Object.entries(operations as Record<string, Described>)
    .filter(([method, { security }]) => /^(get|post|put|patch|delete)$/.test(method) && !security)
    .map(([method, { parameters, requestBody }]) => ({
      method: method.toUpperCase(),
      path,
      query: parameters.filter((one) => one.in === "query"),
      sent: requestBody === undefined ? {} : { body: "{}" },
    })),
);

const fill = (path: string): string => path.replace("{id}", "1").replace("{name}", "a");

test.each(described)(
  "$method $path names the parameters of its description when it refuses another",
  async ({ method, path, query, sent }) => {
    const refused = await send(service, method, `${fill(path)}?nonesuch=1`, sent);
    const names = query.map(({ name }) => name).join(", ") || "none";
    const { message } = (await refused.json()) as { message: string };
    expect(message).toStartWith(`"nonesuch": unknown; allowed: ${names}`);
  },
);

/** Values of parameters whose schema is any text, where not every text is allowed. */
const samples: Readonly<Record<string, string>> = {
  "/plants cursor": "name~1~a",
  "/tokens after": "0123456789abcdef",
  "/changes from": "1",
  "/changes to": "2026-01-01T00:00:00Z",
  "/changes/counts from": "1",
  "/changes/counts to": "2026-01-01T00:00:00Z",
  "/changes/counts every": "1h",
  "/activity status": "404",
};
/** What is sent beside a parameter, or beside any: a description cannot say that one of several is needed. */
const beside: Readonly<Record<string, string>> = {
  "GET /plants cursor": "sort=name",
  "PATCH /plants": "tag=none",
  "PATCH /plants tag": "",
  "PATCH /plants all": "",
  "DELETE /plants": "tag=none",
  "DELETE /plants tag": "",
  "DELETE /plants all": "",
};

/** Values that the schema allows and, if it forbids any, others. */
function valuesOf(
  {
    type,
    format,
    minimum,
    maximum,
    minLength,
    maxLength,
    pattern,
    items,
    ...one
  }: Parameter["schema"],
  sample: string | undefined,
): readonly [good: readonly string[], bad: readonly string[]] {
  if (type === "boolean")
    return [
      ["true", "false"],
      ["", "1", "yes"],
    ];
  if (type === "array" && items !== undefined) {
    const [[first = ""], [, bad = "x"]] = valuesOf(items, undefined);
    return [[first], ["", `${first},`, `${first},${bad}`]];
  }
  if (one.enum !== undefined) return [one.enum, ["", "nonesuch"]];
  if (type === "integer") {
    const isWide = format === "int64" && minimum === undefined;
    const [least, most] = isWide ? [-(2n ** 63n), 2n ** 63n - 1n] : [minimum ?? 0, maximum];
    const bad = ["", "x", "1.5", `${BigInt(least) - 1n}`];
    if (most === undefined) return [[`${least}`], bad];
    return [
      [`${least}`, `${most}`],
      [...bad, `${BigInt(most) + 1n}`],
    ];
  }
  if (minLength !== undefined && maxLength !== undefined)
    return [
      ["x".repeat(minLength), "x".repeat(maxLength)],
      ["", "x".repeat(maxLength + 1)],
    ];
  if (pattern !== undefined) return [[sample ?? ""], ["", "\n"]];
  return [sample === undefined ? ["", "a"] : [sample], []];
}

test.each(described)(
  "$method $path accepts what its description allows, and needs what it requires",
  async ({ method, path, query, sent }) => {
    const needed = query.filter(({ required }) => required === true).map(({ name }) => name);
    const ask = async (names: readonly string[], more = ""): Promise<string> => {
      const pairs = [...names.map((name) => `${name}=a`), more].filter(Boolean);
      const answer = await send(service, method, `${fill(path)}?${pairs.join("&")}`, sent);
      const text = await answer.text();
      return text.includes(`"error":${catalogue.invalid_query.code}`) ? text : "";
    };
    const alone = beside[`${method} ${path}`];
    expect(await ask(needed, alone)).toBe("");
    for (const name of needed)
      expect(await ask(needed.filter((one) => one !== name))).toContain(`${name}: expected `);
    if (sent.body !== undefined)
      expect((await send(service, method, `${fill(path)}?${alone ?? ""}`)).status).toBeOneOf([
        400, 415,
      ]);
    for (const { name, schema } of query) {
      const [good, bad] = valuesOf(schema, samples[`${path} ${name}`]);
      for (const value of [...good, ...bad]) {
        const also = beside[`${method} ${path} ${name}`] ?? alone ?? "";
        const others = needed.filter((one) => one !== name);
        const says = await ask(others, `${name}=${encodeURIComponent(value)}&${also}`);
        const isRefused = says.includes(`${name}: expected `);
        expect([name, value, isRefused]).toEqual([name, value, bad.includes(value)]);
      }
    }
  },
);
