/** What is judged first: a request with several faults is answered for the first of them. */

import { afterAll, describe, expect, test } from "bun:test";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { send, startService, TEST_TOKEN } from "../support/service.ts";

const service = await startService(limits({ bodyBytesMax: 64 }));

afterAll(() => service[Symbol.asyncDispose]());

interface Faulty {
  readonly path: string;
  readonly method: string;
  readonly authorization?: string;
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

const worst: Faulty = {
  path: "/nowhere",
  method: "PUT",
  contentType: "text/plain",
  body: Buffer.from(`"\xff${"x".repeat(100)}`, "latin1"),
};

/** Each step mends the fault that was answered for, and meets the next one. */
const steps: [ErrorName, Partial<Faulty>][] = [
  ["path_not_found", {}],
  ["method_not_allowed", { path: "/plants" }],
  ["token_missing", { method: "POST" }],
  ["unsupported_media_type", { authorization: `Bearer ${TEST_TOKEN}` }],
  ["body_too_large", { contentType: "application/json" }],
  ["invalid_utf8", { body: Buffer.from('{"id":1.5,"name":"\xff"', "latin1") }],
  ["invalid_json", { body: '{"id":1.5,"name":"a"' }],
  ["invalid_plant", { body: '{"id":1.5,"name":"a"}' }],
];

describe("the first fault answers", () => {
  for (const [index, [reason]] of steps.entries()) {
    const mended = steps.slice(0, index + 1).map(([, part]) => part);
    const faulty: Faulty = Object.assign({}, worst, ...mended);
    const { path, method, authorization, contentType, body } = faulty;
    test(`${catalogue[reason].status} ${reason}`, async () => {
      const response = await fetch(service.url + path, {
        method,
        body,
        headers: {
          "content-type": contentType,
          ...(authorization === undefined ? {} : { authorization }),
        },
      });
      await expectError(response, reason);
    });
  }
});

describe("methods", () => {
  test.each(["PUT", "PATCH", "DELETE"])("%s /plants answers 405 with Allow", async (method) => {
    const response = await fetch(`${service.url}/plants`, { method });
    expect(response.headers.get("allow")).toBe("GET, HEAD, POST, OPTIONS");
    await expectError(response, "method_not_allowed");
  });

  test("OPTIONS answers 204 with Allow, without a token", async () => {
    const plants = await fetch(`${service.url}/plants`, { method: "OPTIONS" });
    expect([plants.status, plants.headers.get("allow"), await plants.text()]).toEqual([
      204,
      "GET, HEAD, POST, OPTIONS",
      "",
    ]);
    expect(plants.headers.has("content-type")).toBe(false);
    const live = await fetch(`${service.url}/livez`, { method: "OPTIONS" });
    expect(live.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
  });

  test.each(["/livez", "/readyz", "/openapi.json"])(
    "HEAD %s has the headers of GET and no body; it is open, and ignores parameters",
    async (path) => {
      const [get, head] = await Promise.all([
        fetch(`${service.url}${path}?a=1`),
        fetch(service.url + path, { method: "HEAD" }),
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

describe("an operation on one thing", () => {
  test.each([
    ["POST", "/plants", "application/json", '{"id":1,"name":"a"}'],
    ["POST", "/plants/batch", "application/x-ndjson", '{"id":1,"name":"a"}\n'],
    ["GET", "/plants/1", undefined, undefined],
    ["PUT", "/plants/1", "application/json", '{"name":"a"}'],
    ["DELETE", "/plants/1", undefined, undefined],
    ["GET", "/token", undefined, undefined],
    ["GET", "/metrics", undefined, undefined],
  ])("%s %s refuses unknown parameters, and does nothing", async (method, path, type, body) => {
    const ask = (query: string): Promise<Response> =>
      send(service, method, `${path}${query}`, {
        ...(body !== undefined && { body }),
        ...(type !== undefined && { headers: { "content-type": type } }),
      });
    const known = method === "GET" ? "none" : "batch";
    const says = `"dryRun": unknown; known are ${known}; "id": unknown; known are ${known}`;
    await expectError(await ask("?dryRun=true&id=1"), "invalid_query", says);
    expect(await service.readPlants()).toEqual([]);
    expect((await ask("?")).status).not.toBe(400);
    await service.store.removePlant(1n, {}).catch(() => undefined);
  });
});
