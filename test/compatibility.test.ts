/** The description that was released with version 1.0.0 of the interface, and the one that is served today. */

import { describe, expect, test } from "bun:test";
import { resolveConfig } from "../src/config.ts";
import { describeApi } from "../src/http/operations.ts";
import released from "./frozen/openapi.json";
import { type Description, findBreaks } from "./support/compatibility.ts";

const first = released as unknown as Description;
const served = JSON.parse(JSON.stringify(describeApi(resolveConfig({}, {}).config))) as Description;

/** Clients had to expect error codes that they do not know, but not scopes. Only tokens made for them have the new ones. */
const accepted = new Set(["GET /token 200 application/json.scopes[]: has other values"]);

test("a client written against the released description works with the served one", () => {
  // A release freezes the description again, so later there may be fewer.
  expect(findBreaks(first, served).filter((found) => !accepted.has(found))).toEqual([]);
});

/** Any part of a description, to be changed by a test. */
// oxlint-disable-next-line typescript/no-explicit-any
type Loose = any;

const change = (edit: (description: Loose) => void): Description => {
  const copy = structuredClone(first) as Loose;
  edit(copy);
  return copy as Description;
};

describe("the comparison finds what breaks a client:", () => {
  test.each<[string, (description: Loose) => void, string]>([
    ["a path is gone", ({ paths }) => delete paths["/tags"], "GET /tags: is gone"],
    [
      "an operation is gone",
      ({ paths }) => delete paths["/plants/{id}"].delete,
      "DELETE /plants/{id}: is gone",
    ],
    [
      "a query parameter is gone",
      ({ paths }) => {
        paths["/plants"].get.parameters = paths["/plants"].get.parameters.slice(1);
      },
      "GET /plants query parameter",
    ],
    [
      "a query parameter is required",
      ({ paths }) =>
        paths["/plants"].get.parameters.push({ name: "shop", in: "query", required: true }),
      "GET /plants query parameter shop: is required",
    ],
    [
      "a field of a body is required",
      ({ components }) => components.schemas.NewPlant.required.push("tag"),
      "POST /plants request application/json: requires more",
    ],
    [
      "a field of a body is not known any more",
      ({ components }) => delete components.schemas.NewPlant.properties.tag,
      "POST /plants request application/json.tag: is gone",
    ],
    [
      "a field of an answer is gone",
      ({ components }) => delete components.schemas.Plant.properties.tag,
      "POST /plants 200 application/json.tag: is gone",
    ],
    [
      "a field of an answer is not promised any more",
      ({ components }) => {
        components.schemas.Plant.required = [];
      },
      "POST /plants 200 application/json: promises less",
    ],
    [
      "a field has another type",
      ({ components }) => {
        components.schemas.Plant.properties.name.type = "integer";
      },
      "application/json.name: has another type",
    ],
    [
      "a field has another format",
      ({ components }) => {
        components.schemas.NewPlant.properties.id.format = "int32";
      },
      "application/json.id: format changed",
    ],
    [
      "a length is bounded",
      ({ components }) => {
        components.schemas.NewPlant.properties.name.maxLength = 100;
      },
      "application/json.name: maxLength changed",
    ],
    [
      "a number is bounded",
      ({ components }) => {
        components.schemas.NewPlant.properties.id.minimum = 1;
      },
      "application/json.id: has another minimum",
    ],
    [
      "an answer has another value",
      ({ paths }) =>
        paths["/livez"].get.responses[200].content[
          "application/json"
        ].schema.properties.status.enum.push("drowsy"),
      "GET /livez 200 application/json.status: has other values",
    ],
    [
      "a media type is not accepted any more",
      ({ paths }) => delete paths["/plants/batch"].post.requestBody.content["application/json"],
      "POST /plants/batch request: application/json is gone",
    ],
    [
      "a success is gone",
      ({ paths }) => delete paths["/plants"].post.responses[200],
      "POST /plants 200: is gone",
    ],
    [
      "a header is gone",
      ({ paths }) => delete paths["/plants"].get.responses[200].headers.Link,
      "GET /plants 200: the header Link is gone",
    ],
    [
      "an error code is gone",
      ({ components }) =>
        delete components.responses.IdTaken.content["application/json"].examples.id_taken,
      "error id_taken: is gone or has changed",
    ],
    [
      "an error has another number",
      ({ components }) => {
        components.responses.IdTaken.content["application/json"].examples.id_taken.value.error = 1;
      },
      "error id_taken: is gone or has changed",
    ],
    [
      "an open operation needs a token",
      ({ paths }) => delete paths["/livez"].get.security,
      "GET /livez: needs a token",
    ],
    [
      "the version is another",
      ({ info }) => {
        info.version = "2.0.0";
      },
      "info: the version changed to 2.0.0",
    ],
  ])("%s", (_, edit, expected) => {
    expect(findBreaks(first, change(edit)).join("\n")).toContain(expected);
  });
});

describe("the comparison lets pass what breaks none:", () => {
  test.each<[string, (description: Loose) => void]>([
    ["nothing", () => undefined],
    [
      "an operation is new",
      ({ paths }) => {
        paths["/seeds"] = { get: paths["/tags"].get };
      },
    ],
    [
      "an optional parameter is new",
      ({ paths }) => paths["/plants"].get.parameters.push({ name: "shop", in: "query" }),
    ],
    [
      "a body may have another field, and an answer has one",
      ({ components }) => {
        components.schemas.Plant.properties.height = { type: "integer" };
        components.schemas.NewPlant.properties.height = { type: "integer" };
      },
    ],
    [
      "an answer promises a field that was optional",
      ({ components }) => components.schemas.BatchResult.required.push("replayed"),
    ],
    [
      "a limit is raised, and texts are changed",
      ({ paths, info }) => {
        const limit = paths["/plants"].get.parameters.find(({ name }: Loose) => name === "limit");
        limit.schema.maximum *= 2;
        limit.description = "How many.";
        info.description = "Plants.";
      },
    ],
    [
      "an error is new, and an operation does not fail in one way any more",
      ({ paths, components }) => {
        components.responses.IdTaken.content["application/json"].examples.id_odd = {
          value: { error: 3999, message: "Odd." },
        };
        delete paths["/plants"].post.responses[408];
      },
    ],
  ])("%s", (_, edit) => expect(findBreaks(first, change(edit))).toEqual([]));
});
