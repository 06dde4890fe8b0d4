/** What is judged first: a request with several faults is answered for the first of them. */

import { describe, expect, test } from "bun:test";
import type { ErrorName } from "../../src/domain/errors.ts";
import { describeApi } from "../../src/http/description.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { send, startShared, TEST_TOKEN } from "../support/service.ts";

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
    "HEAD %s has the headers of GET and no body",
    async (path) => {
      const [get, head] = await Promise.all([ask("GET", `${path}?a=1`), ask("HEAD", path)]);
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

interface Described {
  readonly security?: readonly object[];
  readonly parameters: readonly { readonly in: string; readonly name: string }[];
}

const { paths } = describeApi(service.config) as { paths: Record<string, object> };
const described = Object.entries(paths).flatMap(([path, operations]) =>
  Object.entries(operations as Record<string, Described>)
    .filter(([method, { security }]) => /^(get|post|put|patch|delete)$/.test(method) && !security)
    .map(([method, { parameters }]) => ({ method: method.toUpperCase(), path, parameters })),
);

test.each(described)(
  "$method $path names the parameters of its description when it refuses another",
  async ({ method, path, parameters }) => {
    const names = parameters.filter((one) => one.in === "query").map(({ name }) => name);
    const sent = /^(POST|PUT)$/.test(method) ? { body: "{}" } : {};
    const at = path.replace("{id}", "1").replace("{name}", "a");
    const refused = await send(service, method, `${at}?nonesuch=1`, sent);
    const says = `"nonesuch": unknown; allowed: ${names.join(", ") || "none"}`;
    expect(((await refused.json()) as { message: string }).message).toBe(says);
  },
);
