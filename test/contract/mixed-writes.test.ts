/** Any sequence of writes, of every kind, against the model: answers, stored plants and the journal agree with it. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { sendOperation, toAnswer, toAnswers, toLine } from "../support/clients.ts";
import { engine } from "../support/database.ts";
import { parseLines } from "../support/folder.ts";
import { runsFactor } from "../support/long.ts";
import {
  idOf,
  isAnswer,
  isSameState,
  type Operation,
  perform,
  type State,
} from "../support/model.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { seed } from "../support/random.ts";
import { removeAll, send, startShared } from "../support/service.ts";

const service = await startShared({ PLANTSTORE_LOG_LEVEL: "error" });
/** Requests take longer on a server, and the engines share all but the last step. */
const share = engine === "sqlite" ? 1 : 0.3;

type States = Map<bigint, StoredPlant>;

/** Few of each, so that they meet. */
const anyId = fc.constantFrom(1n, 2n, 3n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n);
const anyName = fc.constantFrom("a", "b", 'é "id":1,');
const anyTag = fc.constantFrom(null, "t", "u");
const anyPlant = fc.record({ id: anyId, name: anyName, tag: anyTag });
const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined, freq: 2 });
const anyPatch = fc.record({ name: anyName, tag: anyTag }, { requiredKeys: [] });

/** The condition is about the same plant, in a state that it may have. */
const withCondition = (plant: StoredPlant, other: StoredPlant | undefined) =>
  other === undefined ? {} : { ifMatch: { ...other, id: plant.id } };

const anyLine = fc
  .record({ plant: anyPlant, other: maybe(anyPlant), isRemoval: fc.boolean() })
  .map(({ plant, other, isRemoval }) => ({
    plant,
    isRemoval,
    condition: withCondition(plant, other),
  }));

/** As a batch with and without upsert understands it. A create has no condition. */
const toOperation = (
  { plant, isRemoval, condition }: { plant: StoredPlant; isRemoval: boolean; condition: object },
  isUpsert: boolean,
): Operation => {
  if (isRemoval) return { kind: isUpsert ? "discard" : "remove", id: plant.id, ...condition };
  return isUpsert ? { kind: "upsert", plant, ...condition } : { kind: "create", plant };
};

const anyBatch = fc.record({
  lines: fc.array(anyLine, { maxLength: 12 }),
  isUpsert: fc.boolean(),
  isAtomic: fc.boolean(),
  isArray: fc.boolean(),
});
type Batch = typeof anyBatch extends fc.Arbitrary<infer Value> ? Value : never;

const toSingle = (
  plant: StoredPlant,
  other: StoredPlant | undefined,
  patch: { readonly name?: string; readonly tag?: string | null },
  choice: number,
): Operation => {
  const { id } = plant;
  const condition = withCondition(plant, other);
  if (choice === 0) return { kind: "create", plant };
  if (choice === 1) return { kind: "replace", plant, ...condition };
  if (choice === 2) return { kind: "patch", id, patch, ...condition };
  return { kind: "remove", id, ...condition };
};
const anySingle = fc
  .tuple(anyPlant, maybe(anyPlant), anyPatch, fc.nat(3))
  .map((parts) => toSingle(...parts));

const anyBulk = fc.record({ tag: fc.constantFrom("t", "u"), patch: maybe(anyPatch) });

const anyRequest = fc.oneof(
  { weight: 4, arbitrary: anyBatch },
  { weight: 2, arbitrary: anySingle },
  { weight: 1, arbitrary: anyBulk },
);
const anySteps = fc.array(fc.record({ request: anyRequest, isRepeated: fc.boolean() }), {
  minLength: 1,
  maxLength: 12,
  size: "max",
});

const set = (states: States, id: bigint, state: State): void =>
  void (state === undefined ? states.delete(id) : states.set(id, state));

/** Changes the states; resolves to how many changes the journal must have. */
async function take(
  request: typeof anyRequest extends fc.Arbitrary<infer R> ? R : never,
  states: States,
) {
  if ("lines" in request) return takeBatch(request, states);
  if ("kind" in request) {
    const before = states.get(idOf(request));
    const { state, answer } = perform(before, request);
    const given = await toAnswer(await sendOperation(service.url, request));
    if (!isAnswer(given, answer)) expect(given).toEqual(answer);
    set(states, idOf(request), state);
    // A replacement by the same plant is a change too.
    const isReplaced = request.kind === "replace" && answer.status === 200;
    return isReplaced || !isSameState(before, state) ? 1 : 0;
  }
  const { tag, patch } = request;
  const matching = [...states.values()].filter((plant) => plant.tag === tag);
  const [method, sent] =
    patch === undefined ? ["DELETE", {}] : ["PATCH", { body: JSON.stringify(patch) }];
  const response = await send(service, method, `/plants?tag=${tag}`, sent);
  let changes = 0;
  for (const plant of matching) {
    const state = patch && { ...plant, ...patch };
    if (!isSameState(plant, state)) changes++;
    set(states, plant.id, state);
  }
  expect(await response.json()).toMatchObject({
    plants: matching.length,
    [patch === undefined ? "removed" : "replaced"]: changes,
    unchanged: matching.length - changes,
    changedSince: 0,
    refused: 0,
    complete: true,
  });
  return changes;
}

async function takeBatch({ lines: given, isUpsert, isAtomic, isArray }: Batch, states: States) {
  const operations = given.map((line) => toOperation(line, isUpsert));
  const lines = operations.map(toLine);
  const response = await send(
    service,
    "POST",
    `/plants/batch?upsert=${isUpsert}&atomic=${isAtomic}`,
    {
      body: isArray ? `[${lines.join(",")}]` : lines.join("\n"),
      headers: { "content-type": isArray ? "application/json" : "application/x-ndjson" },
    },
  );
  const before = new Map(states);
  const after = new Map(states);
  let changes = 0;
  let stale = -1;
  const due = operations.map((operation, index) => {
    const last = after.get(idOf(operation));
    const { state, answer } = perform(last, operation);
    set(after, idOf(operation), state);
    if (!isSameState(last, state)) changes++;
    // A line says 200 where a removal by its own request says 204.
    const status = answer.status === 204 ? 200 : answer.status;
    const isReplay = status === 200 && answer.isReplay === true;
    const { ifMatch = last } = operation as { readonly ifMatch?: State };
    // What an earlier line of the batch did is not stale.
    const isOwn = !isSameState(before.get(idOf(operation)), last);
    if (isReplay && !isOwn && stale === -1 && !isSameState(last, ifMatch)) stale = index;
    return { status, isReplay };
  });
  let failed = due.findIndex(({ status }) => status !== 200);
  const isChanged = operations.some(
    (operation) => !isSameState(before.get(idOf(operation)), after.get(idOf(operation))),
  );
  // Others have done a part of it.
  if (isAtomic && failed === -1 && stale !== -1 && isChanged) {
    failed = stale;
    due[failed] = { status: 412, isReplay: false };
  }
  if (isAtomic && failed !== -1) {
    expect(response.status).toBe(due[failed]?.status as number);
    expect(await response.json()).toMatchObject({
      message: expect.stringMatching(new RegExp(`^line ${failed + 1}: `)),
    });
    return 0;
  }
  expect(response.status).toBe(200);
  const answers = isArray
    ? await toAnswers(response)
    : parseLines(await response.text()).map((line) => {
        const { status, replayed = false } = line as { status: number; replayed?: boolean };
        return { status, isReplay: replayed };
      });
  expect(answers.map(({ status, isReplay = false }) => ({ status, isReplay }))).toEqual(due);
  for (const operation of operations) set(states, idOf(operation), after.get(idOf(operation)));
  if (!isAtomic) return changes;
  const ids = new Set(operations.map(idOf));
  return [...ids].filter((id) => !isSameState(before.get(id), after.get(id))).length;
}

const toState = (id: bigint, content: { name: string; tag?: string } | undefined): State =>
  content && { id, name: content.name, tag: content.tag ?? null };

test("batches of mixed lines, atomic or not, patches and changes by filter do what the model does, sent once or twice", () =>
  fc.assert(
    fc.asyncProperty(anySteps, async (steps) => {
      await removeAll(service);
      const states: States = new Map();
      let { newest } = await service.store.readChanges({ after: 0, limit: 0 });
      for (const { request, isRepeated } of steps)
        for (let times = isRepeated ? 2 : 1; times > 0; times--) {
          const told: States = new Map(states);
          const changes = await take(request, states);
          const stored = [...states.values()].toSorted((one, other) =>
            one.id < other.id ? -1 : 1,
          );
          expect(await service.readPlants()).toEqual(stored);
          const page = await service.store.readChanges({ after: newest, limit: 999 });
          expect(page.changes).toHaveLength(changes);
          newest = page.last;
          for (const { json } of page.changes) {
            const id = BigInt(/"id":(-?\d+)/.exec(json)?.[1] as string);
            const { plant, before } = JSON.parse(json) as Record<
              "plant" | "before",
              { name: string }
            >;
            expect(told.get(id)).toEqual(toState(id, before));
            set(told, id, toState(id, plant));
          }
          const isTold = [...told.values()].every((plant) => {
            const state = states.get(plant.id);
            return state !== undefined && isSamePlant(state, plant);
          });
          expect([isTold, told.size]).toEqual([true, states.size]);
        }
    }),
    {
      seed,
      numRuns: Math.ceil(120 * share * runsFactor),
      interruptAfterTimeLimit: 240_000,
    },
  ));
