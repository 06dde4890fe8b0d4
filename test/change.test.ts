/** Changes and the events that tell of them: how they are written, and when one has arrived. */

import { expect, test } from "bun:test";
import { type Change, type ChangeType, findChangeTypes, listChange } from "../src/domain/change.ts";
import { hasSucceeded } from "../src/domain/webhook.ts";

const before = { id: 7n, name: "fern", tag: undefined };
const plant = { id: 7n, name: "moss", tag: "green" };
const replaced: Change = {
  seq: 5,
  atMs: 1_000,
  type: "replaced",
  id: 7n,
  by: 'a"b',
  plant,
  before,
};

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

test("a change is written with what it has, and nothing else", () => {
  expect(listChange(replaced).json).toBe(
    '{"seq":5,"time":"1970-01-01T00:00:01.000Z","type":"replaced","id":7,"by":"a\\"b",' +
      '"plant":{"name":"moss","tag":"green"},"before":{"name":"fern"}}',
  );
  const bare = { ...replaced, atMs: 2_000, by: undefined, plant: undefined, before: undefined };
  expect(listChange(bare).json).toBe(
    '{"seq":5,"time":"1970-01-01T00:00:02.000Z","type":"replaced","id":7}',
  );
});

test("an event has arrived if the answer was 2xx", () => {
  const attempt = { event: "msg_1", time: "", durationMs: 0, error: null, answer: null };
  const statuses = [null, 199, 200, 204, 299, 300, 500];
  expect(statuses.filter((status) => hasSucceeded({ ...attempt, status }))).toEqual([
    200, 204, 299,
  ]);
});
