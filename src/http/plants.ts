/** The operations on one plant, on pages and streams of plants, and on tags. */

import { type Condition, entityTagOf, matches } from "../domain/entity-tag.ts";
import { Refusal } from "../domain/errors.ts";
import { type PageText, type PlantQuery, SMALL_PAGE_LENGTH, type TagPage } from "../domain/page.ts";
import { formatPlant, formatStoredPlant, lengthOf, type Plant } from "../domain/plant.ts";
import { formatCursor, scanBytesOf, SORTED_STREAM_LENGTH, toOrder } from "../domain/sort.ts";
import type { Patch } from "../domain/write.ts";
import { CSV_HEAD, TIMED_CSV_HEAD } from "../format/csv.ts";
import { JSON_TYPE, NDJSON_TYPES } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange, Input, Service } from "./exchange.ts";
import type {
  changeConditions,
  countFields,
  plantFields,
  plantPath,
  readConditions,
  tagFields,
  Values,
  writeFields,
} from "./field.ts";
import { answer, answerJson, answerText, requireRoomToAnswer } from "./answer.ts";
import { answerPage, openPacker, VARY } from "./pack.ts";
import { linkNext } from "./query.ts";
import { streamPages } from "./stream.ts";

const REPLAYED = { "idempotent-replayed": "true" };

type Writing = Values<typeof writeFields>;
type OfPlant = Values<typeof plantPath>;
type Conditions = Values<typeof changeConditions>;

const conditionOf = (headers: Conditions): Condition => ({
  match: headers["If-Match"],
  noneMatch: headers["If-None-Match"],
});

type Creating = Input<object, Writing, object, Plant>;

export async function createPlant({ query, body: plant }: Creating, exchange: Exchange) {
  const { service, startedAtMs } = exchange;
  const freed = exchange.requireFree(query);
  if (freed !== undefined) await freed;
  const outcome = await service.store.createPlant(plant, exchange.nameWriter(query.batch));
  if (outcome === "created") service.metrics.countCreates(performance.now() - startedAtMs);
  return outcome;
}

export function answerCreated(outcome: string, { body }: Creating, exchange: Exchange): Response {
  const headers = outcome === "replayed" ? REPLAYED : undefined;
  return answerText(exchange, formatPlant(body), headers);
}

type Reading = Input<OfPlant, object, Values<typeof readConditions>>;

export async function readPlant({ path }: Reading, { service }: Exchange): Promise<Plant> {
  const plant = await service.store.findPlant(path.id);
  if (plant === undefined) throw new Refusal("plant_not_found");
  return plant;
}

export function answerPlant(plant: Plant, { headers: sent }: Reading, exchange: Exchange) {
  // Checked before serializing, so a refused request builds no body.
  requireRoomToAnswer(exchange, lengthOf(plant));
  const text = formatStoredPlant(plant);
  const etag = entityTagOf(text);
  // Clients may cache it, but must revalidate every time.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (matches(sent["If-None-Match"] ?? [], etag)) return answer(304, null, headers);
  return answerText(exchange, text, headers);
}

type Changing<Body> = Input<OfPlant, Writing, Conditions, Body>;

/** Resolves to the plant as it is now. */
export async function replacePlant(
  { query, headers, body: plant }: Changing<Plant>,
  exchange: Exchange,
): Promise<Plant> {
  const writer = exchange.nameWriter(query.batch);
  await exchange.requireFree(writer);
  await exchange.service.store.replacePlant(plant, conditionOf(headers), writer);
  return plant;
}

export const PATCH_TYPES = ["application/merge-patch+json", JSON_TYPE];

export async function patchPlant(
  { path, query, headers, body: patch }: Changing<Patch>,
  exchange: Exchange,
): Promise<Plant> {
  const writer = exchange.nameWriter(query.batch);
  await exchange.requireFree(writer);
  return exchange.service.store.patchPlant(path.id, patch, conditionOf(headers), writer);
}

export const etagOf = (plant: Plant): string => entityTagOf(formatStoredPlant(plant));

export const answerChanged = (plant: Plant, _input: object, exchange: Exchange): Response =>
  answerText(exchange, formatPlant(plant), { etag: etagOf(plant) });

export async function removePlant(
  { path, query, headers }: Changing<undefined>,
  exchange: Exchange,
): Promise<void> {
  const writer = exchange.nameWriter(query.batch);
  await exchange.requireFree(writer);
  await exchange.service.store.removePlant(path.id, conditionOf(headers), writer);
}

export const answerRemoved = (): Response => answer(204, null);

const CSV_TYPE = "text/csv";

export const PLANT_FORMS = [JSON_TYPE, ...NDJSON_TYPES, CSV_TYPE] as const;

/** Throws a Refusal if a field contradicts another. */
export function toPlantQuery({
  query,
  form,
}: Input<object, Values<typeof plantFields>>): PlantQuery {
  const { include, sort, cursor, ...others } = query;
  const ordered = toOrder({ ...others, sort, cursor });
  const isStream = form !== JSON_TYPE;
  const limit = isStream && ordered.sort !== undefined ? SORTED_STREAM_LENGTH : others.limit;
  return { ...others, ...ordered, limit, hasTimes: include !== undefined };
}

export async function listPlants(
  { query, form }: Input<object, PlantQuery>,
  exchange: Exchange,
): Promise<Response> {
  const { service } = exchange;
  if (form === JSON_TYPE) return listPage(query, exchange);
  const isCsv = form === CSV_TYPE;
  if (query.sort !== undefined) exchange.waitLong();
  const packer = openPacker(exchange);
  const body = await streamPages<PlantQuery>(
    exchange,
    query,
    async (from, signal) => {
      const page = await service.store.readPlants(from, isCsv ? "csv" : "ndjson", signal);
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

/** Reserves the memory of a sorted page. Its scan may take long, and ends with the signal. */
export function openSort(exchange: Exchange, query: PlantQuery): AbortSignal | undefined {
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
  const page = service.store.readPlants(cut, "json", openSort(exchange, cut));
  // On SQLite without an await: the answer holds its memory before the next request of the tick reads its page.
  const { text, next, nextPosition } = page instanceof Promise ? await page : page;
  const { sort } = query;
  const link =
    sort === undefined || nextPosition === undefined
      ? linkNext(exchange, query.limit, next)
      : linkNext(exchange, query.limit, formatCursor(sort, nextPosition), "cursor");
  return answerPage(exchange, text, { vary: VARY, ...link });
}

export const countPlants = (
  { query }: Input<object, Values<typeof countFields>>,
  { service }: Exchange,
) => service.store.countPlants(query);

export const answerCount = (
  { count, exact, next }: Awaited<ReturnType<typeof countPlants>>,
  _input: object,
  exchange: Exchange,
): Response => answerJson(exchange, { count, exact }, linkNext(exchange, undefined, next));

/** Deadline after which a page of counts is cut short. */
const TAG_COUNTS_MS_MAX = 1_000;

export const answerTags =
  (hasCounts: boolean) =>
  async (
    { query }: Input<object, Values<typeof tagFields>>,
    exchange: Exchange,
  ): Promise<Response> => {
    const { store } = exchange.service;
    const page = await store.listTags(query);
    const { tags, next } = hasCounts ? await countTags(store, page) : page;
    return answerJson(exchange, tags, linkNext(exchange, query.limit, next));
  };

/** At least one tag is counted, so every page gets further. */
export async function countTags(
  store: Pick<Service["store"], "countPlants">,
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
