/** The types of changes that a client asks for, and when an event about one has arrived. */

import { expect, test } from "bun:test";
import { findChangeTypes } from "../../src/domain/change.ts";
import { hasSucceeded } from "../../src/domain/webhook.ts";

test("types are a list of known ones, at least one, each once", () => {
  const good = [["created"], ["removed", "created", "replaced"]];
  const bad = [[], ["created", "created"], ["created", "eaten"], "created", undefined];
  expect([...good, ...bad].map(findChangeTypes).filter(Boolean) as unknown).toEqual(good);
});

test("an event has arrived if the answer was 2xx", () => {
  const attempt = { event: "msg_1", time: "", durationMs: 0, error: null, answer: null };
  const isSuccess = (status: number | null) => hasSucceeded({ ...attempt, status });
  expect([null, 199, 200, 204, 299, 300, 500].filter(isSuccess)).toEqual([200, 204, 299]);
});
