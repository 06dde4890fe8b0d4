/** What writes do, against a second specification that was written for clients. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { decide, type Decision, rehearse, type Room } from "../../src/domain/decide.ts";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { formatStoredPlant, type Plant } from "../../src/domain/plant.ts";
import type { AtomicWrite, PlantWrite } from "../../src/domain/write.ts";
import { type Operation, perform } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { defaults } from "../support/limits.ts";

const anyPlant: fc.Arbitrary<StoredPlant> = fc.record({
  id: fc.bigInt({ min: 1n, max: 3n }),
  name: fc.constantFrom("a", "b"),
  tag: fc.constantFrom(null, "t"),
});
const anyExpected = fc.option(anyPlant, { nil: undefined });
const anyOperation: fc.Arbitrary<Operation> = fc.oneof(
  anyPlant.map((plant): Operation => ({ kind: "create", plant })),
  fc
    .tuple(fc.constantFrom("replace", "upsert"), anyPlant, anyExpected)
    .map(([kind, plant, expected]): Operation => about({ kind, plant }, plant, expected)),
  fc
    .tuple(fc.constantFrom("remove", "discard"), anyPlant, anyExpected)
    .map(([kind, plant, expected]): Operation => about({ kind, id: plant.id }, plant, expected)),
  fc
    .tuple(
      anyPlant,
      fc.constantFrom({ name: "b" }, { tag: null }, { name: "a", tag: "t" }),
      anyExpected,
    )
    .map(([plant, patch, expected]): Operation =>
      about({ kind: "patch", id: plant.id, patch }, plant, expected),
    ),
);

/** The condition that the plant is in the state of another one. */
const about = <Kind extends Operation>(
  operation: Kind,
  { id }: StoredPlant,
  expected: StoredPlant | undefined,
): Kind =>
  expected === undefined ? operation : Object.assign(operation, { ifMatch: { ...expected, id } });

const toPlant = ({ id, name, tag }: StoredPlant): Plant => ({ id, name, tag: tag ?? undefined });

function toWrite(operation: Operation): PlantWrite {
  if (operation.kind === "create") {
    const plant = toPlant(operation.plant);
    return { kind: "create", id: plant.id, plant };
  }
  if (operation.kind === "read" || operation.kind === "sweep") throw new Error("not a write");
  const { ifMatch } = operation;
  const condition = {
    match: ifMatch && [entityTagOf(formatStoredPlant(toPlant(ifMatch)))],
  };
  if (operation.kind === "patch")
    return { kind: "patch", id: operation.id, patch: operation.patch, condition };
  if (operation.kind === "remove") return { kind: "remove", id: operation.id, condition };
  if (operation.kind === "discard")
    return { kind: "remove", id: operation.id, condition, isLenient: true };
  const plant = toPlant(operation.plant);
  return { kind: operation.kind, id: plant.id, plant, condition };
}

type Stored = Map<bigint, Plant>;

function apply(stored: Stored, { changes }: Decision): void {
  for (const { id, before, after } of changes) {
    expect(stored.get(id)).toEqual(before as Plant);
    if (after === undefined) stored.delete(id);
    else stored.set(id, after);
  }
}

const list = (plants: Iterable<readonly [bigint, StoredPlant | Plant]>) =>
  [...plants]
    .map(([, plant]) => toPlant(plant as StoredPlant))
    .toSorted((one, other) => Number(one.id - other.id));

/** Performs operations one after the other; undefined if one is refused and all must succeed. */
function performAll(states: ReadonlyMap<bigint, StoredPlant>, operations: readonly Operation[]) {
  const after = new Map(states);
  const statuses = operations.map((operation) => {
    const id = "id" in operation ? operation.id : operation.plant.id;
    const { state, answer } = perform(after.get(id), operation);
    if (state === undefined) after.delete(id);
    else after.set(id, state);
    return answer.status;
  });
  return { after, statuses };
}

const statusesOf: Readonly<Record<string, number>> = {
  id_taken: 409,
  plant_not_found: 404,
  precondition_failed: 412,
};

test("single writes leave what the model says, and are refused when it refuses them", () => {
  fc.assert(
    fc.property(fc.array(anyOperation, { maxLength: 12 }), (operations) => {
      const stored: Stored = new Map();
      let states = new Map<bigint, StoredPlant>();
      for (const operation of operations) {
        const before = stored.size;
        const decided = decide(toWrite(operation), (id) => stored.get(id));
        const { after, statuses } = performAll(states, [operation]);
        const [status = 0] = statuses;
        if (decided.outcome instanceof Refusal)
          expect(statusesOf[decided.outcome.reason]).toBe(status);
        else expect(status).toBeLessThan(300);
        // After a refusal too: it changes nothing.
        apply(stored, decided);
        expect(stored.size - before).toBe(decided.created);
        states = after;
        expect(list(stored)).toEqual(list(states));
      }
    }),
  );
});

test("an atomic write leaves all that its lines leave one after the other, or nothing", () => {
  let [kept, refused] = [0, 0];
  const unconditional = anyOperation.filter((operation) => !("ifMatch" in operation));
  fc.assert(
    fc.property(
      fc.array(anyPlant, { maxLength: 3 }),
      fc.array(unconditional, { minLength: 1, maxLength: 5 }),
      (plants, operations) => {
        const stored: Stored = new Map(plants.map((plant) => [plant.id, toPlant(plant)]));
        const before = list(stored);
        const states = new Map(plants.map((plant) => [plant.id, plant]));
        const write: AtomicWrite = { kind: "atomic", writes: operations.map(toWrite) };
        const decided = decide(write, (id) => stored.get(id));
        const { after, statuses } = performAll(states, operations);
        const isRefused = statuses.some((status) => status >= 400);
        expect(decided.outcome instanceof Refusal).toBe(isRefused);
        if (isRefused) refused++;
        else kept++;
        const size = stored.size;
        apply(stored, decided);
        expect(stored.size - size).toBe(decided.created);
        expect(list(stored)).toEqual(isRefused ? before : list(after));
        // One change for each plant, and none that changes nothing.
        expect(new Set(decided.changes.map(({ id }) => id)).size).toBe(decided.changes.length);
      },
    ),
  );
  expect(kept).toBeGreaterThan(10);
  expect(refused).toBeGreaterThan(10);
});

test("a dry run says what the writes would do, one after the other", () => {
  fc.assert(
    fc.property(fc.array(anyOperation, { maxLength: 8 }), (operations) => {
      const writes = operations.map(toWrite);
      const stored: Stored = new Map();
      const done = writes.map((write) => {
        const decided = decide(write, (id) => stored.get(id));
        apply(stored, decided);
        const { outcome } = decided;
        if (outcome instanceof Refusal) return outcome.reason;
        return typeof outcome === "object" && "done" in outcome ? outcome.done : outcome;
      });
      const rehearsed = rehearse(writes, () => undefined, defaults).map(({ outcome }) =>
        outcome instanceof Refusal ? outcome.reason : outcome,
      );
      expect(rehearsed).toEqual(done as typeof rehearsed);
    }),
  );
});

const [one, two] = [1n, 2n].map((id): Plant => ({ id, name: "a", tag: undefined })) as [
  Plant,
  Plant,
];
const create = (plant: Plant): PlantWrite => ({ kind: "create", id: plant.id, plant });
const remove = ({ id }: Plant): PlantWrite => ({ kind: "remove", id, condition: {} });
const nothing = () => undefined;

const reasonOf = ({ outcome }: Decision) => (outcome instanceof Refusal ? outcome.reason : outcome);

test.each<readonly [string, PlantWrite | AtomicWrite, Room, unknown]>([
  ["a create beyond the room is refused", create(one), { plantsLeft: 0 }, "store_full"],
  [
    "an atomic write counts what it removes",
    { kind: "atomic", writes: [create(one), remove(one), create(two)] },
    { plantsLeft: 1 },
    ["created", "removed", "created"],
  ],
  [
    "an atomic write beyond the room is refused whole",
    { kind: "atomic", writes: [create(one), create(two)] },
    { plantsLeft: 1 },
    "store_full",
  ],
  [
    "no text is added to a disk that is nearly full",
    create(one),
    { plantsLeft: 9, refuseText: new Refusal("disk_low") },
    "disk_low",
  ],
])("%s", (_, write, room, expected) => {
  expect(reasonOf(decide(write, nothing, room))).toEqual(expected as never);
});

test("a replay and a removal need no room", () => {
  const full: Room = { plantsLeft: 0, refuseText: new Refusal("disk_low") };
  expect(reasonOf(decide(create(one), () => one, full))).toBe("replayed");
  expect(reasonOf(decide(remove(one), () => one, full))).toBe("removed");
});

test("an atomic write that others have done in part is refused; one that is done whole is a replay", () => {
  const [before, after] = ["a", "b"].map((name): Plant => ({ id: 1n, name }));
  const change: PlantWrite = {
    kind: "upsert",
    id: 1n,
    plant: after as Plant,
    condition: { match: [entityTagOf(formatStoredPlant(before as Plant))] },
  };
  const write: AtomicWrite = { kind: "atomic", writes: [change, create(two)] };
  const stored = new Map([[1n, after as Plant]]);
  expect(reasonOf(decide(write, (id) => stored.get(id)))).toBe("precondition_failed");
  stored.set(2n, two);
  expect(reasonOf(decide(write, (id) => stored.get(id)))).toEqual(["replayed", "replayed"]);
});
