/** The catalogue, the description and the service say the same. */

import { describe, expect, test } from "bun:test";
import { Glob } from "bun";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Spectral } from "@stoplight/spectral-core";
import { oas } from "@stoplight/spectral-rulesets";
import { Compile } from "typebox/schema";
import type { Answer, Description, Operation } from "../../reference/description.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { NDJSON_TYPES } from "../../src/http/body.ts";
import { describeOperation } from "../../src/http/description.ts";
import type { Endpoint, Endpoints } from "../../src/http/endpoint.ts";
import { createRoutes, listOperations } from "../../src/http/operations.ts";
import frozen from "../frozen/interface.openapi.json";
import { limits } from "../support/limits.ts";
import { send, startService, startShared } from "../support/service.ts";

export const groups = ["sqlite"];

const service = await startShared(limits({ bodyBytesMax: 2048 }));

interface Document extends Description {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const description = (await (await fetch(`${service.url}/openapi.json`)).json()) as Document;
const create = description.paths["/plants"]?.["post"] as Operation;
/** A response, or the shared one that it refers to. */
const resolve = (response: Answer | undefined): Answer | undefined =>
  response?.$ref === undefined
    ? response
    : description.components.responses[response.$ref.replace("#/components/responses/", "")];

test("the interface that we must keep is satisfied by what the service answers", async () => {
  const { Plant, Error: ErrorShape } = frozen.components.schemas;
  const good = await service.create('{"id":1,"name":"a","tag":"b"}');
  const plant: unknown = await good.json();
  expect([good.status, Compile(Plant).Check(plant)]).toEqual([200, true]);
  expect(Object.keys(plant as object).toSorted()).toEqual(["name", "tag"]);
  const bad = await service.create("{}");
  const error: unknown = await bad.json();
  expect([bad.status, Compile(ErrorShape).Check(error)]).toEqual([400, true]);
});

describe("the description", () => {
  test("lists every code of the catalogue, where it can be answered", () => {
    // Those that no operation answers: for wrong paths and methods, and in the report of a job.
    const elsewhere = Object.keys(catalogue).filter(
      (name) => catalogue[name as ErrorName].failures.length === 0,
    );
    const operations = Object.values(description.paths).flatMap((path) => Object.values(path));
    const listed = operations.flatMap((operation) =>
      Object.entries(operation.responses ?? {}).flatMap(([status, response]) =>
        Object.entries(resolve(response)?.content?.["application/json"]?.examples ?? {}).map(
          ([name, { value }]) => ({ name, status: Number(status), value }),
        ),
      ),
    );
    for (const { name, status, value } of listed) {
      const { status: due, code, meaning } = catalogue[name as ErrorName];
      expect([status, value]).toEqual([due, { error: code, message: meaning }]);
    }
    expect([...new Set([...listed.map(({ name }) => name), ...elsewhere])].toSorted()).toEqual(
      Object.keys(catalogue).toSorted(),
    );
    for (const [name, { code }] of Object.entries(catalogue))
      expect(description.info.description).toContain(`${code} ${name}`);
  });

  test("has the errors of all failures of an operation that share a status", () => {
    const { revokeToken } = listOperations(service.config)["operation"] as Endpoints;
    const fails = ["TokenNameTaken", "LastManager"] as const;
    const both = { ...revokeToken, fails } as Endpoint;
    const responses = describeOperation("both", "operation", both, service.config)
      .responses as Operation["responses"];
    const { examples } = responses?.["409"]?.content?.["application/json"] ?? {};
    expect(Object.keys(examples ?? {})).toEqual(["token_name_taken", "last_manager"]);
  });

  test("has no error that no test receives", async () => {
    const files = [...new Glob("**/*.test.ts").scanSync(`${import.meta.dir}/..`)];
    const texts = files.map((file) => Bun.file(`${import.meta.dir}/../${file}`).text());
    const words = new Set((await Promise.all(texts)).join("\n").match(/\w+/g));
    expect(Object.keys(catalogue).filter((name) => !words.has(name))).toEqual([]);
  });

  test("has no path that no HTTP test requests", async () => {
    const files = [...new Glob("{contract,http}/*.test.ts").scanSync(`${import.meta.dir}/..`)];
    const texts = await Promise.all(
      files.map((file) => Bun.file(`${import.meta.dir}/../${file}`).text()),
    );
    const missing = Object.keys(description.paths).filter((path) => {
      const whole = new RegExp(`${path.replaceAll(/\{\w+\}/g, String.raw`[^/\s"]+`)}(?![\\w/])`);
      // One of several actions may be a value, beside the path that they share.
      const [, parent = "", action = ""] = /^(.*)\/\{\w+\}\/(\w+)$/.exec(path) ?? [];
      return !texts.some(
        (text) =>
          whole.test(text) ||
          (action !== "" && text.includes(parent) && text.includes(`"${action}"`)),
      );
    });
    expect(missing).toEqual([]);
  });

  test("has every route and method of the service", () => {
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
    expect(Object.keys(description.paths["/plants"] ?? {})[0]).toBe("post");
  });

  test("states the limits in force", () => {
    expect(create.description).toContain("body 2048 bytes");
    expect(description.paths["/plants/{id}"]?.["put"]?.description).toContain("at most 2048 bytes");
  });

  test("gives examples that are accepted", async () => {
    const { examples: given = {} } = create.requestBody?.content["application/json"] ?? {};
    const examples = Object.values(given);
    expect(examples.length).toBeGreaterThan(0);
    for (const { value } of examples)
      expect((await service.create(JSON.stringify(value))).status).toBeOneOf([200, 409]);
  });

  test("gives batches that are accepted", async () => {
    await using fresh = await startService();
    const batch = description.paths["/plants/batch"]?.["post"];
    const { content = {} } = batch?.requestBody ?? {};
    expect(Object.keys(content)).toEqual(["application/json", ...NDJSON_TYPES]);
    expect(Object.keys(batch?.responses?.["200"]?.content ?? {})).toEqual(
      expect.arrayContaining([...NDJSON_TYPES]),
    );
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

  test("has no fault by the default rules of Spectral and Redocly", async () => {
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
    ["docs/changes.md", "Change"],
    ["docs/api.md", "Error"],
  ])("has a schema for the JSON that %s shows: %s", async (page, name) => {
    const text = await Bun.file(`${import.meta.dir}/../../${page}`).text();
    const shown = [...text.matchAll(/^```json\n([^]*?)^```$/gm)].map(([, json = ""]) => json);
    expect(shown).not.toHaveLength(0);
    const { components } = description;
    const schema = Compile({ $ref: `#/components/schemas/${name}`, components } as object);
    for (const json of shown) expect([json, schema.Check(JSON.parse(json))]).toEqual([json, true]);
    expect(schema.Check({})).toBe(false);
  });

  test.each(["", "/shop/eu"])(
    "names its own folder as its server, with the base path %j and behind any other",
    async (basePath) => {
      await using shop = await startService({ PLANTSTORE_BASE_PATH: basePath });
      const document = (await (await fetch(`${shop.url}/openapi.json`)).json()) as Document;
      for (const taken of ["", "/taken/away"]) {
        const folder = `https://proxy.example${taken}${basePath}/`;
        const found = document.servers.map(({ url }) => new URL(url, `${folder}openapi.json`).href);
        expect(found).toEqual([folder]);
      }
    },
  );

  test("names the headers of a refused body", () => {
    expect(Object.keys(resolve(create.responses?.["415"])?.headers ?? {})).toEqual(
      expect.arrayContaining(["Accept-Post", "Accept-Encoding"]),
    );
  });

  test("has every media type of NDJSON that is answered", async () => {
    for (const path of ["/plants", "/changes"])
      for (const type of NDJSON_TYPES) {
        const answer = await send(service, "GET", path, { headers: { accept: type } });
        expect(answer.headers.get("content-type")).toBe(type);
        const described = description.paths[path]?.["get"]?.responses?.["200"];
        expect(Object.keys(described?.content ?? {})).toContain(type);
      }
  });
});
