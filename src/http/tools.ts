/** The tools that agents call through /mcp: operations, as a model sees them. Ids are strings, because its JSON would round them. */

import { describeRefusal, Refusal, toRefusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/members.ts";
import { describe, findPlainInt64, formatJson, isObject } from "../domain/json.ts";
import type { Scope } from "../domain/token.ts";
import { type Done, parseWrite, type PlantWrite, refuseLine } from "../domain/write.ts";
import { failureMembers, runLong } from "./bulk.ts";
import type { Arguments, Endpoint, Tool } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import {
  type Argument,
  contentArguments,
  dryRunArgument,
  type Fields,
  idArgument,
  ifMatchArgument,
  toArgument,
  truth,
  writeFields,
} from "./field.ts";
import { flag, integer, list, mapValues, object, type Schema, schemas, text } from "./shape.ts";

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
export const calling = <Values extends object>(
  known: { readonly [Name in keyof Values]: Argument<Values[Name]> },
  call: (exchange: Exchange, values: Values) => Promise<string>,
): Pick<Tool, "arguments" | "call"> => ({
  arguments: known,
  call,
});

const batch = toArgument(writeFields.batch);
/** A model reads the whole answer, so it is short. */
export const ENTRIES_MAX = 200;

/** An agent reads a page at once. */
export const PAGE_CHARACTERS_MAX = 32_768;
/** A page of the store ends early if few rows match. The tools continue for this long. */
export const SEARCH_MS_MAX = 1_000;

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
  const { store, service, token, startedAtMs } = exchange;
  const writes = parseWrites(order);
  return runLong(exchange, async (signal) => {
    const writer = exchange.leaseWriter(order.batch);
    const paid: PlantWrite[] = [];
    const lines = (async function* () {
      yield writes;
    })();
    for await (const part of service.rates.pace(lines, token, signal)) paid.push(...part);
    let outcomes: readonly (Done | Refusal)[];
    if (order.dryRun) outcomes = (await store.rehearse(paid, writer)).map(({ outcome }) => outcome);
    else if (order.atomic) outcomes = await store.writeAtomic(paid, writer);
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

export const NEXT =
  "`next` is the `after` of the next page. A page may be short, or empty, and still have one.";

export const nextMember = { schema: text().schema, optional: true, example: undefined };

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
        { line: integer(), outcome: text(), ...failureMembers },
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
