/** The catalogue, the description and the frozen interface say the same. */

import { afterAll, describe, expect, test } from "bun:test";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Spectral } from "@stoplight/spectral-core";
import { oas } from "@stoplight/spectral-rulesets";
import { Compile } from "typebox/schema";
import { catalogue, type ErrorName } from "../src/domain/errors.ts";
import { createRoutes, listOperations } from "../src/http/operations.ts";
import frozen from "./frozen/interface.openapi.json";
import { send, startService } from "./support/service.ts";
import { isLong } from "./support/long.ts";

const service = await startService({ PLANTSTORE_BODY_BYTES_MAX: "2048" });

afterAll(() => service[Symbol.asyncDispose]());

interface Schema {
  readonly type: string;
  readonly format?: string;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
}

interface Media {
  readonly schema: { readonly $ref: string };
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

interface Content {
  readonly $ref?: string;
  readonly description: string;
  readonly required?: boolean;
  readonly headers?: object;
  readonly content?: Readonly<Record<string, Media>>;
}

interface Operation {
  readonly description: string;
  readonly requestBody: Content;
  readonly responses?: Readonly<Record<string, Content>>;
}

interface Document {
  readonly openapi: string;
  readonly info: { readonly version: string; readonly description: string };
  readonly security: unknown;
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> & {
    readonly "/plants": { readonly post: Operation };
  };
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly responses: Readonly<Record<string, Content>>;
    readonly securitySchemes: Readonly<Record<string, object>>;
  };
}

const description = (await (await fetch(`${service.url}/openapi.json`)).json()) as Document;
/** A response, or the shared one that it refers to. */
const resolve = (response: Content | undefined): Content | undefined =>
  response?.$ref === undefined
    ? response
    : description.components.responses[response.$ref.replace("#/components/responses/", "")];

/** What a schema demands, without what it only says. */
function shape({ type, format, required = [], properties = {} }: Schema): object {
  return {
    type,
    format,
    required: required.toSorted(),
    properties: Object.fromEntries(
      Object.entries(properties).map(([name, schema]) => [name, shape(schema)]),
    ),
  };
}

describe("the interface that we must keep", () => {
  test("has its version, its security and its shapes in our description, unchanged", () => {
    expect(description.openapi).toBe("3.1.0");
    expect(description.info.version).toBe(frozen.info.version);
    expect(description.security).toEqual(frozen.security);
    for (const [name, scheme] of Object.entries(frozen.components.securitySchemes))
      expect(description.components.securitySchemes[name]).toMatchObject(scheme);
    for (const [name, schema] of Object.entries(frozen.components.schemas))
      expect(shape(description.components.schemas[name] as Schema)).toEqual(shape(schema));
  });

  test("has its one operation in our description, with its request and each of its answers", () => {
    const promised = frozen.paths["/plants"].post;
    const ours = description.paths["/plants"].post;
    const schemaOf = (content: Content | undefined): string | undefined =>
      content?.content?.["application/json"]?.schema.$ref;
    expect(ours.requestBody.required).toBe(true);
    expect(schemaOf(ours.requestBody)).toBe(
      schemaOf(promised.requestBody as unknown as Content) as string,
    );
    for (const [status, answer] of Object.entries(promised.responses))
      expect(schemaOf(resolve(ours.responses?.[status]))).toBe(
        schemaOf(answer as Content) as string,
      );
  });

  test("is satisfied by what the service answers", async () => {
    const { Plant, Error: ErrorShape } = frozen.components.schemas;
    const good = await service.create('{"id":1,"name":"a","tag":"b"}');
    const plant: unknown = await good.json();
    expect([good.status, Compile(Plant).Check(plant)]).toEqual([200, true]);
    expect(Object.keys(plant as object).toSorted()).toEqual(["name", "tag"]);
    const bad = await service.create("{}");
    const error: unknown = await bad.json();
    expect([bad.status, Compile(ErrorShape).Check(error)]).toEqual([400, true]);
  });
});

describe("the description", () => {
  const create = description.paths["/plants"].post;

  test("lists every code of the catalogue, where it can be answered", () => {
    const elsewhere = ["path_not_found", "method_not_allowed"];
    const operations = Object.values(description.paths).flatMap((path) => Object.values(path));
    const listed = operations.flatMap((operation) =>
      Object.entries(operation.responses ?? {}).flatMap(([status, response]) =>
        Object.entries(resolve(response)?.content?.["application/json"]?.examples ?? {}).map(
          ([name, { value }]) => ({ name, status: Number(status), value }),
        ),
      ),
    );
    for (const { name, status, value } of listed) {
      const entry = catalogue[name as ErrorName];
      expect([status, value]).toEqual([
        entry.status,
        { error: entry.code, message: entry.meaning },
      ]);
    }
    expect([...new Set([...listed.map(({ name }) => name), ...elsewhere])].toSorted()).toEqual(
      Object.keys(catalogue).toSorted(),
    );
    for (const [name, { code }] of Object.entries(catalogue))
      expect(description.info.description).toContain(`${code} ${name}`);
  });

  test("has every route and every method of the service, the create operation first", () => {
    const described = Object.entries(description.paths).map(([path, operations]) => [
      path,
      Object.keys(operations)
        .filter((key) => key !== "parameters")
        .toSorted(),
    ]);
    const served = createRoutes(listOperations(service.config)).map(({ path, operations }) => [
      path,
      Object.keys(operations)
        .flatMap((method) => (method === "GET" ? ["get", "head"] : [method.toLowerCase()]))
        .toSorted(),
    ]);
    expect(described).toEqual(served);
    expect(Object.keys(description.paths["/plants"])[0]).toBe("post");
  });

  test("states the limits in force and gives examples that are accepted", async () => {
    expect(create.description).toContain("body 2048 bytes");
    expect(description.paths["/plants/{id}"]?.["put"]?.description).toContain("at most 2048 bytes");
    const examples = Object.values(
      create.requestBody.content?.["application/json"]?.examples ?? {},
    );
    expect(examples.length).toBeGreaterThan(0);
    for (const { value } of examples)
      expect((await service.create(JSON.stringify({ ...(value as object) }))).status).toBeOneOf([
        200, 409,
      ]);
  });

  test("gives batches that are accepted, and results in the same form", async () => {
    await using fresh = await startService();
    const { content = {} } = description.paths["/plants/batch"]?.["post"]?.requestBody ?? {};
    expect(Object.keys(content)).toEqual([
      "application/json",
      "application/x-ndjson",
      "application/ndjson",
      "application/jsonl",
    ]);
    for (const [type, { example }] of Object.entries(content)) {
      const body = typeof example === "string" ? example : JSON.stringify(example);
      const headers = { "content-type": type };
      const response = await send(fresh, "POST", "/plants/batch", { headers, body });
      expect([response.status, response.headers.get("content-type")]).toEqual([200, type]);
      const text = await response.text();
      const results: unknown = JSON.parse(
        type === "application/json" ? text : `[${text.trim().split("\n").join(",")}]`,
      );
      expect(results).toMatchObject([
        { line: 1, status: 200 },
        { line: 2, status: 200 },
      ]);
    }
  });

  test.skipIf(!isLong)("has no fault by the default rules of Spectral and Redocly", async () => {
    const spectral = new Spectral();
    spectral.setRuleset(oas as Parameters<typeof spectral.setRuleset>[0]);
    const found = await spectral.run(JSON.stringify(description));
    expect(found.map(({ code, path, message }) => [code, path.join("."), message])).toEqual([]);
    const problems = await lintFromString({
      source: JSON.stringify(description),
      absoluteRef: "/openapi.json",
      config: await createConfig({ extends: ["recommended-strict"] }),
    });
    expect(problems.map(({ ruleId, message }) => [ruleId, message])).toEqual([]);
  });

  test.each([
    ["", ""],
    ["/shop/eu", ""],
    ["", "/taken/away"],
  ])(
    "names its own folder as its server, with the base path %j and behind %j",
    async (basePath, taken) => {
      await using shop = await startService({ PLANTSTORE_BASE_PATH: basePath });
      const document = (await (await fetch(`${shop.url}/openapi.json`)).json()) as Document;
      const place = `https://proxy.example${taken}${basePath}/openapi.json`;
      expect(document.servers.map(({ url }) => new URL(url, place).href)).toEqual([
        `https://proxy.example${taken}${basePath}/`,
      ]);
    },
  );

  test("names the headers of a refused body, and every name of NDJSON that is answered", async () => {
    const refused = await service.create("{}", { headers: { "content-encoding": "gzip" } });
    expect([refused.status, refused.headers.get("accept-encoding")]).toEqual([415, "identity"]);
    expect(Object.keys(resolve(create.responses?.["415"])?.headers ?? {})).toEqual(
      expect.arrayContaining(["Accept-Post", "Accept-Encoding"]),
    );
    for (const path of ["/plants", "/changes"])
      for (const type of ["application/x-ndjson", "application/ndjson", "application/jsonl"]) {
        const answer = await send(service, "GET", path, { headers: { accept: type } });
        expect(answer.headers.get("content-type")).toBe(type);
        const described = description.paths[path]?.["get"]?.responses?.["200"];
        expect(Object.keys(described?.content ?? {})).toContain(type);
      }
    const batch = description.paths["/plants/batch"]?.["post"];
    for (const content of [batch?.requestBody.content, batch?.responses?.["200"]?.content])
      expect(Object.keys(content ?? {})).toEqual(
        expect.arrayContaining(["application/ndjson", "application/jsonl"]),
      );
  });
});

describe("the catalogue", () => {
  const entries = Object.values(catalogue);

  test("has each code once, in its thousand, and within int32", () => {
    expect(new Set(entries.map(({ code }) => code)).size).toBe(entries.length);
    for (const { code, status } of entries) {
      expect(Number.isInteger(code) && code > 0 && code < 2 ** 31).toBe(true);
      expect(code >= 5000).toBe(status >= 500);
    }
  });

  test("has never renumbered or dropped a code, and lists a new one here", () => {
    const released = {
      invalid_utf8: 1001,
      invalid_json: 1002,
      invalid_plant: 1003,
      invalid_id: 1004,
      invalid_query: 1005,
      invalid_precondition: 1006,
      invalid_body: 1007,
      token_missing: 2001,
      token_invalid: 2002,
      token_expired: 2003,
      insufficient_scope: 2004,
      id_taken: 3001,
      plant_not_found: 3002,
      precondition_failed: 3003,
      changes_gone: 3004,
      token_not_found: 3005,
      token_name_taken: 3006,
      last_manager: 3007,
      webhook_not_found: 3008,
      webhook_name_taken: 3009,
      store_full: 3010,
      webhooks_full: 3011,
      range_too_large: 3012,
      malformed_request: 4001,
      path_not_found: 4002,
      method_not_allowed: 4003,
      url_too_long: 4004,
      unsupported_media_type: 4005,
      unsupported_encoding: 4006,
      body_too_large: 4007,
      body_too_slow: 4008,
      body_incomplete: 4009,
      rate_limited: 4010,
      internal: 5001,
      overloaded: 5002,
      store_unavailable: 5003,
      store_busy: 5004,
      shutting_down: 5005,
      disk_low: 5006,
    };
    expect(
      Object.fromEntries(Object.entries(catalogue).map(([name, { code }]) => [name, code])),
    ).toEqual(released);
  });
});
