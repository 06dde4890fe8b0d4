/** The types of changes that a client asks for, and when an event about one has arrived. */

import { expect, test } from "bun:test";
import { type ChangeType, findChangeTypes } from "../src/domain/change.ts";
import { hasSucceeded } from "../src/domain/webhook.ts";

test.each<[unknown, boolean]>([
  [["created"], true],
  [["removed", "created", "replaced"], true],
  [[], false],
  [["created", "created"], false],
  [["created", "eaten"], false],
  ["created", false],
  [undefined, false],
])("%j is a list of types: %p", (value, isSound) =>
  expect(findChangeTypes(value)).toEqual(isSound ? (value as ChangeType[]) : undefined),
);

test("an event has arrived if the answer was 2xx", () => {
  const attempt = { event: "msg_1", time: "", durationMs: 0, error: null, answer: null };
  const statuses = [null, 199, 200, 204, 299, 300, 500];
  expect(statuses.filter((status) => hasSucceeded({ ...attempt, status }))).toEqual([
    200, 204, 299,
  ]);
});
