/** The tools that agents call through /mcp. Ids are strings: a model's JSON would round them. */

import { type Bulk, describeLeft, type Left, previewBulk, requireFilter } from "../domain/bulk.ts";
import { nameBatch } from "../domain/change.ts";
import { describeRefusal, Refusal, toRefusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/members.ts";
import type { Filter, FilterName } from "../domain/filter.ts";
import type { PlantQuery } from "../domain/page.ts";
import { type EntityTags, entityTagOf, findEntityTags } from "../domain/entity-tag.ts";
import {
  describe,
  findPlainInt64,
  formatJson,
  INT64_MAX,
  INT64_MIN,
  quoteIds,
} from "../domain/json.ts";
import { findCursor, formatCursor, formatSort, type Ordering, toOrder } from "../domain/sort.ts";
import { findFaults, formatStoredPlant, type Plant } from "../domain/plant.ts";
import { rehearse } from "../domain/decide.ts";
import { parseRevert } from "../domain/revert.ts";
import { plantScopes, type Scope } from "../domain/token.ts";
import {
  type Done,
  parsePatch,
  parseWrite,
  type Patch,
  type PlantWrite,
  refuseLine,
} from "../domain/write.ts";
import type { Exchange } from "./exchange.ts";
import {
  type Argument,
  bulkFields,
  changeFields,
  type Field,
  filterFields,
  limitTo,
  plantFields,
  toArgument,
  writeFields,
} from "./field.ts";
import { bulkOptionsFor, changeAll, matchOptionsFor, openBulk, startChange } from "./bulk.ts";
import { openSort } from "./plants.ts";
import { openRevert, previewRevert, revertAll, revertMembers, startReport } from "./revert.ts";
import { flag, list, mapValues, maybe, object, text } from "./shape.ts";

interface Tool {
  /** The token needs all of them. */
  readonly scopes: readonly Scope[];
  /** The answer to tools/list, without the name. */
  readonly listed: object;
  /** Resolves to the result as JSON. */
  readonly run: (exchange: Exchange, input: Members) => Promise<string>;
}

export type Members = Readonly<Record<string, unknown>>;

/** A second call with the same arguments changes nothing more. */
const hints = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
};
type Kind = Pick<Tool, "scopes"> & { readonly annotations: typeof hints };

const reading: Kind = { scopes: ["plants:read"], annotations: hints };
const adding: Kind = { scopes: ["plants:write"], annotations: { ...hints, readOnlyHint: false } };
const changing: Kind = {
  scopes: ["plants:write"],
  annotations: { ...hints, readOnlyHint: false, destructiveHint: true },
};

/** What the tools have that write under a name. */
interface Named {
  readonly batch?: string | undefined;
  readonly dryRun?: boolean;
}

/** A tool whose arguments each have a rule. A refusal names every fault. */
function tool<Values extends object>(
  { scopes, annotations }: Kind,
  title: string,
  description: string,
  rules: { readonly [Name in keyof Values]: Argument<Values[Name]> },
  run: (exchange: Exchange, values: Values) => Promise<string>,
): Tool {
  const known: Readonly<Record<string, Argument<unknown>>> = rules;
  const { schema: inputSchema } = object(known, { additionalProperties: false });
  return {
    scopes,
    listed: { title, description, annotations, inputSchema },
    run: async (exchange, input) => {
      const values: Values & Named = parseMembers<Values>(input, rules);
      if (values.dryRun !== true) await exchange.requireFree(values);
      return run(exchange, values);
    },
  };
}

const ID_EXPECTED = `a string with the digits of an integer from ${INT64_MIN} to ${INT64_MAX}`;
const id: Argument<bigint> = {
  ...text(undefined, "The id of the plant: the digits of a 64-bit integer, as a string."),
  expected: ID_EXPECTED,
  find: (input) => (typeof input === "string" ? findPlainInt64(input) : undefined),
};
/** By the rules about a plant. `expected` is the rule that a value breaks. */
const toTextArgument = (
  description: string,
  expected: (input: unknown) => string | undefined,
): Argument<string> => ({
  ...text(undefined, description),
  expected,
  find: (input) => (expected(input) === undefined ? (input as string) : undefined),
});
const name = toTextArgument("The name of the plant.", (input) => findFaults(0n, input, "").name);
const tag: Argument<string | undefined> = {
  ...toTextArgument(
    "The type of the plant. Omit it for a plant without a tag.",
    (input) => findFaults(0n, "", input ?? null).tag,
  ),
  optional: true,
};
const batch = toArgument(writeFields.batch);
const ifMatch: Argument<EntityTags | undefined> = {
  ...text(undefined, "An etag: change the plant only if it is still in this state."),
  expected: "the etag of an earlier answer, with its quotes",
  optional: true,
  find: (input) => (typeof input === "string" ? findEntityTags(input) : undefined),
};
const filterArguments = mapValues<Field<unknown>, Argument<unknown>>(filterFields, toArgument) as {
  readonly [Name in FilterName]: Argument<Filter[Name]>;
};
/** A model reads the whole answer, so it is short. */
const ENTRIES_MAX = 200;

/** Writes ids as strings. */
const format = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));

const etagOf = (plant: Plant): string => entityTagOf(formatStoredPlant(plant));

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
      const { nextPlace } = page;
      const next =
        query.sort === undefined || nextPlace === undefined
          ? page.next
          : formatCursor(query.sort, nextPlace);
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
  const place = sort && findCursor(sort, after);
  if (sort !== undefined && place !== undefined)
    return { ...ordered, sort: { ...sort, after: place } };
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

async function readPlant({ service }: Exchange, order: { readonly id: bigint }): Promise<string> {
  const plant = await service.store.findPlant(order.id);
  if (plant === undefined) throw new Refusal("plant_not_found");
  return format({ ...plant, etag: etagOf(plant) });
}

type Written = Plant & { readonly batch?: string | undefined };
type Changed = Written & { readonly ifMatch?: EntityTags | undefined };

async function createPlant(exchange: Exchange, { batch: named, ...plant }: Written) {
  const { service, startedAtMs } = exchange;
  const outcome = await service.store.createPlant(plant, exchange.nameWriter(named));
  if (outcome === "created") service.metrics.countCreates(performance.now() - startedAtMs);
  return format({ id: plant.id, replayed: outcome === "replayed" });
}

async function replacePlant(exchange: Exchange, order: Changed): Promise<string> {
  const { batch: named, ifMatch: match, ...plant } = order;
  const writer = exchange.nameWriter(named);
  await exchange.service.store.replacePlant(plant, { match }, writer);
  return format({ id: plant.id, etag: etagOf(plant) });
}

async function removePlant(
  exchange: Exchange,
  order: Pick<Changed, "id" | "batch" | "ifMatch">,
): Promise<string> {
  const writer = exchange.nameWriter(order.batch);
  await exchange.service.store.removePlant(order.id, { match: order.ifMatch }, writer);
  return format({ id: order.id });
}

const LEFT_MAX = 20;

/** A client waits for an answer for a minute or so. */
const BULK_MS_MAX = 45_000;
const TIME_OVER = "The call reached its time limit; call again to continue.";

/** Runs long work, which ends if the client leaves, its token becomes invalid, or the time is over. */
async function runLong(
  exchange: Exchange,
  work: (signal: AbortSignal) => Promise<string>,
): Promise<string> {
  const { request, service, token } = exchange;
  service.rates.requireBatch(token);
  const ending = new AbortController();
  const end = (refusal: Refusal): void => ending.abort(refusal);
  // Before the work begins, which refuses a client that has left already.
  request.signal.addEventListener("abort", () => end(new Refusal("body_incomplete")));
  const timer = setTimeout(() => end(new Refusal("store_busy", TIME_OVER)), BULK_MS_MAX);
  const header = request.headers.get("authorization") ?? "";
  const unwatch = service.authenticator.watch({ header, onInvalid: end });
  try {
    return await work(ending.signal);
  } finally {
    clearTimeout(timer);
    unwatch();
  }
}

async function formatReport(report: object, blocks: AsyncIterable<readonly Left[]>) {
  const shown: object[] = [];
  for await (const left of blocks)
    shown.push(...left.slice(0, LEFT_MAX - shown.length).map(describeLeft));
  return format({ ...report, left: shown });
}

async function revertChanges(exchange: Exchange, input: Members): Promise<string> {
  // null counts as absent, too.
  const order = parseRevert({ ...input, dryRun: input["dryRun"] ?? true });
  return runLong(exchange, async (signal) => {
    const range = await openRevert(exchange, order);
    // Also before a revert, so it has the bounds of a dry run.
    const preview = await previewRevert(exchange, range, signal);
    if (order.dryRun === true) return format(preview);
    const report = startReport();
    return formatReport(
      report,
      revertAll(exchange, range, report, bulkOptionsFor(exchange, signal)),
    );
  });
}

type Matching = Filter &
  Pick<Bulk, "except"> & {
    readonly all: boolean;
    readonly batch?: string | undefined;
    readonly dryRun: boolean;
  };

async function changeMatching(
  exchange: Exchange,
  order: Matching & { readonly patch?: Patch },
): Promise<string> {
  const { batch: named, dryRun: isDry, patch, all, except, ...filter } = order;
  requireFilter(filter, all);
  const bulk = { filter, except, patch };
  return runLong(exchange, async (signal) => {
    await openBulk(exchange);
    const options = bulkOptionsFor(exchange, signal);
    if (isDry)
      return format(
        await previewBulk(exchange.service.store, bulk, matchOptionsFor(exchange, options)),
      );
    const report = startChange(named ?? nameBatch(patch === undefined ? "remove" : "change"));
    return formatReport(report, changeAll(exchange, bulk, report, options));
  });
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
          ? `line ${line}: id: expected ${ID_EXPECTED}, got ${describe(input["id"])}`
          : `line ${line}: ${describe(unknown)}: unknown; allowed: ${Object.keys(writeMembers).join(", ")}`,
      );
    try {
      return { ...parseWrite(formatJson({ ...input, id: written }), upsert), line };
    } catch (error) {
      throw new Refusal("invalid_body", refuseLine(line, toRefusal(error)).message);
    }
  });
}

async function writePlants(exchange: Exchange, order: Writing): Promise<string> {
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
      outcomes = rehearse(paid, (each) => stored.get(each));
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
    return format({ dryRun: order.dryRun, results });
  });
}

async function patchPlant(
  exchange: Exchange,
  order: Pick<Changed, "id" | "batch" | "ifMatch"> & { readonly patch: Patch },
): Promise<string> {
  const { service } = exchange;
  const writer = exchange.nameWriter(order.batch);
  const condition = { match: order.ifMatch };
  const plant = await service.store.patchPlant(order.id, order.patch, condition, writer);
  return format({ ...plant, etag: etagOf(plant) });
}

const patch: Argument<Patch> = {
  ...object(
    {
      name: text(undefined, "The new name."),
      tag: maybe(text(undefined, "The new tag; null removes it.")),
    },
    { optional: ["name", "tag"], additionalProperties: false },
  ),
  expected: "an object with name, tag or both",
  // Throws a Refusal that names every fault.
  find: (input) => (input === undefined ? undefined : parsePatch(input)),
};

const truth = (description: string, fallback: boolean): Argument<boolean> => ({
  ...flag(undefined, description, { default: fallback }),
  expected: "true or false",
  optional: true,
  fallback,
  find: (input) => (typeof input === "boolean" ? input : undefined),
});
const dryRun = truth("False changes plants.", true);

const writeMembers = {
  id,
  name,
  tag,
  removed: flag(undefined, "True removes the plant: then leave out name and tag.", { const: true }),
  ifMatch,
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
  find: (input) => {
    const isList =
      Array.isArray(input) &&
      input.length <= WRITES_MAX &&
      input.every((each) => typeof each === "object" && each !== null && !Array.isArray(each));
    return isList ? (input as Members[]) : undefined;
  },
};

const EXCEPT_MAX = 1_000;
const matching = {
  ...filterArguments,
  all: toArgument(bulkFields.all),
  except: {
    ...list(text(), "Not the plants with these ids.", { maxItems: EXCEPT_MAX }),
    expected: `a list of at most ${EXCEPT_MAX} ids, each ${ID_EXPECTED}`,
    optional: true,
    find: (input: unknown) => {
      const ids = Array.isArray(input) && input.length <= EXCEPT_MAX && input.map(id.find);
      return ids && ids.every((each) => each !== undefined) ? ids : undefined;
    },
  },
  dryRun,
  batch,
};

const changingMany: Kind = { ...changing, scopes: plantScopes };
const DRY_RUN =
  "A dry run, unless `dryRun` is false: show its counts and its sample to the user first.";
const OR_ALL = "; at least one is needed, or `all`.";
const REPORT =
  "Plants that others change meanwhile are left alone, and listed in `left`. If `complete` is false, `message` says why; call it again to continue. revert_changes with its `batch` undoes it.";

const NEXT =
  "`next` is the `after` of the next page. A page may be short, or empty, and still have one.";

/** In the order in which they are listed. */
export const tools: Readonly<Record<string, Tool>> = {
  find_plants: tool<FindArguments>(
    reading,
    "Find plants",
    `Plants that match all filters, in the order of their ids, or of \`sort\`; without a filter, all plants. ${NEXT}`,
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
  read_plant: tool(
    reading,
    "Read a plant",
    "One plant, with an etag that names its state.",
    { id },
    readPlant,
  ),
  count_plants: tool<Filter>(
    reading,
    "Count plants",
    "How many plants match all filters. If `exact` is false, `count` is a lower bound.",
    filterArguments,
    async ({ service }, filter) => {
      const { count, exact } = await service.store.countPlants(filter);
      return format({ count, exact });
    },
  ),
  plant_history: tool(
    reading,
    "History of a plant",
    `The changes of a plant, oldest first: when, by which token, and the plant before and after. ${NEXT}`,
    {
      id,
      limit: toArgument(limitTo("Changes on a page.", ENTRIES_MAX)),
      after: toArgument(changeFields.after),
    },
    readHistory,
  ),
  create_plant: tool<Written>(
    adding,
    "Create a plant",
    "Stores a new plant. The same plant again changes nothing (`replayed`); a different one under a taken id is refused.",
    { id, name, tag, batch },
    createPlant,
  ),
  replace_plant: tool<Changed>(
    changing,
    "Replace a plant",
    "Replaces name and tag of an existing plant; a tag that is left out is removed. With `ifMatch`, a change made since you read the plant is not overwritten.",
    { id, name, tag, ifMatch, batch },
    replacePlant,
  ),
  remove_plant: tool(
    changing,
    "Remove a plant",
    "Removes a plant. revert_changes can bring it back while the journal has the change.",
    { id, ifMatch, batch },
    removePlant,
  ),
  patch_plant: tool<Pick<Changed, "id" | "batch" | "ifMatch"> & { readonly patch: Patch }>(
    changingMany,
    "Change a plant",
    "Changes only the members of `patch`. With `ifMatch`, a change made since you read the plant is not overwritten.",
    { id, patch, ifMatch, batch },
    patchPlant,
  ),
  write_plants: tool<Writing>(
    changingMany,
    "Write many plants",
    "Creates plants and, with `removed: true`, removes them; with `upsert`, plants whose id is taken are replaced. Each succeeds or fails alone, or with `atomic` all together or none. " +
      "The outcome of each is created, replaced, removed or replayed (nothing to do). A dry run, unless `dryRun` is false: it reports what each would do.",
    {
      writes,
      upsert: truth("A plant whose id is taken replaces the stored one.", false),
      atomic: truth("One transaction: all writes, or none.", false),
      dryRun,
      batch,
    },
    writePlants,
  ),
  change_plants: tool<Matching & { readonly patch: Patch }>(
    changingMany,
    "Change all plants that match",
    `Applies \`patch\` to every plant that matches all filters${OR_ALL} ${DRY_RUN} ${REPORT}`,
    { ...matching, patch },
    changeMatching,
  ),
  remove_plants: tool<Matching>(
    changingMany,
    "Remove all plants that match",
    `Removes every plant that matches all filters${OR_ALL} ${DRY_RUN} ${REPORT}`,
    matching,
    changeMatching,
  ),
  revert_changes: {
    scopes: plantScopes,
    listed: {
      title: "Undo changes",
      description:
        "Each plant that the selected changes concern returns to its state before them, unless it was changed since. " +
        "Select them by at least one of `from`, `to`, `by`, `batch` and `types`. A dry run, unless `dryRun` is false: show its counts and its sample to the user first. " +
        "If `complete` is false, `message` says why; call it again to continue.",
      annotations: changing.annotations,
      inputSchema: object(
        { ...revertMembers, dryRun: flag(undefined, "False changes plants.", { default: true }) },
        { optional: Object.keys(revertMembers), additionalProperties: false },
      ).schema,
    },
    run: revertChanges,
  },
};
