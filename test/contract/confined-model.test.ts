/** Two confined tokens and one for the whole store, in any order: what each is answered and sees agrees with the model. */

import { expect, test } from "bun:test";
import { narrowChange } from "../../src/domain/confinement.ts";
import { sendOperation, toAnswer, toLine } from "../support/clients.ts";
import { engine } from "../support/database.ts";
import { runsFactor } from "../support/long.ts";
import {
  type Answer,
  idOf,
  isAnswer,
  isSameState,
  type Operation,
  perform,
  type State,
} from "../support/model.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import { createRandom, type Random, seed, tellingSeed } from "../support/random.ts";
import {
  bearer,
  getText,
  grantToken,
  removeAll,
  send,
  startShared,
  walkPages,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const service = await startShared({ PLANTSTORE_LOG_LEVEL: "error" });

interface Caller {
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined for the whole store. */
  readonly tags: readonly string[] | undefined;
}

const tagsOf: readonly (readonly string[] | undefined)[] = [
  ["a", "b", `${"long ".repeat(30)}1`],
  ["b"],
  undefined,
];
const callers: readonly Caller[] = await Promise.all(
  tagsOf.map(async (tags) => ({
    headers: bearer(await grantToken(service, undefined, { tags })),
    tags,
  })),
);

// Few of each, so that they meet. The long ones begin alike, as far as an index has them.
const allIds = [1n, 2n, 3n, 4n, -1n, 2n ** 63n - 1n];
const names = ["rose", "fern", "Moss"];
const tags = [null, "", "a", "b", "c", `${"long ".repeat(30)}1`, `${"long ".repeat(30)}2`];

const isSeen = ({ tags: own }: Caller, plant: State): boolean =>
  plant !== undefined && (own === undefined || (plant.tag !== null && own.includes(plant.tag)));

const pickPlant = (random: Random): StoredPlant => ({
  id: random.pick(allIds),
  name: random.pick(names),
  tag: random.pick(tags),
});

function pickOperation(random: Random, kinds: readonly Operation["kind"][]): Operation {
  const plant = pickPlant(random);
  const { id } = plant;
  const kind = random.pick(kinds);
  const other = { ...pickPlant(random), id };
  const condition = random.chance(30) ? { ifMatch: other } : {};
  if (kind === "create") return { kind, plant };
  if (kind === "read") return { kind, id };
  if (kind === "replace" || kind === "upsert") return { kind, plant, ...condition };
  if (kind !== "patch") return { kind: kind === "sweep" ? "remove" : kind, id, ...condition };
  const { name, tag } = pickPlant(random);
  const patch = random.pick([{ name }, { tag }, { name, tag }]);
  return { kind, id, patch, ...condition };
}

/** What the model of one plant says, for a caller who may not see it. */
function performFor(caller: Caller, state: State, operation: Operation) {
  const refused = (status: number): { state: State; answer: Answer } => ({
    state,
    answer: { status },
  });
  if (caller.tags === undefined) return perform(state, operation);
  const next =
    operation.kind === "patch"
      ? operation.patch.tag
      : "plant" in operation
        ? operation.plant.tag
        : undefined;
  if (next !== undefined && (next === null || !caller.tags.includes(next))) return refused(403);
  if (state === undefined || isSeen(caller, state)) return perform(state, operation);
  const { ifMatch } = operation as { readonly ifMatch?: StoredPlant };
  if (operation.kind === "create") return refused(409);
  if (operation.kind === "upsert") return refused(ifMatch === undefined ? 409 : 412);
  // As for a plant that is not there.
  return { state, answer: perform(undefined, operation).answer };
}

interface Entry {
  readonly id: bigint;
  readonly before: State;
  readonly after: State;
}

class Model {
  readonly states = new Map<bigint, StoredPlant>();
  readonly entries: Entry[] = [];

  set(id: bigint, after: State, isReplaced = false): void {
    const before = this.states.get(id);
    if (!isReplaced && isSameState(before, after)) return;
    this.entries.push({ id, before, after });
    if (after === undefined) this.states.delete(id);
    else this.states.set(id, after);
  }

  listSeen(caller: Caller): StoredPlant[] {
    const seen = [...this.states.values()].filter((plant) => isSeen(caller, plant));
    return seen.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  }
}

async function takeSingle(model: Model, caller: Caller, random: Random): Promise<void> {
  const operation = pickOperation(random, [
    "create",
    "read",
    "replace",
    "patch",
    "remove",
    "upsert",
    "discard",
  ]);
  const id = idOf(operation);
  const { state, answer } = performFor(caller, model.states.get(id), operation);
  const given = await toAnswer(
    await sendOperation(service.url, operation, { headers: caller.headers }),
  );
  const isDue = isAnswer(given, answer.status >= 400 ? { status: answer.status } : answer);
  if (!isDue) expect([operation, given]).toEqual([operation, answer]);
  model.set(id, state, operation.kind === "replace" && answer.status === 200);
}

async function takeBatch(model: Model, caller: Caller, random: Random): Promise<void> {
  const isAtomic = random.chance(50);
  const operations = Array.from({ length: 1 + random.below(5) }, () =>
    pickOperation(random, ["upsert", "discard"]),
  );
  // Conditions of an atomic batch that was sent again have rules of their own.
  const plain = operations.map((one): Operation => {
    const { ifMatch: _, ...rest } = one as Extract<Operation, { kind: "upsert" }>;
    return rest;
  });
  const before = new Map(model.states);
  const after = new Map<bigint, State>(before);
  const due = plain.map((operation) => {
    const id = idOf(operation);
    const { state, answer } = performFor(caller, after.get(id), operation);
    after.set(id, state);
    return { status: answer.status, isReplay: answer.isReplay === true };
  });
  const response = await send(service, "POST", `/plants/batch?upsert=true&atomic=${isAtomic}`, {
    body: `[${plain.map(toLine).join()}]`,
    headers: caller.headers,
  });
  const failed = due.find(({ status }) => status !== 200)?.status;
  const ids = new Set(plain.map(idOf));
  const isStale = plain.some(
    (operation, index) => due[index]?.isReplay && before.get(idOf(operation)) !== undefined,
  );
  if (isAtomic) {
    const isChanged = [...ids].some((id) => !isSameState(before.get(id), after.get(id)));
    const isRepeated = failed === undefined && isStale && isChanged;
    if (!isRepeated) expect([plain, response.status]).toEqual([plain, failed ?? 200]);
    if (response.status !== 200) return;
    for (const id of ids) model.set(id, after.get(id));
    return;
  }
  const results = (await response.json()) as { status: number; replayed?: boolean }[];
  expect(results.map(({ status, replayed = false }) => ({ status, isReplay: replayed }))).toEqual(
    due,
  );
  for (const operation of plain) {
    const id = idOf(operation);
    model.set(id, performFor(caller, model.states.get(id), operation).state);
  }
}

/** Changes or removes by filter: all that the caller sees, or those with a tag. */
async function takeSweep(model: Model, caller: Caller, random: Random): Promise<void> {
  const tag = random.pick(tags);
  const query = tag === null ? "?all=true" : `?tag=${encodeURIComponent(tag)}`;
  const patch = random.pick([undefined, { name: random.pick(names) }, { tag: random.pick(tags) }]);
  const matching = model.listSeen(caller).filter((plant) => tag === null || plant.tag === tag);
  const response = await send(
    service,
    patch === undefined ? "DELETE" : "PATCH",
    `/plants${query}`,
    {
      ...(patch && { body: JSON.stringify(patch) }),
      headers: caller.headers,
    },
  );
  const report = JSON.parse((await response.text()).trim().split("\n").at(-1) ?? "") as object;
  let refused = 0;
  for (const plant of matching) {
    const { id } = plant;
    if (patch === undefined) model.set(id, undefined);
    else {
      const { state, answer } = performFor(caller, plant, { kind: "patch", id, patch });
      if (answer.status === 403) refused++;
      else model.set(id, state);
    }
  }
  expect(report).toMatchObject({ plants: matching.length, changedSince: 0, refused });
}

const show = (plants: readonly StoredPlant[]): string => `[${plants.map(toBody).join()}]`;

/** All that a caller can read. */
async function compare(model: Model, caller: Caller, since: number): Promise<void> {
  const { headers } = caller;
  const read = async (path: string): Promise<string> => {
    const response = await send(service, "GET", path, { headers });
    expect(response.status).toBe(200);
    return response.text();
  };
  const plants = model.listSeen(caller);
  expect(await read("/plants?limit=1000")).toBe(show(plants));
  expect(await read("/plants?order=desc")).toBe(show(plants.toReversed()));
  // A count that was slow, on a busy machine, is answered again for a second.
  const untilCounted = (path: string, due: unknown): Promise<void> =>
    until(`${path} is ${JSON.stringify(due)}`, async () =>
      Bun.deepEquals(JSON.parse(await read(path)), due),
    );
  await untilCounted("/plants/count", { count: plants.length, exact: true });
  for (const q of ["ro", "a"]) {
    const found = plants.filter(({ name, tag }) =>
      [name, tag ?? ""].some((text) => text.toUpperCase().includes(q.toUpperCase())),
    );
    expect(await read(`/plants?q=${q}`)).toBe(show(found));
    await untilCounted(`/plants/count?q=${q}`, { count: found.length, exact: true });
  }
  const sorted = plants.toSorted((one, other) => {
    const [left, right] = [one.name.toLowerCase(), other.name.toLowerCase()];
    return left < right ? -1 : left > right ? 1 : one.id < other.id ? -1 : 1;
  });
  expect(await read("/plants?sort=name")).toBe(show(sorted));
  const used = [...new Set(plants.map(({ tag }) => tag))]
    .filter((tag) => tag !== null && tag.length < 100)
    .toSorted((one, other) => (String(one) < String(other) ? -1 : 1));
  const counts = used.map((tag) => ({
    tag,
    count: plants.filter((plant) => plant.tag === tag).length,
    exact: true,
  }));
  await untilCounted("/tags/counts", counts);
  for (const id of allIds) {
    const response = await send(service, "GET", `/plants/${id}`, { headers });
    const plant = plants.find((one) => one.id === id);
    expect([id, response.status]).toEqual([id, plant === undefined ? 404 : 200]);
  }
  const toPlant = (plant: State) => plant && { ...plant, tag: plant.tag ?? undefined };
  const due = model.entries.flatMap(({ id, before, after }) => {
    const type = before === undefined ? "created" : after === undefined ? "removed" : "replaced";
    const change = {
      seq: 0,
      atMs: 0,
      type,
      id,
      plant: toPlant(after),
      before: toPlant(before),
    } as const;
    const seen = caller.tags === undefined ? change : narrowChange(change, caller.tags);
    return seen === undefined ? [] : [`${seen.type} ${id}`];
  });
  const text = await read(`/changes?after=${since}&limit=1000`);
  const told = Array.from(
    text.matchAll(/"type":"(\w+)","id":(-?\d+)/g),
    ([, type, id]) => `${type} ${id}`,
  );
  // Plants of one commit have no order among each other.
  for (const id of allIds) {
    const isOfPlant = (line: string): boolean => line.endsWith(` ${id}`);
    expect(told.filter(isOfPlant)).toEqual(due.filter(isOfPlant));
  }
}

const histories = Array.from(
  { length: Math.ceil((engine === "sqlite" ? 12 : 4) * runsFactor) },
  (_, index) => index + 1,
);

test.each(histories)(
  "every caller is answered and shown what the model says, and nothing beside it: history %d",
  (history) =>
    tellingSeed(async () => {
      const random = createRandom(seed + history);
      await removeAll(service);
      const { newest } = await service.store.readChanges({ after: 0, limit: 0 });
      const model = new Model();
      for (let step = 0; step < 25; step++) {
        const caller = random.pick(callers);
        const take = random.pick([takeSingle, takeSingle, takeSingle, takeBatch, takeSweep]);
        await take(model, caller, random);
        for (const each of callers) await compare(model, each, newest);
      }
    }),
);

test("pages of a confined reader continue where the last one ended, in every order", () =>
  tellingSeed(async () => {
    const random = createRandom();
    await removeAll(service);
    const plants = Array.from({ length: 60 }, (_, id) => ({
      ...pickPlant(random),
      id: BigInt(id),
    }));
    await service.store.createPlants(
      plants.map(({ tag, ...rest }) => ({ ...rest, tag: tag ?? undefined })),
    );
    for (const { headers, tags: own = [] } of callers.slice(0, 2))
      for (const query of [
        "",
        "?order=desc",
        "?sort=tag",
        "?sort=-name",
        "?name=o",
        "?include=changed",
      ]) {
        const path = `/plants${query}${query === "" ? "?" : "&"}limit=3`;
        const { items } = await walkPages(service, path, headers);
        const found = plants.filter(({ tag, name }) =>
          query === "?name=o"
            ? own.includes(tag ?? "") && tag !== null && /o/i.test(name)
            : tag !== null && own.includes(tag),
        );
        expect([path, new Set(items.map((item) => (item as { id: number }).id)).size]).toEqual([
          path,
          found.length,
        ]);
        expect(items).toHaveLength(found.length);
      }
    await until("all 60 are counted", async () =>
      (await getText(service, "/plants/count")).includes('"count":60'),
    );
  }));
