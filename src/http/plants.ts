/** The operations on one plant, on pages and streams of plants, and on tags. */

import type { Principal } from "../auth/authenticate.ts";
import { Refusal } from "../domain/errors.ts";
import { findPlainInt64, INT64_MIN } from "../domain/json.ts";
import {
  type PlantPage,
  type PlantQuery,
  TAG_PREFIX_CHARACTERS,
  type TagPage,
} from "../domain/page.ts";
import {
  entityTagOf,
  formatNdjson,
  formatPlant,
  formatStoredPlant,
  formatStoredPlants,
  lengthOf,
  parseNewPlant,
  parseReplacement,
  type Plant,
} from "../domain/plant.ts";
import type { ServedStore } from "../domain/store.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import { requireType } from "./body.ts";
import { answer, type Exchange } from "./handle.ts";
import {
  filterParameters,
  formatNextQuery,
  parsePlantQuery,
  parseQuery,
  requireRoomForNext,
  tagParameters,
} from "./query.ts";
import {
  chooseForm,
  isUnmodified,
  JSON_TYPE,
  NDJSON_TYPES,
  parseCondition,
} from "./request-headers.ts";
import {
  answerText,
  type MakePieces,
  readWithinHalf,
  requireRoomToAnswer,
  shortenPage,
  toStream,
  writeText,
} from "./stream.ts";

const REPLAYED = { "idempotent-replayed": "true" };

/** POST /plants */
export async function createPlant(exchange: Exchange, { name }: Principal): Promise<Response> {
  const { request, service, startedAtMs } = exchange;
  requireType(request.headers, JSON_TYPE);
  const text = await service.bodies.readText(request);
  const plant = parseNewPlant(text);
  const outcome = await writeText(exchange, text, () => service.store.createPlant(plant, name));
  if (outcome === "replayed") return answerText(exchange, formatPlant(plant), REPLAYED);
  service.metrics.countCreate(performance.now() - startedAtMs);
  return answerText(exchange, formatPlant(plant));
}

/** GET /plants/{id} */
export async function readPlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const plant = await service.store.findPlant(parseId(request));
  if (plant === undefined) throw new Refusal("plant_not_found");
  // Before the text is made: a burst of refused requests would make many.
  requireRoomToAnswer(service, lengthOf(plant));
  const text = formatStoredPlant(plant);
  const etag = entityTagOf(text);
  // A client may keep it, but has to ask each time whether it still holds.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (isUnmodified(request.headers, etag)) return answer(304, null, headers);
  return answerText(exchange, text, headers);
}

/** PUT /plants/{id} */
export async function replacePlant(exchange: Exchange, { name }: Principal): Promise<Response> {
  const { request, service } = exchange;
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  requireType(request.headers, JSON_TYPE);
  const text = await service.bodies.readText(request);
  const plant = parseReplacement(text, id);
  await writeText(exchange, text, () => service.store.replacePlant(plant, condition, name));
  const etag = entityTagOf(formatStoredPlant(plant));
  return answerText(exchange, formatPlant(plant), { etag });
}

/** DELETE /plants/{id} */
export async function removePlant(
  { request, service }: Exchange,
  { name }: Principal,
): Promise<Response> {
  // Otherwise the runtime would hold a body, which has no meaning here, until the answer.
  await request.body?.cancel();
  await service.store.removePlant(parseId(request), parseCondition(request.headers), name);
  return answer(204, null);
}

function parseId({ params }: Exchange["request"]): bigint {
  const id = findPlainInt64(params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("invalid_id");
  return id;
}

const CSV_TYPE = "text/csv";

/** The same URL answers in several forms. */
export const VARY = { vary: "Accept" };

/** GET /plants */
export async function listPlants(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const form = chooseForm(request.headers.get("accept"), [JSON_TYPE, ...NDJSON_TYPES, CSV_TYPE]);
  if (form === JSON_TYPE) return answerPage(exchange);
  const query = parsePlantQuery(request.url, true);
  // The first page is read before anything is sent, so a store that cannot answer is a proper 503.
  const first = await readPage(exchange, query);
  exchange.release = service.memory.reserve(countBytes(first.plants));
  const isCsv = form === CSV_TYPE;
  const type = isCsv ? `${CSV_TYPE}; charset=utf-8; header=present` : form;
  const format: Format = isCsv ? [CSV_HEAD, formatCsv] : ["", formatNdjson];
  return answerStream(exchange, type, (signal) =>
    formatPages(exchange, query, first, format, signal),
  );
}

async function answerPage(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const query = parsePlantQuery(request.url, false);
  requireRoomForNext(request.url, ID_BYTES_MAX, service.config.urlBytesMax);
  const { plants, next } = await service.store.listPlants(shortenPage(service, query));
  requireRoomToAnswer(service, countCharacters(plants));
  const text = formatStoredPlants(plants);
  const headers =
    next === undefined ? VARY : { ...VARY, link: formatNextLink(request, query, String(next)) };
  return answerText(exchange, text, headers);
}

/** RFC 8288. Relative to the request's own URL, whatever prefix a proxy has taken away. */
export const formatNextLink = (
  { url }: Request,
  { limit }: { readonly limit: number },
  after: string,
): string => `<?${formatNextQuery(url, limit, after)}>; rel="next"`;

const ID_BYTES_MAX = String(INT64_MIN).length;
/** A tag that is listed, with a character of four bytes percent-encoded. */
const TAG_BYTES_MAX = TAG_PREFIX_CHARACTERS * 12;

export const answerStream = (
  exchange: Exchange,
  type: string,
  make: MakePieces,
  more?: Readonly<Record<string, string>>,
): Response => answer(200, toStream(exchange, make), { ...VARY, ...more, "content-type": type });

let ticksTaken: Promise<unknown> = Promise.resolve();

/**
 * All exports together read one page a tick: a page takes milliseconds, and the system buffers many pages
 * before a slow client holds us up.
 */
export function takeTick(): Promise<unknown> {
  ticksTaken = ticksTaken.then(() => new Promise(setImmediate));
  return ticksTaken;
}

type Format = readonly [head: string, format: (plants: readonly Plant[]) => string];

async function* formatPages(
  exchange: Exchange,
  query: PlantQuery,
  first: PlantPage,
  [head, format]: Format,
  signal: AbortSignal,
): AsyncGenerator<string> {
  // Together with the first page, which counts as held memory until a piece is asked for.
  let start = head;
  for (let page = first; ;) {
    if (page.plants.length > 0 || start !== "") yield start + format(page.plants);
    start = "";
    const { next: after } = page;
    if (after === undefined) return;
    await takeTick();
    page = await retryWhileOverloaded(exchange.service.config.queueSecondsMax, () => {
      signal.throwIfAborted();
      return readPage(exchange, { ...query, after });
    });
  }
}

const readPage = (exchange: Exchange, query: PlantQuery): Promise<PlantPage> =>
  readWithinHalf(
    exchange,
    () => exchange.service.store.listPlants(query),
    ({ plants }) => countCharacters(plants),
  );

const countCharacters = (plants: readonly Plant[]): number =>
  plants.reduce((sum, plant) => sum + lengthOf(plant), 0);

const countBytes = (plants: readonly Plant[]): number =>
  plants.reduce((sum, { name, tag = "" }) => sum + Buffer.byteLength(name + tag), 0);

const RETRY_MS = 20;

/** Gives up when a write would. */
export async function retryWhileOverloaded<Result>(
  secondsMax: number,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const deadlineMs = performance.now() + secondsMax * 1000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const isOverload = error instanceof Refusal && error.reason === "overloaded";
      if (!isOverload || performance.now() > deadlineMs) throw error;
      await Bun.sleep(RETRY_MS);
    }
  }
}

/** GET /plants/count */
export async function countPlants({ request, service }: Exchange): Promise<Response> {
  const counted = await service.store.countPlants(parseQuery(request.url, filterParameters));
  return answer(200, JSON.stringify(counted));
}

/** GET /tags, and with counts GET /tags/counts */
export const answerTags =
  (hasCounts: boolean) =>
  async ({ request, service }: Exchange): Promise<Response> => {
    const query = parseQuery(request.url, tagParameters);
    requireRoomForNext(request.url, TAG_BYTES_MAX, service.config.urlBytesMax);
    const page = await service.store.listTags(query);
    const { tags, next } = hasCounts ? await countEach(service.store, page) : page;
    const body = JSON.stringify(tags);
    if (next === undefined) return answer(200, body);
    return answer(200, body, { link: formatNextLink(request, query, next) });
  };

/** Then a page of counts ends early. */
const TAG_COUNTS_MS_MAX = 1_000;

async function countEach(store: ServedStore, { tags, next }: TagPage) {
  const endsAtMs = performance.now() + TAG_COUNTS_MS_MAX;
  const counted: object[] = [];
  for (const tag of tags) {
    if (counted.length > 0 && performance.now() > endsAtMs)
      return { tags: counted, next: tags[counted.length - 1] };
    counted.push({ tag, ...(await store.countPlants({ tag })) });
  }
  return { tags: counted, next };
}
