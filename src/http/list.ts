/** GET /plants: a page as JSON, or the whole (filtered) store as a stream. GET /tags: a page. And how many there are. */

import { Refusal } from "../domain/errors.ts";
import { INT64_MIN } from "../domain/json.ts";
import {
  type PlantPage,
  type PlantQuery,
  TAG_PREFIX_CHARACTERS,
  type TagPage,
} from "../domain/page.ts";
import { formatNdjson, formatStoredPlants, lengthOf, type Plant } from "../domain/plant.ts";
import type { ServedStore } from "../domain/store.ts";
import { CSV_HEAD, formatCsv } from "../format/csv.ts";
import { answer, type Exchange } from "./handle.ts";
import {
  formatNextQuery,
  parseCountQuery,
  parsePlantQuery,
  parseTagQuery,
  requireRoomForNext,
} from "./query.ts";
import { chooseForm, JSON_TYPE, NDJSON_TYPES } from "./request-headers.ts";
import {
  answerText,
  type MakePieces,
  requireRoomToAnswer,
  shortenPage,
  toStream,
} from "./stream.ts";

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
  const pages: MakePages = (signal) => followPages(exchange, query, first, signal);
  if (form !== CSV_TYPE)
    return answerStream(exchange, form, (signal) => formatPages("", pages(signal), formatNdjson));
  return answerStream(exchange, `${CSV_TYPE}; charset=utf-8; header=present`, (signal) =>
    formatPages(CSV_HEAD, pages(signal), formatCsv),
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

type MakePages = (signal: AbortSignal) => AsyncGenerator<PlantPage>;

async function* followPages(
  exchange: Exchange,
  query: PlantQuery,
  first: PlantPage,
  signal: AbortSignal,
): AsyncGenerator<PlantPage> {
  let page = first;
  for (;;) {
    yield page;
    const { next: after } = page;
    if (after === undefined) return;
    await takeTick();
    page = await retryWhileOverloaded(exchange.service.config.queueSecondsMax, () => {
      signal.throwIfAborted();
      return readPage(exchange, { ...query, after });
    });
  }
}

/** Looks twice for room: other exports may have read their pages meanwhile. What it holds itself does not count. */
async function readPage(exchange: Exchange, query: PlantQuery): Promise<PlantPage> {
  const { memory, store } = exchange.service;
  memory.requireHalf(exchange.bytesHeld);
  const page = await store.listPlants(query);
  memory.noteText(countCharacters(page.plants));
  memory.requireHalf(exchange.bytesHeld);
  return page;
}

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

async function* formatPages(
  head: string,
  pages: AsyncIterable<PlantPage>,
  format: (plants: readonly Plant[]) => string,
): AsyncGenerator<string> {
  // Together with the first page, which counts as held memory until a piece is asked for.
  let start = head;
  for await (const { plants } of pages) {
    if (plants.length > 0 || start !== "") yield start + format(plants);
    start = "";
  }
}

/** GET /plants/count */
export async function countPlants({ request, service }: Exchange): Promise<Response> {
  return answer(200, JSON.stringify(await service.store.countPlants(parseCountQuery(request.url))));
}

/** GET /tags, and with counts GET /tags/counts */
export const answerTags =
  (hasCounts: boolean) =>
  async ({ request, service }: Exchange): Promise<Response> => {
    const query = parseTagQuery(request.url);
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
