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
