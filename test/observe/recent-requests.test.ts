/** The requests that a thread keeps, alone. */

import { expect, test } from "bun:test";
import { RecentRequests, REQUESTS_KEPT } from "../../src/observe/recent-requests.ts";

test("neither successes nor refusals take the place of another class", () => {
  const recent = new RecentRequests();
  let endedMs = 0;
  const note = (status: number): void =>
    recent.note({
      atMs: 0,
      endedMs: ++endedMs,
      durationMs: 1,
      status,
      method: "GET",
      path: "/plants",
      id: undefined,
      reason: undefined,
      token: undefined,
      requestId: undefined,
    });
  const first = [304, 400, 499, 500, 599];
  first.forEach(note);
  const limit = 10 * REQUESTS_KEPT;
  const find = (): number[] => {
    const everything = { status: undefined, path: undefined, token: undefined, limit };
    return recent.find(everything).map(({ status }) => status);
  };
  expect(find()).toEqual(first.toReversed());
  for (let count = 0; count < REQUESTS_KEPT; count++) note(200);
  expect(find().slice(REQUESTS_KEPT)).toEqual([599, 500, 499, 400]);
  for (let count = 0; count < REQUESTS_KEPT; count++) note(404);
  expect(find().slice(2 * REQUESTS_KEPT)).toEqual([599, 500]);
});
