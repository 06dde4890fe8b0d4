/** The tools that agents call through /mcp. Ids are strings: a model's JSON would round them. */

import { type ChangePage, joinWriter } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { parseMembers, type Rule } from "../domain/members.ts";
import type { Filter, FilterName } from "../domain/filter.ts";
import type { PlantQuery } from "../domain/page.ts";
import {
  entityTagOf,
  findFaults,
  findPlainInt64,
  formatStoredPlant,
  INT64_MAX,
  INT64_MIN,
  isStorable,
  type Plant,
  quoteIds,
} from "../domain/plant.ts";
import { parseRevert } from "../domain/revert.ts";
import { plantScopes, type Scope } from "../domain/token.ts";
import type { Exchange } from "./exchange.ts";
import { SMALL_PAGE_CHARACTERS } from "./plants.ts";
import {
  changeParameters,
  filterParameters,
  limitTo,
  type Parameter,
  plantParameters,
  writeParameters,
} from "./query.ts";
import {
  describeLeft,
  openRevert,
  previewRevert,
  revertAll,
  revertMembers,
  startReport,
} from "./revert.ts";
import { flag, mapValues, object, type Shape, text } from "./shape.ts";

export interface Tool {
  readonly title: string;
  readonly description: string;
  /** The token needs all of them. */
  readonly scopes: readonly Scope[];
  readonly annotations: typeof reading;
  readonly takes: Shape;
  /** Resolves to the result as JSON. */
  readonly run: (exchange: Exchange, given: Members) => Promise<string>;
}

type Members = Readonly<Record<string, unknown>>;

const reading = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
};
/** A second call with the same arguments changes nothing more. */
const adding = { ...reading, readOnlyHint: false };
const changing = { ...adding, destructiveHint: true };

const read: readonly Scope[] = ["plants:read"];
const write: readonly Scope[] = ["plants:write"];

type Argument<Value> = Shape & Rule<Value> & { readonly fallback?: unknown };

/** A tool whose arguments each have a rule. A refusal names every fault. */
function tool<Values extends object>(
  described: Omit<Tool, "takes" | "run">,
  rules: { readonly [Name in keyof Values]: Argument<Values[Name]> },
  run: (exchange: Exchange, values: Values) => Promise<string>,
): Tool {
  const known: Readonly<Record<string, Argument<unknown>>> = rules;
  const optional = Object.keys(known).filter((name) => known[name]?.optional === true);
  const defaults = mapValues(known, ({ fallback }) => fallback);
  return {
    ...described,
    takes: object(known, { optional, additionalProperties: false }),
    run: (exchange, given) => run(exchange, parseMembers<Values>(given, rules, defaults)),
  };
}

/** A query parameter as an argument: the same meaning, and the same values. */
const toArgument = <Value>(parameter: Parameter<Value>): Argument<Value> => ({
  ...parameter,
  optional: true,
  find: (given) => {
    const type = parameter.schema["type"] === "integer" ? "number" : "string";
    if (typeof given !== type || !isStorable(String(given))) return undefined;
    const found = parameter.find(String(given));
    // A search for no words counts as none; it finds every plant too.
    return found === null ? (given as Value) : found;
  },
});

const id: Argument<bigint> = {
  ...text(undefined, "The id of the plant: the digits of a 64-bit integer, as a string."),
  expected: `a string with the digits of an integer from ${INT64_MIN} to ${INT64_MAX}`,
  find: (given) => (typeof given === "string" ? findPlainInt64(given) : undefined),
};
const name: Argument<string> = {
  ...text(undefined, "The name of the plant."),
  expected: "text without U+0000 and unpaired surrogates",
  find: (given) => (findFaults(0n, given, "").name === undefined ? (given as string) : undefined),
};
const tag: Argument<string | undefined> = {
  ...name,
  ...text(undefined, "The type of the plant. Leave it out for a plant without one."),
  optional: true,
};
const batch = toArgument(writeParameters.batch);
const ifMatch: Argument<string | undefined> = {
  ...text(undefined, "An etag: change the plant only if it is still in this state."),
  expected: "the etag of an earlier answer",
  optional: true,
  find: (given) => (typeof given === "string" && given !== "" ? given : undefined),
};
const filterArguments = mapValues(filterParameters, toArgument) as {
  readonly [Name in FilterName]: Argument<string | undefined>;
};
/** Of one answer: a model reads all of it. */
const ENTRIES_MAX = 200;

/** Writes ids as strings. */
const format = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));

const etagOf = (plant: Plant): string => entityTagOf(formatStoredPlant(plant));

/** A page that looked at many rows for few that match may be empty. The service reads on for this long. */
const SEARCH_MS_MAX = 1_000;

async function findPlants({ service }: Exchange, query: PlantQuery): Promise<string> {
  const endsAtMs = performance.now() + SEARCH_MS_MAX;
  for (let { after } = query; ;) {
    const asked = { ...query, after, charactersMax: SMALL_PAGE_CHARACTERS };
    const page = await service.store.readPlants(asked, "json");
    const isEmpty = page.text.length === "[]".length;
    if (isEmpty && page.next !== undefined && performance.now() < endsAtMs) after = page.next;
    else {
      const plants =
        typeof page.text === "string" ? page.text : new TextDecoder().decode(page.text);
      const rest = page.next === undefined ? "" : `,"next":"${page.next}"`;
      return `{"plants":${quoteIds(plants)}${rest}}`;
    }
  }
}

async function readHistory(
  { service }: Exchange,
  query: Readonly<{ id: bigint; after: number; limit: number }>,
): Promise<string> {
  const endsAtMs = performance.now() + SEARCH_MS_MAX;
  for (let { after } = query; ;) {
    const page = await service.store.readChanges({ ...query, after });
    const isEmpty = page.changes.length === 0;
    if (isEmpty && page.hasMore && performance.now() < endsAtMs) after = page.last;
    else return formatHistory(page);
  }
}

/** Cut short if the plants are large; it has at least one change. */
function formatHistory({ changes, hasMore, last }: ChangePage): string {
  let characters = 0;
  const end = changes.findIndex(
    ({ json }, index) => (characters += json.length) > SMALL_PAGE_CHARACTERS && index > 0,
  );
  const shown = end === -1 ? changes : changes.slice(0, end);
  const cursor = end === -1 ? (hasMore ? last : undefined) : shown.at(-1)?.seq;
  const rest = cursor === undefined ? "" : `,"next":${cursor}`;
  return `{"changes":[${shown.map(({ json }) => quoteIds(json)).join(",")}]${rest}}`;
}

async function readPlant({ service }: Exchange, asked: { readonly id: bigint }): Promise<string> {
  const plant = await service.store.findPlant(asked.id);
  if (plant === undefined) throw new Refusal("plant_not_found");
  return format({ ...plant, etag: etagOf(plant) });
}

type Written = Plant & { readonly batch?: string | undefined };
type Changed = Written & { readonly ifMatch?: string | undefined };

async function createPlant(exchange: Exchange, { batch: named, ...plant }: Written) {
  const { service, token, startedAtMs } = exchange;
  const outcome = await service.store.createPlant(plant, joinWriter(token?.name, named));
  if (outcome === "created") service.metrics.countCreates(performance.now() - startedAtMs);
  return format({ id: plant.id, replayed: outcome === "replayed" });
}

const conditionOf = (etag: string | undefined) => (etag === undefined ? {} : { match: [etag] });

async function replacePlant(exchange: Exchange, asked: Changed): Promise<string> {
  const { service, token } = exchange;
  const { batch: named, ifMatch: etag, ...plant } = asked;
  const by = joinWriter(token?.name, named);
  await service.store.replacePlant(plant, conditionOf(etag), by);
  return format({ id: plant.id, etag: etagOf(plant) });
}

async function removePlant(
  { service, token }: Exchange,
  asked: Pick<Changed, "id" | "batch" | "ifMatch">,
): Promise<string> {
  const by = joinWriter(token?.name, asked.batch);
  await service.store.removePlant(asked.id, conditionOf(asked.ifMatch), by);
  return format({ id: asked.id });
}

/** Clients wait for a minute by default. A revert that is sent again continues. */
const REVERT_MS_MAX = 30_000;
const LEFT_MAX = 20;

async function revertChanges(exchange: Exchange, given: Members): Promise<string> {
  const { request, service, token } = exchange;
  service.rates.requireBatch(token);
  // null counts as absent, too.
  const asked = parseRevert({ ...given, dryRun: given["dryRun"] ?? true });
  const range = await openRevert(exchange, asked);
  if (asked.dryRun === true) return format(await previewRevert(exchange, range));
  const ending = new AbortController();
  const end = (refusal: Refusal): void => ending.abort(refusal);
  request.signal.addEventListener("abort", () => end(new Refusal("body_incomplete")));
  const header = request.headers.get("authorization") ?? "";
  const unwatch = service.authenticator.watch({ header, onInvalid: end });
  const endsAtMs = performance.now() + REVERT_MS_MAX;
  const report = startReport();
  const shown: object[] = [];
  try {
    for await (const left of revertAll(exchange, range, report, ending.signal)) {
      shown.push(...left.slice(0, LEFT_MAX - shown.length).map(describeLeft));
      if (report.plants > 0 && performance.now() > endsAtMs) break;
    }
  } finally {
    unwatch();
  }
  return format({ ...report, left: shown });
}

const NEXT =
  "`next` is the `after` of the next page. A page may be short, or empty, and still have one.";

/** In the order in which they are listed. */
export const tools: Readonly<Record<string, Tool>> = {
  find_plants: tool<PlantQuery>(
    {
      title: "Find plants",
      description: `Plants in the order of their ids. They match every filter given; without one, all plants. ${NEXT}`,
      scopes: read,
      annotations: reading,
    },
    {
      ...filterArguments,
      order: toArgument(plantParameters.order),
      limit: toArgument(limitTo("Plants on a page.", ENTRIES_MAX)),
      // A cursor is an id, so it is a string too.
      after: toArgument({ ...plantParameters.after, ...text(undefined, "The last `next`.") }),
    },
    findPlants,
  ),
  read_plant: tool(
    {
      title: "Read a plant",
      description: "One plant, with an etag that names its state.",
      scopes: read,
      annotations: reading,
    },
    { id },
    readPlant,
  ),
  count_plants: tool<Filter>(
    {
      title: "Count plants",
      description:
        "How many plants match every filter given. If `exact` is false, there are at least that many.",
      scopes: read,
      annotations: reading,
    },
    filterArguments,
    async ({ service }, filter) => format(await service.store.countPlants(filter)),
  ),
  plant_history: tool(
    {
      title: "History of a plant",
      description: `The changes of a plant, oldest first: when, by which token, and the plant before and after. ${NEXT}`,
      scopes: read,
      annotations: reading,
    },
    {
      id,
      limit: toArgument(limitTo("Changes on a page.", ENTRIES_MAX)),
      after: toArgument(changeParameters.after),
    },
    readHistory,
  ),
  create_plant: tool<Written>(
    {
      title: "Create a plant",
      description:
        "Stores a new plant. The same plant again changes nothing (`replayed`); a different one under a taken id is refused.",
      scopes: write,
      annotations: adding,
    },
    { id, name, tag, batch },
    createPlant,
  ),
  replace_plant: tool<Changed>(
    {
      title: "Replace a plant",
      description:
        "Replaces name and tag of an existing plant; a tag that is left out is removed. With `ifMatch`, a change made since you read the plant is not overwritten.",
      scopes: write,
      annotations: changing,
    },
    { id, name, tag, ifMatch, batch },
    replacePlant,
  ),
  remove_plant: tool(
    {
      title: "Remove a plant",
      description:
        "Removes a plant. revert_changes can bring it back while the journal has the change.",
      scopes: write,
      annotations: changing,
    },
    { id, ifMatch, batch },
    removePlant,
  ),
  revert_changes: {
    title: "Take changes back",
    description:
      "Each plant that the selected changes concern gets its state from before them, if it is still in the state that they left. " +
      "Select them by at least one of `from`, `to`, `by` and `batch`. A dry run, unless `dryRun` is false: show its counts and its sample to the user first. " +
      "If `complete` is false, call it again to continue.",
    scopes: plantScopes,
    annotations: changing,
    takes: object(
      { ...revertMembers, dryRun: flag(undefined, "False changes plants.", { default: true }) },
      { optional: Object.keys(revertMembers), additionalProperties: false },
    ),
    run: revertChanges,
  },
};
