/** The judge of contests: a search that must end, however many answers were lost. */

import { expect, test } from "bun:test";
import { type Event, isLinearizable } from "../support/history.ts";
import { type Operation, perform, type State } from "../support/model.ts";

const id = 1n;
const tag = "window";
const rose = { id, name: "rose", tag };
const fern = { id, name: "fern", tag };

const sweep = (name?: string): Operation => ({
  kind: "sweep",
  id,
  tag,
  patch: name === undefined ? undefined : { name },
});

type Asked = readonly [operation: Operation, answer?: Event["answer"]];

/** One after the other. Those without an answer have lost it. */
const recall = (...asked: readonly Asked[]): Event[] =>
  asked.map(([operation, answer], nth) => {
    const sentAt = 2 * nth;
    return answer === undefined
      ? { operation, sentAt }
      : { operation, sentAt, answer, answeredAt: sentAt + 1 };
  });

const created: Asked = [
  { kind: "create", plant: rose },
  { status: 200, isReplay: false },
];
const read: Operation = { kind: "read", id };
const reads = (plant: State): Asked => [read, perform(plant, read).answer];

/** Each may have happened at any time since, or never. */
const lost = Array.from({ length: 60 }, (_, nth): Asked[] => [
  [sweep(`name ${nth}`)],
  [sweep()],
  [{ kind: "create", plant: { id, name: `copy ${nth}`, tag } }],
]).flat();

test("a history with hundreds of lost answers is explained", () => {
  const replaced = [{ kind: "replace", plant: fern }, { status: 200 }] as const;
  expect(isLinearizable(recall(created, ...lost, reads(rose), replaced, reads(fern)))).toBe(true);
  expect(isLinearizable(recall(created, ...lost, reads(undefined), created, reads(rose)))).toBe(
    true,
  );
});

test("a read of what nobody wrote is noticed among hundreds of lost answers", () => {
  expect(isLinearizable(recall(created, ...lost, reads(fern)))).toBe(false);
});

test("a lost operation explains one change of the plant, and not two", () => {
  const history = (...sweeps: readonly Asked[]): Event[] =>
    recall(created, ...sweeps, reads(undefined), created, reads(undefined));
  expect(isLinearizable(history([sweep()]))).toBe(false);
  expect(isLinearizable(history([sweep()], [sweep()]))).toBe(true);
});

test("a lost operation whose name is read has happened before, and no other in its place", () => {
  const swept = { ...rose, name: "swept" };
  const other = { ...rose, name: "other" };
  const history = [created, [sweep("swept")], [sweep("lost")], reads(swept)] as const;
  expect(isLinearizable(recall(...history))).toBe(true);
  expect(isLinearizable(recall(...history, reads(other)))).toBe(false);
  expect(isLinearizable(recall(...history, reads(rose)))).toBe(false);
});
