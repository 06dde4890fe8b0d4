/** The description that was released with version 1.0.0 of the interface, and the one that is served today. */

import { expect, test } from "bun:test";
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

test.each<[string, (description: Loose) => void, string[]]>([
  ["nothing", () => undefined, []],
  [
    "an operation and a header that are gone",
    ({ paths }) => {
      delete paths["/plants/{id}"].delete;
      delete paths["/plants"].get.responses[200].headers.Link;
    },
    ["DELETE /plants/{id}: is gone", "GET /plants 200: the header Link is gone"],
  ],
  [
    "a field of a body that is required or bounded",
    ({ components }) => {
      components.schemas.NewPlant.required.push("tag");
      components.schemas.NewPlant.properties.name.maxLength = 100;
    },
    [
      "POST /plants request application/json: requires more",
      "application/json.name: maxLength changed",
    ],
  ],
  [
    "a field of another type, and an error of another number",
    ({ components }) => {
      components.schemas.Plant.properties.name.type = "integer";
      components.responses.IdTaken.content["application/json"].examples.id_taken.value.error = 1;
    },
    ["application/json.name: has another type", "error id_taken: is gone or has changed"],
  ],
  [
    "what is new and optional",
    ({ paths, components }) => {
      paths["/seeds"] = { get: paths["/tags"].get };
      paths["/plants"].get.parameters.push({ name: "shop", in: "query" });
      components.schemas.Plant.properties.height = { type: "integer" };
    },
    [],
  ],
])("the comparison with %s", (_, edit, expected) => {
  const found = findBreaks(first, change(edit)).join("\n");
  if (expected.length === 0) expect(found).toBe("");
  for (const broken of expected) expect(found).toContain(broken);
});
