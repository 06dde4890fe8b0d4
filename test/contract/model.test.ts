/** Random sequences of operations, over HTTP, against a model that fits on a page. */

import { afterAll, expect, test } from "bun:test";
import * as fc from "fast-check";
import { ALWAYS } from "../../src/domain/plant.ts";
import { send, startService } from "../support/service.ts";
import { limits } from "../support/limits.ts";

const RUNS = 40 * Number(process.env["PLANTSTORE_TEST_RUNS"] ?? 1);
const seed = process.env["PLANTSTORE_TEST_SEED"];

const service = await startService({ ...limits({ scanRowsMax: 100 }) });
/** Where an editor has seen a plant as it is not, or not yet, in the first. */
const other = await startService();

afterAll(() => Promise.all([service, other].map((its) => its[Symbol.asyncDispose]())));

interface Content {
  readonly name: string;
  readonly tag?: string | undefined;
}

type Operation =
  | { readonly kind: "create" | "replace"; readonly id: bigint; readonly content: Content }
  | { readonly kind: "read" | "remove"; readonly id: bigint }
  | {
      readonly kind: "replaceIfMatch";
      readonly id: bigint;
      readonly content: Content;
      readonly seen: Content;
    }
  | { readonly kind: "batch"; readonly plants: readonly (Content & { readonly id: bigint })[] }
  | {
      readonly kind: "list";
      readonly limit: number;
      readonly after: bigint | undefined;
      readonly tag: string | undefined;
      readonly name: string | undefined;
      readonly order: "asc" | "desc";
    };

/** Few values, so that operations meet each other. */
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
const content: fc.Arbitrary<Content> = fc.record(
  { name: fc.constantFrom("", "a", "A", "Äb", "äB"), tag },
  { requiredKeys: ["name"] },
);
const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("create"), id, content }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("replace"), id, content }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("replaceIfMatch"), id, content, seen: content }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("read"), id }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove"), id }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("batch"),
      plants: fc.array(
        fc.tuple(id, content).map(([itsId, its]) => Object.assign({ id: itsId }, its)),
        { maxLength: 6 },
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("list"),
      limit: fc.constantFrom(1, 2, 5, 1000),
      after: fc.option(id, { nil: undefined }),
      tag: fc.option(tag, { nil: undefined }),
      name: fc.option(fc.constantFrom("a", "ÄB", "b"), { nil: undefined }),
      order: fc.constantFrom("asc", "desc"),
    }),
  },
);

type Model = Map<bigint, Content>;

/** What an operation answers: enough to tell any two behaviours apart. */
interface Answer {
  readonly status: number;
  readonly body: string;
  readonly replayed?: boolean;
  readonly next?: string | undefined;
}

const json = ({ name, tag: its }: Content): string => JSON.stringify({ name, tag: its });
const stored = (itsId: bigint, plant: Content): string => `{"id":${itsId},${json(plant).slice(1)}`;
const same = (a: Content, b: Content): boolean => a.name === b.name && a.tag === b.tag;
const REFUSED = "refused";

function createInModel(model: Model, itsId: bigint, plant: Content): Answer {
  const there = model.get(itsId);
  if (there !== undefined && !same(there, plant)) return { status: 409, body: REFUSED };
  model.set(itsId, plant);
  return { status: 200, body: json(plant), replayed: there !== undefined };
}

function listInModel(model: Model, query: Operation & { kind: "list" }): Answer {
  const direction = query.order === "asc" ? 1 : -1;
  const found = [...model]
    .toSorted(([a], [b]) => (a < b ? -1 : 1) * direction)
    .filter(
      ([its]) =>
        query.after === undefined ||
        (query.order === "asc" ? its > query.after : its < query.after),
    )
    .filter(([, plant]) => query.tag === undefined || plant.tag === query.tag);
  const matches = ([, plant]: [bigint, Content]): boolean =>
    query.name === undefined || plant.name.toUpperCase().includes(query.name.toUpperCase());
  const page = found.filter(matches).slice(0, query.limit);
  const last = page.at(-1);
  // There is a next page where anything stands behind the last plant of a full one, matching or not.
  const more = page.length === query.limit && last !== undefined && found.at(-1)?.[0] !== last[0];
  return {
    status: 200,
    body: `[${page.map(([its, plant]) => stored(its, plant)).join(",")}]`,
    next: more ? String(last[0]) : undefined,
  };
}

function performInModel(model: Model, op: Operation): Answer {
  switch (op.kind) {
    case "create":
      return createInModel(model, op.id, op.content);
    case "read": {
      const plant = model.get(op.id);
      return plant === undefined
        ? { status: 404, body: REFUSED }
        : { status: 200, body: stored(op.id, plant) };
    }
    case "replace":
    case "replaceIfMatch": {
      const plant = model.get(op.id);
      if (plant === undefined) return { status: 404, body: REFUSED };
      if (op.kind === "replaceIfMatch" && !same(plant, op.seen))
        return { status: 412, body: REFUSED };
      model.set(op.id, op.content);
      return { status: 200, body: json(op.content) };
    }
    case "remove":
      return model.delete(op.id) ? { status: 204, body: "" } : { status: 404, body: REFUSED };
    case "batch":
      return {
        status: 200,
        body: op.plants
          .map(({ id: its, ...plant }) => createInModel(model, its, plant))
          .map(({ status, replayed }, index) => `${index + 1}:${status}:${replayed ?? false}`)
          .join(),
      };
    case "list":
      return listInModel(model, op);
  }
}

async function perform(op: Operation): Promise<Answer> {
  switch (op.kind) {
    case "create": {
      const response = await service.create(stored(op.id, op.content));
      return {
        ...(await toAnswer(response)),
        ...(response.ok ? { replayed: response.headers.has("idempotent-replayed") } : {}),
      };
    }
    case "read":
      return toAnswer(await send(service, "GET", `/plants/${op.id}`));
    case "replace":
      return toAnswer(await send(service, "PUT", `/plants/${op.id}`, { body: json(op.content) }));
    case "replaceIfMatch": {
      const headers = { "if-match": await etagOf(op.id, op.seen) };
      return toAnswer(
        await send(service, "PUT", `/plants/${op.id}`, { body: json(op.content), headers }),
      );
    }
    case "remove":
      return toAnswer(await send(service, "DELETE", `/plants/${op.id}`));
    case "batch":
      return sendBatch(op.plants);
    case "list":
      return list(op);
  }
}

async function toAnswer(response: Response): Promise<Answer> {
  const body = await response.text();
  return { status: response.status, body: response.ok ? body : REFUSED };
}

/** The tag that an editor holds who has seen this content: it depends on nothing else. */
async function etagOf(its: bigint, seen: Content): Promise<string> {
  await other.create(stored(its, seen));
  const { headers } = await send(other, "GET", `/plants/${its}`);
  await send(other, "DELETE", `/plants/${its}`);
  return headers.get("etag") ?? "";
}

async function sendBatch(plants: readonly (Content & { readonly id: bigint })[]): Promise<Answer> {
  const response = await send(service, "POST", "/plants/batch", {
    body: plants.map(({ id: its, ...plant }) => `${stored(its, plant)}\n`).join(""),
    headers: { "content-type": "application/x-ndjson" },
  });
  const results = (await response.text()).split("\n").filter((line) => line !== "");
  const shown = results.map((line) => {
    const {
      line: number,
      status,
      replayed = false,
    } = JSON.parse(line) as Record<string, number | boolean>;
    return `${number}:${status}:${replayed}`;
  });
  return { status: response.status, body: shown.join() };
}

async function list(query: Operation & { kind: "list" }): Promise<Answer> {
  const parameters = new URLSearchParams({ limit: String(query.limit), order: query.order });
  for (const name of ["after", "tag", "name"] as const)
    if (query[name] !== undefined) parameters.set(name, String(query[name]));
  const response = await send(service, "GET", `/plants?${parameters.toString()}`);
  const next = /[?&]after=(-?\d+)/.exec(response.headers.get("link") ?? "")?.[1];
  return { ...(await toAnswer(response)), next };
}

test("any sequence of operations answers and leaves behind what the model says", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { minLength: 1, maxLength: 40, size: "max" }),
      async (operations) => {
        const model: Model = new Map();
        for (const its of await allIds()) await service.store.removePlant(its, ALWAYS);
        for (const op of operations) expect(await perform(op)).toEqual(performInModel(model, op));
        expect((await allIds()).length).toBe(model.size);
      },
    ),
    { numRuns: RUNS, ...(seed === undefined ? {} : { seed: Number(seed) }) },
  );
}, 120_000);

async function allIds(): Promise<bigint[]> {
  const { plants } = await service.store.listPlants({
    after: undefined,
    limit: 1000,
    tag: undefined,
    name: undefined,
    order: "asc",
  });
  return plants.map((plant) => plant.id);
}
