/** GET /plants: a page as JSON, or the whole (filtered) store as a stream. GET /tags: a page. */

import type { PlantPage, PlantQuery } from "../domain/page.ts";
import { formatStoredPlant, formatStoredPlants, type Plant } from "../domain/plant.ts";
import { answer, type Exchange } from "./handle.ts";
import {
  formatNextQuery,
  formatNextTagQuery,
  parsePlantQuery,
  parseStreamQuery,
  parseTagQuery,
} from "./query.ts";
import { chooseForm } from "./request-headers.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";

const JSON_TYPE = "application/json";
const NDJSON_TYPE = "application/x-ndjson";
const CSV_TYPE = "text/csv";

/** The same URL answers in several forms. */
const VARY = { vary: "Accept" };

/** GET /plants */
export async function listPlants(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const form = chooseForm(request.headers.get("accept"), [JSON_TYPE, NDJSON_TYPE, CSV_TYPE]);
  if (form === JSON_TYPE) return answerPage(exchange);
  const query = parseStreamQuery(request.url);
  // The first page is read before anything is sent, so a store that cannot answer is a proper 503.
  const first = await service.store.listPlants(query);
  const pages = followPages(exchange, query, first);
  if (form === NDJSON_TYPE) return answerStream(NDJSON_TYPE, formatPages("", pages, formatNdjson));
  // Loaded on demand: most services never export a spreadsheet.
  const { CSV_HEAD, formatCsv } = await import("../format/csv.ts");
  return answerStream(
    `${CSV_TYPE}; charset=utf-8; header=present`,
    formatPages(CSV_HEAD, pages, formatCsv),
  );
}

async function answerPage({ request, service }: Exchange): Promise<Response> {
  const query = parsePlantQuery(request.url);
  const { plants, next } = await service.store.listPlants(query);
  const body = formatStoredPlants(plants);
  if (next === undefined) return answer(200, body, VARY);
  const link = `<${service.config.basePath}/plants?${formatNextQuery(query, next)}>; rel="next"`;
  return answer(200, body, { ...VARY, link });
}

function answerStream(type: string, pieces: AsyncGenerator<string>): Response {
  return answer(200, toStream(pieces), { ...VARY, "content-type": type });
}

let ticksTaken: Promise<unknown> = Promise.resolve();

/**
 * All exports together read one page a tick: a page takes milliseconds, and the system buffers many pages
 * before a slow client holds us up.
 */
function takeTick(): Promise<unknown> {
  ticksTaken = ticksTaken.then(() => new Promise(setImmediate));
  return ticksTaken;
}

async function* followPages(
  exchange: Exchange,
  query: PlantQuery,
  first: PlantPage,
): AsyncGenerator<PlantPage> {
  for (let page = first; ; page = await readOn(exchange, { ...query, after: page.next })) {
    yield page;
    if (page.next === undefined) return;
    await takeTick();
  }
}

/** The answer has begun: a failure cuts it off, so a client cannot take it for the whole. */
async function readOn({ service, requestId }: Exchange, query: PlantQuery): Promise<PlantPage> {
  const { store, config, log } = service;
  try {
    return await retryWhileOverloaded(config.queueSecondsMax, () => store.listPlants(query));
  } catch (error) {
    log.warn("export_broken_off", { requestId, after: String(query.after), cause: error });
    throw error;
  }
}

async function* formatPages(
  head: string,
  pages: AsyncIterable<PlantPage>,
  format: (plants: readonly Plant[]) => string,
): AsyncGenerator<string> {
  if (head !== "") yield head;
  for await (const { plants } of pages) if (plants.length > 0) yield format(plants);
}

function formatNdjson(plants: readonly Plant[]): string {
  return plants.map((plant) => `${formatStoredPlant(plant)}\n`).join("");
}

/** GET /tags */
export async function listTags({ request, service }: Exchange): Promise<Response> {
  const query = parseTagQuery(request.url);
  const { tags, next } = await service.store.listTags(query);
  const body = JSON.stringify(tags);
  if (next === undefined) return answer(200, body);
  const link = `<${service.config.basePath}/tags?${formatNextTagQuery(query, next)}>; rel="next"`;
  return answer(200, body, { link });
}
