/** Random sequences of operations over HTTP answer what the specification says, lists and batches included. */

import { afterAll, expect, test } from "bun:test";
import * as fc from "fast-check";
import { sendOperation, toAnswer } from "../support/clients.ts";
import { limits } from "../support/limits.ts";
import { idOf, isAnswer, type Operation, perform } from "../support/model.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import { seed } from "../support/random.ts";
import { send, startService } from "../support/service.ts";
import { runsFactor } from "../support/long.ts";

const RUNS = 20 * runsFactor;

const service = await startService({ ...limits({ scanRowsMax: 100 }) });

afterAll(() => service[Symbol.asyncDispose]());

interface Query {
  readonly kind: "list";
  readonly limit: number;
  readonly after: bigint | undefined;
  readonly tag: string | undefined;
  readonly name: string | undefined;
  readonly order: "asc" | "desc";
}

interface Batch {
  readonly kind: "batch";
  readonly plants: readonly StoredPlant[];
}

/** Few values, so operations meet each other. */
const id = fc.constantFrom(
  -(2n ** 63n),
  -1n,
  0n,
  1n,
  2n,
  3n,
  9007199254740992n,
  9007199254740993n,
  2n ** 63n - 1n,
);
const tag = fc.constantFrom("", "t", "T", "ü");
const plant = fc.record({
  id,
  name: fc.constantFrom("", "a", "A", "Äb", "äB"),
  tag: fc.option(tag),
});
const seen = fc.option(plant, { nil: undefined });
const kind = <Kind extends string>(name: Kind): fc.Arbitrary<Kind> => fc.constant(name);

/** A condition is about the same plant, and often not met. */
const withCondition = ({
  ifMatch,
  ...operation
}: (
  | { readonly kind: "replace"; readonly plant: StoredPlant }
  | { readonly kind: "remove"; readonly id: bigint }
) & { readonly ifMatch: StoredPlant | undefined }): Operation =>
  ifMatch === undefined
    ? operation
    : { ...operation, ifMatch: { ...ifMatch, id: idOf(operation) } };

const step: fc.Arbitrary<Operation | Batch | Query> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: kind("create"), plant }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: kind("replace"), plant, ifMatch: seen }).map(withCondition),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: kind("remove"), id, ifMatch: seen }).map(withCondition),
  },
  { weight: 1, arbitrary: fc.record({ kind: kind("read"), id }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: kind("batch"), plants: fc.array(plant, { maxLength: 6 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("list"),
      limit: fc.constantFrom(1, 2, 5, 1000),
      after: fc.option(id, { nil: undefined }),
      tag: fc.option(tag, { nil: undefined }),
      name: fc.option(fc.constantFrom("a", "ÄB", "b"), { nil: undefined }),
      order: fc.constantFrom("asc", "desc"),
    }),
  },
);

type Model = Map<bigint, StoredPlant>;

async function expectOperation(model: Model, operation: Operation): Promise<void> {
  const { state, answer } = perform(model.get(idOf(operation)), operation);
  if (state === undefined) model.delete(idOf(operation));
  else model.set(state.id, state);
  const given = await toAnswer(await sendOperation(service.url, operation));
  if (!isAnswer(given, answer)) expect({ operation, ...given }).toEqual({ operation, ...answer });
}

async function expectBatch(model: Model, { plants }: Batch): Promise<void> {
  const due = plants.map((its, index) => {
    const { state, answer } = perform(model.get(its.id), { kind: "create", plant: its });
    model.set(its.id, state as StoredPlant);
    return [index + 1, answer.status, answer.isReplay ?? false];
  });
  const response = await send(service, "POST", "/plants/batch", {
    body: plants.map((its) => `${toBody(its)}\n`).join(""),
    headers: { "content-type": "application/x-ndjson" },
  });
  const lines = (await response.text()).split("\n").filter((line) => line !== "");
  const given = lines.map((text) => {
    const { line, status, replayed = false } = JSON.parse(text) as Record<string, unknown>;
    return [line, status, replayed];
  });
  expect([response.status, given]).toEqual([200, due]);
}

async function readPage(query: Query, after: bigint | undefined): Promise<[string, bigint?]> {
  const { order, limit, name, tag: its } = query;
  const parameters = new URLSearchParams({ order, limit: String(limit) });
  for (const [key, value] of Object.entries({ after, name, tag: its }))
    if (value !== undefined) parameters.set(key, String(value));
  const response = await send(service, "GET", `/plants?${parameters.toString()}`);
  expect(response.status).toBe(200);
  const next = /[?&]after=(-?\d+)/.exec(response.headers.get("link") ?? "")?.[1];
  return [await response.text(), ...(next === undefined ? [] : [BigInt(next)])] as [
    string,
    bigint?,
  ];
}

async function expectList(model: Model, query: Query): Promise<void> {
  const { after, order, limit, name } = query;
  const found = [...model.values()]
    .toSorted((one, other) => (one.id < other.id === (order === "asc") ? -1 : 1))
    .filter(({ id: its }) => after === undefined || (order === "asc" ? its > after : its < after))
    .filter((its) => query.tag === undefined || its.tag === query.tag);
  if (name === undefined) {
    const page = found.slice(0, limit);
    const next = page.length < found.length ? page.at(-1)?.id : undefined;
    expect([query, ...(await readPage(query, after))]).toEqual([
      query,
      `[${page.map(toBody).join(",")}]`,
      ...(next === undefined ? [] : [next]),
    ]);
    return;
  }
  // The work for a page of a search is bounded in time, so only all pages together are certain.
  const due = found.filter((its) => its.name.toUpperCase().includes(name.toUpperCase()));
  const texts: string[] = [];
  for (
    let [text, next] = await readPage(query, after);
    ;
    [text, next] = await readPage(query, next)
  ) {
    expect((JSON.parse(text) as unknown[]).length).toBeLessThanOrEqual(limit);
    if (text !== "[]") texts.push(text.slice(1, -1));
    if (next === undefined) break;
  }
  expect([query, texts.join(",")]).toEqual([query, due.map(toBody).join(",")]);
}

test("any sequence of operations answers and leaves behind what the model says", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 40, size: "max" }),
      async (steps) => {
        const model: Model = new Map();
        for (const its of await service.readPlants()) await service.store.removePlant(its.id, {});
        for (const its of steps) {
          if (its.kind === "batch") await expectBatch(model, its);
          else if (its.kind === "list") await expectList(model, its);
          else await expectOperation(model, its);
        }
        expect(await service.readPlants()).toEqual(
          [...model.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1)),
        );
      },
    ),
    { numRuns: RUNS, seed },
  );
});
