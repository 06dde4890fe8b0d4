/** Pages and streams of plants, their counts, and tags. */

import { type Filter, filterNames, filters } from "../domain/filter.ts";
import { describe, findPlainInt64, quoteIds } from "../domain/json.ts";
import { Refusal } from "../domain/errors.ts";
import {
  type PageText,
  type PlantQuery,
  SMALL_PAGE_LENGTH,
  TAG_PREFIX_CHARACTERS,
  type TagPage,
} from "../domain/page.ts";
import {
  findCursor,
  formatCursor,
  formatSort,
  type Ordering,
  scanBytesOf,
  SORTED_STREAM_LENGTH,
  toOrder,
} from "../domain/sort.ts";
import type { StoreView } from "../domain/store.ts";
import { CSV_HEAD, TIMED_CSV_HEAD } from "../format/csv.ts";
import { answer, answerJson } from "./answer.ts";
import { JSON_TYPE, NDJSON_TYPES } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { type Endpoints, json, jsonAndLines, ok, operation } from "./endpoint.ts";
import type { Exchange } from "./exchange.ts";
import {
  countFields,
  filterArguments,
  limitTo,
  plantFields,
  plantStreamFields,
  tagFields,
  toArgument,
} from "./field.ts";
import { answerPage, openPacker, VARY } from "./pack.ts";
import { CSV_EXAMPLE, ficus, monstera, StoredPlant } from "./plant-shapes.ts";
import { linkNext } from "./query.ts";
import { flag, integer, list, object, text } from "./shape.ts";
import { streamPages } from "./stream.ts";
import {
  calling,
  ENTRIES_MAX,
  NEXT,
  nextMember,
  PAGE_CHARACTERS_MAX,
  SEARCH_MS_MAX,
} from "./tools.ts";

const CSV_TYPE = "text/csv";
const PLANT_FORMS = [JSON_TYPE, ...NDJSON_TYPES, CSV_TYPE] as const;

const countMembers = {
  count: integer(12, "How many there are."),
  exact: flag(true, "False if there may be more."),
};

const searchNames = filterNames
  .filter((name) => !filters[name].isIndexed)
  .map((name) => `\`${name}\``)
  .join(" or ");

export const plantListOperations: Endpoints = {
  listPlants: operation({
    at: "GET /plants",
    scopes: ["plants:read"],
    kind: "read",
    summary: "List plants",
    description: ({ scanRowsMax }) =>
      "A page of plants in the order of their ids, or of `sort`, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` all plants that match are streamed " +
      "instead, and `limit` is not allowed. To check that a stream is complete, request what follows its last " +
      "plant: `?after=<id>&limit=1`, with the same filters. " +
      "A page with `sort` by name, tag or changed scans all plants, in turn with other reads, and its next link has a `cursor` instead of `after`. " +
      `A page of very long names may end before its limit. A search by ${searchNames} scans for a bounded time, and at most ${scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
    query: plantFields,
    streamQuery: plantStreamFields,
    forms: PLANT_FORMS,
    // Throws a Refusal if a field contradicts another.
    refine: ({ query, form }): PlantQuery => {
      const { include, sort, cursor, ...others } = query;
      const ordered = toOrder({ ...others, sort, cursor });
      const isStream = form !== JSON_TYPE;
      const limit = isStream && ordered.sort !== undefined ? SORTED_STREAM_LENGTH : others.limit;
      return { ...others, ...ordered, limit, hasTimes: include !== undefined };
    },
    run: ({ query, form }, exchange) =>
      form === JSON_TYPE ? listPage(query, exchange) : streamPlants(query, form, exchange),
    answers: ok(
      "The plants.",
      { ...jsonAndLines("StoredPlant", [monstera, ficus]), "text/csv": text(CSV_EXAMPLE) },
      "Link",
    ),
    tool: {
      name: "find_plants",
      title: "Find plants",
      description: `Plants that match all filters, in the order of their ids, or of \`sort\`; without a filter, all plants. ${NEXT}`,
      output: object({ plants: list(StoredPlant), next: nextMember }),
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
    },
  }),
  countPlants: operation({
    at: "GET /plants/count",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Count plants",
    description:
      "How many plants there are, or how many match. The service counts for a second at most; after that " +
      "`exact` is false, `count` is a lower bound, and the next link continues the count: add up the counts. The answer may be up to two seconds old.",
    query: countFields,
    answers: ok("The count.", json(object(countMembers)), "Link"),
    run: ({ query }, { store }) => store.countPlants(query),
    answer: ({ count, exact, next }, _input, exchange) =>
      answerJson(exchange, { count, exact }, linkNext(exchange, undefined, next)),
    tool: {
      name: "count_plants",
      title: "Count plants",
      description:
        "How many plants match all filters. If `exact` is false, `count` is a lower bound.",
      arguments: filterArguments,
      output: object(countMembers),
      show: ({ count, exact }) => ({ count, exact }),
    },
  }),
  listTags: operation({
    at: "GET /tags",
    scopes: ["plants:read"],
    kind: "read",
    summary: "List the tags in use",
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
      "a page may end early or be empty, with a next link.",
    query: tagFields,
    answers: ok("The tags.", json(list(text("bulb"))), "Link"),
    run: async ({ query }, exchange) => {
      const { tags, next } = await exchange.store.listTags(query);
      return answerJson(exchange, tags, linkNext(exchange, query.limit, next));
    },
  }),
  countTags: operation({
    at: "GET /tags/counts",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Count the plants of each tag",
    description:
      "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
      "The service counts for about a second per page; then the page ends early, with a next link.",
    query: tagFields,
    answers: ok(
      "The tags with their counts.",
      json(list(object({ tag: text("bulb"), ...countMembers }))),
      "Link",
    ),
    run: async ({ query }, exchange) => {
      const { store } = exchange;
      const { tags, next } = await countTags(store, await store.listTags(query));
      return answerJson(exchange, tags, linkNext(exchange, query.limit, next));
    },
  }),
};

async function streamPlants(
  query: PlantQuery,
  form: string,
  exchange: Exchange,
): Promise<Response> {
  const isCsv = form === CSV_TYPE;
  if (query.sort !== undefined) exchange.waitLong();
  const packer = openPacker(exchange);
  const body = await streamPages<PlantQuery>(
    exchange,
    query,
    async (from, signal) => {
      const page = await exchange.store.readPlants(from, isCsv ? "csv" : "ndjson", signal);
      return { text: page.text, next: nextQuery(from, page) };
    },
    {
      heading: isCsv ? (query.hasTimes ? TIMED_CSV_HEAD : CSV_HEAD) : "",
      packer,
      bytesToRead: scanBytesOf(query),
    },
  );
  const type = isCsv ? `${CSV_TYPE}; charset=utf-8; header=present` : form;
  return answer(200, body, { vary: VARY, "content-type": type, ...packer?.headers });
}

/** Undefined after the last page. */
function nextQuery(query: PlantQuery, { next, nextPosition }: PageText): PlantQuery | undefined {
  if (nextPosition !== undefined)
    return { ...query, sort: query.sort && { ...query.sort, after: nextPosition } };
  return next === undefined ? undefined : { ...query, after: next };
}

/** An id, or a cursor of the sort; undefined after the last page. */
const findNext = ({ sort }: PlantQuery, { next, nextPosition }: PageText) =>
  sort && nextPosition ? formatCursor(sort, nextPosition) : next;

/** Reserves the memory of a sorted page. Its scan may take long, and ends with the signal. */
function openSort(exchange: Exchange, query: PlantQuery): AbortSignal | undefined {
  if (query.sort === undefined) return undefined;
  exchange.reserve(exchange.bytesKept + scanBytesOf(query), ANSWERS_SHARE);
  exchange.waitLong();
  return exchange.signal;
}

/** Far below the size of a large answer. */
const SMALL_PAGE_CHARACTERS = 4_096;

async function listPage(query: PlantQuery, exchange: Exchange): Promise<Response> {
  const { service } = exchange;
  // While large answers are refused, pages are cut short. A single large plant still makes a large page.
  const { bytesHeld, bytesMax } = service.budget;
  const isFull = bytesHeld > bytesMax * ANSWERS_SHARE;
  const charactersMax = isFull ? SMALL_PAGE_CHARACTERS : undefined;
  const limit = isFull ? Math.min(query.limit, SMALL_PAGE_LENGTH) : query.limit;
  const cut = { ...query, limit, charactersMax };
  const page = exchange.store.readPlants(cut, "json", openSort(exchange, cut));
  // On SQLite without an await: the answer holds its memory before the next request of the tick reads its page.
  const read = page instanceof Promise ? await page : page;
  const name = query.sort === undefined ? "after" : "cursor";
  const link = linkNext(exchange, query.limit, findNext(query, read), name);
  return answerPage(exchange, read.text, { vary: VARY, ...link });
}

/** Deadline after which a page of counts is cut short. */
const TAG_COUNTS_MS_MAX = 1_000;

/** At least one tag is counted, so every page gets further. */
export async function countTags(
  store: Pick<StoreView, "countPlants">,
  { tags, next }: TagPage,
  nowMs = () => performance.now(),
) {
  const endsAtMs = nowMs() + TAG_COUNTS_MS_MAX;
  const counted: { readonly tag: string; readonly count: number; readonly exact: boolean }[] = [];
  for (const tag of tags) {
    if (counted.length > 0 && nowMs() > endsAtMs) break;
    const { count, exact } = await store.countPlants({ tag });
    counted.push({ tag, count, exact });
  }
  return { tags: counted, next: counted.length < tags.length ? counted.at(-1)?.tag : next };
}

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
    const page = await exchange.store.readPlants({ ...query, after }, "json", signal);
    const isEmpty = page.text.length === "[]".length;
    if (isEmpty && page.next !== undefined && performance.now() < endsAtMs) after = page.next;
    else {
      const plants =
        typeof page.text === "string" ? page.text : new TextDecoder().decode(page.text);
      const next = findNext(query, page);
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
