/** The tools that agents call through /mcp: operations, as a model sees them. Ids are strings, because its JSON would round them. */

import { describeLeft } from "../domain/bulk.ts";
import { describeRefusal, Refusal, toRefusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/members.ts";
import type { Filter, FilterName } from "../domain/filter.ts";
import type { PlantQuery } from "../domain/page.ts";
import { describe, findPlainInt64, formatJson, isObject, quoteIds } from "../domain/json.ts";
import { findCursor, formatCursor, formatSort, type Ordering, toOrder } from "../domain/sort.ts";
import { rehearse } from "../domain/decide.ts";
import type { Scope } from "../domain/token.ts";
import { type Done, parseWrite, type PlantWrite, refuseLine } from "../domain/write.ts";
import { bulkOptionsFor, type Plan } from "./bulk.ts";
import type { Arguments, Endpoint, Tool } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import {
  type Argument,
  changeFields,
  contentArguments,
  dryRunArgument,
  type Field,
  type Fields,
  filterFields,
  idArgument,
  ifMatchArgument,
  limitTo,
  plantFields,
  toArgument,
  truth,
  writeFields,
} from "./field.ts";
import { Change, StoredPlant } from "./plant-shapes.ts";
import { openSort } from "./plants.ts";
import {
  flag,
  integer,
  list,
  mapValues,
  type Members as Shapes,
  object,
  type Schema,
  schemas,
  type Shape,
  text,
} from "./shape.ts";

interface Callable {
  /** The token needs all of them. */
  readonly scopes: readonly Scope[];
  /** The answer to tools/list, without the name. */
  readonly listed: object;
  /** Resolves to the result as JSON. */
  readonly run: (exchange: Exchange, input: Members) => Promise<string>;
}

export type Members = Readonly<Record<string, unknown>>;

const rank = ({ scopes }: Callable): number =>
  scopes.length > 1 ? 2 : scopes.includes("plants:read") ? 0 : 1;

export type Tools = Readonly<Record<string, Callable>>;

/** The tools of the operations that have one: those that read come first, and those that need both scopes last. */
export function createTools(operations: readonly Endpoint[]): Tools {
  const tools = operations.flatMap((endpoint) =>
    endpoint.tool === undefined
      ? []
      : [[endpoint.tool.name, toCallable(endpoint, endpoint.tool)] as const],
  );
  return Object.fromEntries(tools.toSorted(([, one], [, other]) => rank(one) - rank(other)));
}

function toCallable(endpoint: Endpoint, tool: Tool): Callable {
  const { kind, scopes = [], also, path = {}, query = {}, headers = {}, refine, run } = endpoint;
  const {
    title,
    description,
    output,
    members = {},
    toBody,
    parse,
    show,
    call,
  } = tool as Tool<Input, unknown>;
  const named = Object.entries(headers).flatMap(([name, { argument }]) =>
    argument === undefined ? [] : [[toArgumentName(name), argument] as const],
  );
  const known: Arguments = tool.arguments ?? {
    ...toArguments(path),
    ...members,
    ...Object.fromEntries(named),
    ...toArguments(query),
  };
  const isRead = scopes.every((scope) => scope.endsWith(":read"));
  const toInput = (values: Members): Input => {
    const input = {
      path: pick(path, values),
      query: pick(query, values),
      headers: pick(headers, values),
      form: "",
      body: endpoint.body && (toBody === undefined ? pick(members, values) : toBody(values)),
    };
    return refine === undefined ? input : { ...input, query: refine(input) };
  };
  return {
    scopes: [...scopes, ...(also?.scopes ?? [])],
    listed: {
      title,
      description,
      // A second call with the same arguments changes nothing more.
      annotations: {
        readOnlyHint: isRead,
        destructiveHint: !isRead && kind !== "create",
        idempotentHint: true,
        openWorldHint: false,
      },
      inputSchema: object(known, { additionalProperties: false }).schema,
      outputSchema: toOutputSchema(output.schema),
    },
    run: async (exchange, input) => {
      const values = parse === undefined ? parseMembers<Members>(input, known) : parse(input);
      if (call !== undefined) return call(exchange, values as never);
      const asked = toInput(values);
      const result = await run(asked, exchange);
      return format(show === undefined ? result : await show(result, asked, exchange));
    },
  };
}

/** As in `ifMatch` and `dryRun`. */
const toArgumentName = (name: string): string =>
  name
    .replaceAll(/[-_](\w)/g, (_, letter: string) => letter.toUpperCase())
    .replace(/^[A-Z]/, (letter) => letter.toLowerCase());

const toArguments = (fields: Fields): Arguments =>
  Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [
      toArgumentName(name),
      field.argument ?? toArgument(field),
    ]),
  );

const pick = (fields: Arguments | Fields, values: Members): object =>
  mapValues<Arguments[string] | Fields[string], unknown>(
    fields,
    ({ fallback }, name) => values[toArgumentName(name)] ?? fallback,
  );

/** A schema of the description, on its own, with the ids of plants as strings. */
function toOutputSchema(schema: Schema): Schema {
  const [, name = ""] = /^#\/components\/schemas\/(\w+)$/.exec(String(schema["$ref"])) ?? [];
  const { $ref: _, ...own } = { ...schemas[name], ...schema };
  const { properties, items } = own as {
    properties?: Readonly<Record<string, Schema>>;
    items?: Schema;
  };
  return {
    ...own,
    ...(items && { items: toOutputSchema(items) }),
    ...(properties && {
      properties: mapValues(properties, (member, key) =>
        key === "id"
          ? { type: "string", description: member["description"] }
          : toOutputSchema(member),
      ),
    }),
  };
}

/** Writes ids as strings. */
const format = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));

/** Ties what a tool does to its arguments. */
const calling = <Values extends object>(
  known: { readonly [Name in keyof Values]: Argument<Values[Name]> },
  call: (exchange: Exchange, values: Values) => Promise<string>,
): Pick<Tool, "arguments" | "call"> => ({
  arguments: known,
  call,
});

const batch = toArgument(writeFields.batch);
export const filterArguments = mapValues<Field<unknown>, Argument<unknown>>(
  filterFields,
  toArgument,
) as {
  readonly [Name in FilterName]: Argument<Filter[Name]>;
};
/** A model reads the whole answer, so it is short. */
const ENTRIES_MAX = 200;

/** An agent reads a page at once. */
const PAGE_CHARACTERS_MAX = 32_768;
/** A page of the store ends early if few rows match. The tools continue for this long. */
const SEARCH_MS_MAX = 1_000;

interface FindArguments extends Filter, Pick<Ordering, "order" | "sort"> {
  readonly limit: number;
  /** An id, or a cursor of the sort. */
  readonly after: string | undefined;
  readonly include: "changed" | undefined;
}

async function findPlants(
  exchange: Exchange,
  { order, sort, after: from, include, ...selection }: FindArguments,
): Promise<string> {
  const query: PlantQuery = {
    ...selection,
    ...continueAt({ order, sort }, from),
    hasTimes: include !== undefined,
    charactersMax: PAGE_CHARACTERS_MAX,
  };
  const signal = openSort(exchange, query);
  const endsAtMs = performance.now() + SEARCH_MS_MAX;
  for (let { after } = query; ;) {
    const page = await exchange.service.store.readPlants({ ...query, after }, "json", signal);
    const isEmpty = page.text.length === "[]".length;
    if (isEmpty && page.next !== undefined && performance.now() < endsAtMs) after = page.next;
    else {
      const plants =
        typeof page.text === "string" ? page.text : new TextDecoder().decode(page.text);
      const { nextPosition } = page;
      const next =
        query.sort === undefined || nextPosition === undefined
          ? page.next
          : formatCursor(query.sort, nextPosition);
      const rest = next === undefined ? "" : `,"next":${JSON.stringify(String(next))}`;
      return `{"plants":${quoteIds(plants)}${rest}}`;
    }
  }
}

/** Throws a Refusal if `after` is not of this order. */
function continueAt(ordering: Pick<Ordering, "order" | "sort">, after: string | undefined) {
  const ordered = toOrder(ordering);
  if (after === undefined) return ordered;
  const { sort } = ordered;
  const position = sort && findCursor(sort, after);
  if (sort !== undefined && position !== undefined)
    return { ...ordered, sort: { ...sort, after: position } };
  const last = sort === undefined ? findPlainInt64(after) : undefined;
  if (last !== undefined) return { ...ordered, after: last };
  const { expected } = plantFields.after;
  const wanted = sort === undefined ? expected : `next of an answer with sort ${formatSort(sort)}`;
  throw new Refusal("invalid_body", `after: expected ${wanted}, got ${describe(after)}`);
}

async function readHistory(
  { service }: Exchange,
  query: Readonly<{ id: bigint; after: number; limit: number }>,
): Promise<string> {
  const endsAtMs = performance.now() + SEARCH_MS_MAX;
  const shown: string[] = [];
  let characters = 0;
  const finish = (next?: number): string =>
    `{"changes":[${shown.join(",")}]${next === undefined ? "" : `,"next":${next}`}}`;
  for (let { after } = query; ;) {
    const limit = query.limit - shown.length;
    const page = await service.store.readChanges({ ...query, after, limit });
    for (const { seq, json } of page.changes) {
      characters += json.length;
      if (characters > PAGE_CHARACTERS_MAX && shown.length > 0) return finish(after);
      shown.push(quoteIds(json));
      after = seq;
    }
    if (!page.hasMore) return finish();
    after = page.last;
    if (shown.length === query.limit || performance.now() > endsAtMs) return finish(after);
  }
}

/** A client waits for an answer for a minute or so. */
const BULK_MS_MAX = 45_000;
const TIME_OVER = "The call reached its time limit; call again to continue.";

/** Runs long work, which ends if the client leaves, its token becomes invalid, or the time is over. */
async function runLong(
  exchange: Exchange,
  work: (signal: AbortSignal) => Promise<object>,
): Promise<object> {
  const { service, token, authorization } = exchange;
  service.rates.requireBatch(token);
  const ending = new AbortController();
  const end = (refusal: Refusal): void => ending.abort(refusal);
  // Before the work begins, which refuses a client that has left already.
  exchange.signal.addEventListener("abort", () => end(new Refusal("body_incomplete")));
  const timer = setTimeout(() => end(new Refusal("store_busy", TIME_OVER)), BULK_MS_MAX);
  const unwatch = service.authenticator.watch({ header: authorization, onInvalid: end });
  try {
    return await work(ending.signal);
  } finally {
    clearTimeout(timer);
    unwatch();
  }
}

/** A model reads the whole report, so it is short. */
const LEFT_MAX = 20;

/** What becomes of a change of many plants, for an agent: the preview, or the report at its end. */
export const showPlan = (
  { kind, isDry, preview, report, run }: Plan,
  _input: object,
  exchange: Exchange,
): Promise<object> =>
  runLong(exchange, async (signal) => {
    const options = bulkOptionsFor(exchange, signal);
    // Also before a revert, so it has the bounds of a dry run.
    const previewed = isDry || kind === "revert" ? await preview(options) : {};
    if (isDry) return previewed;
    await exchange.requireFree(report);
    const left: object[] = [];
    for await (const block of run(options))
      left.push(...block.slice(0, LEFT_MAX - left.length).map(describeLeft));
    return { ...report, left };
  });

const failure = { status: integer(), error: integer(), message: text() };

/** The schema of that: a preview, or a report with these counts. */
export function planOutput(preview: Shapes, counts: Readonly<Record<string, number>>): Shape {
  const members = {
    ...preview,
    ...mapValues(counts, () => integer()),
    batch: text(undefined, "The name of the writes in the journal."),
    complete: flag(undefined, "False if the work was interrupted; `message` says why."),
    left: list(
      object({ id: text(), ...failure }),
      `The first ${LEFT_MAX} plants that were left alone.`,
    ),
    ...failure,
  };
  return object(members, { optional: Object.keys(members).filter((name) => name !== "plants") });
}

interface Writing {
  readonly writes: readonly Members[];
  readonly upsert: boolean;
  readonly atomic: boolean;
  readonly dryRun: boolean;
  readonly batch?: string | undefined;
}

/** Parses each write as a line of a batch. Throws a Refusal that names the first one that is wrong. */
function parseWrites({ writes, upsert }: Writing): PlantWrite[] {
  return writes.map((input, index) => {
    const line = index + 1;
    const unknown = Object.keys(input).find((member) => !Object.hasOwn(writeMembers, member));
    const written = typeof input["id"] === "string" ? findPlainInt64(input["id"]) : undefined;
    if (unknown !== undefined || written === undefined)
      throw new Refusal(
        "invalid_body",
        unknown === undefined
          ? `line ${line}: id: expected ${idArgument.expected}, got ${describe(input["id"])}`
          : `line ${line}: ${describe(unknown)}: unknown; allowed: ${Object.keys(writeMembers).join(", ")}`,
      );
    try {
      return { ...parseWrite(formatJson({ ...input, id: written }), upsert), line };
    } catch (error) {
      throw new Refusal("invalid_body", refuseLine(line, toRefusal(error)).message);
    }
  });
}

async function writePlants(exchange: Exchange, order: Writing): Promise<object> {
  const { service, token, startedAtMs } = exchange;
  const { store } = service;
  const writes = parseWrites(order);
  return runLong(exchange, async (signal) => {
    const writer = exchange.leaseWriter(order.batch);
    const paid: PlantWrite[] = [];
    const lines = (async function* () {
      yield writes;
    })();
    for await (const part of service.rates.pace(lines, token, signal)) paid.push(...part);
    let outcomes: readonly (Done | Refusal)[];
    if (order.dryRun) {
      const found = await Promise.all(paid.map(({ id: each }) => store.findPlant(each)));
      const stored = new Map(paid.map(({ id: each }, index) => [each, found[index]]));
      outcomes = rehearse(paid, (each) => stored.get(each), service.config);
    } else if (order.atomic) outcomes = await store.writeAtomic(paid, writer);
    else outcomes = await store.writePlants(paid, writer);
    const created = outcomes.filter((outcome) => outcome === "created").length;
    if (!order.dryRun) service.metrics.countCreates(performance.now() - startedAtMs, created);
    const results = outcomes.map((outcome, index) =>
      Object.assign(
        { line: index + 1 },
        outcome instanceof Refusal ? describeRefusal(outcome) : { status: 200, outcome },
      ),
    );
    return { dryRun: order.dryRun, results };
  });
}

const writeMembers = {
  id: idArgument,
  ...contentArguments,
  removed: flag(undefined, "True removes the plant: then leave out name and tag.", { const: true }),
  ifMatch: ifMatchArgument,
};
const WRITES_MAX = 1_000;
const writes: Argument<readonly Members[]> = {
  ...list(
    object(writeMembers, {
      optional: ["name", "tag", "removed", "ifMatch"],
      additionalProperties: false,
    }),
    "The writes, in order.",
    { maxItems: WRITES_MAX },
  ),
  expected: `a list of at most ${WRITES_MAX} objects`,
  find: (input) =>
    Array.isArray(input) && input.length <= WRITES_MAX && input.every(isObject) ? input : undefined,
};

const NEXT =
  "`next` is the `after` of the next page. A page may be short, or empty, and still have one.";

const next = { schema: text().schema, optional: true, example: undefined };

export const findTool: Tool<unknown, unknown> = {
  name: "find_plants",
  title: "Find plants",
  description: `Plants that match all filters, in the order of their ids, or of \`sort\`; without a filter, all plants. ${NEXT}`,
  output: object({ plants: list(StoredPlant), next }),
  ...calling<FindArguments>(
    {
      ...filterArguments,
      order: toArgument(plantFields.order),
      limit: toArgument(limitTo("Plants on a page.", ENTRIES_MAX)),
      sort: toArgument(plantFields.sort),
      include: toArgument(plantFields.include),
      after: toArgument({
        ...plantFields.cursor,
        ...text(undefined, "The last `next`, of a call with the same order."),
      }),
    },
    findPlants,
  ),
};

export const historyTool: Tool<unknown, unknown> = {
  name: "plant_history",
  title: "History of a plant",
  description: `The changes of a plant, oldest first: when, by which token, and the plant before and after. ${NEXT}`,
  output: object({ changes: list(Change), next: { ...next, schema: integer().schema } }),
  ...calling(
    {
      id: idArgument,
      limit: toArgument(limitTo("Changes on a page.", ENTRIES_MAX)),
      after: toArgument(changeFields.after),
    },
    readHistory,
  ),
};

export const writeTool: Tool<unknown, unknown> = {
  name: "write_plants",
  title: "Write many plants",
  description:
    "Creates plants and, with `removed: true`, removes them; with `upsert`, plants whose id is taken are replaced. Each succeeds or fails alone, or with `atomic` all together or none. " +
    "The outcome of each is created, replaced, removed or replayed (nothing to do). A dry run, unless `dryRun` is false: it reports what each would do.",
  output: object({
    dryRun: flag(),
    results: list(
      object(
        { line: integer(), outcome: text(), ...failure },
        { optional: ["outcome", "error", "message"] },
      ),
    ),
  }),
  ...calling<Writing>(
    {
      writes,
      upsert: truth("A plant whose id is taken replaces the stored one.", false),
      atomic: truth("One transaction: all writes, or none.", false),
      dryRun: dryRunArgument,
      batch,
    },
    async (exchange, order) => {
      if (!order.dryRun) await exchange.requireFree(order);
      return format(await writePlants(exchange, order));
    },
  ),
};
