/** GET /plants: a page as JSON, or the whole (filtered) store as a stream. */

import type { PlantPage, PlantQuery } from "../domain/page.ts";
import { formatStoredPlant, type Plant } from "../domain/plant.ts";
import { chooseForm } from "./accept.ts";
import { patiently } from "./patience.ts";
import { formatNextQuery, parsePlantQuery, parseStreamQuery } from "./query.ts";
import type { Answer, Service } from "./service.ts";
import { toStream } from "./stream.ts";

const JSON_TYPE = "application/json";
const NDJSON_TYPE = "application/x-ndjson";
const CSV_TYPE = "text/csv";

export async function listPlants(
  request: Request,
  service: Service,
  requestId: string,
): Promise<Answer> {
  const form = chooseForm(request.headers.get("accept"), [JSON_TYPE, NDJSON_TYPE, CSV_TYPE]);
  if (form === JSON_TYPE) return answerPage(request, service);
  const query = parseStreamQuery(request.url);
  // The first page is read before anything is sent, so that a store that cannot answer is a proper 503.
  const first = await service.store.listPlants(query);
  const pages = followPages(service, requestId, query, first);
  if (form === NDJSON_TYPE) return answerStream(NDJSON_TYPE, formatPages("", pages, formatNdjson));
  // Loaded when first needed: most services never export a spreadsheet.
  const { CSV_HEAD, formatCsv } = await import("../format/csv.ts");
  return answerStream(
    `${CSV_TYPE}; charset=utf-8; header=present`,
    formatPages(CSV_HEAD, pages, formatCsv),
  );
}

async function answerPage(request: Request, { config, store }: Service): Promise<Answer> {
  const query = parsePlantQuery(request.url);
  const { plants, next } = await store.listPlants(query);
  const body = `[${plants.map(formatStoredPlant).join(",")}]`;
  if (next === undefined) return { status: 200, body, headers: VARY };
  const link = `<${config.basePath}/plants?${formatNextQuery(query, next)}>; rel="next"`;
  return { status: 200, body, headers: { ...VARY, link } };
}

/** The same URL answers in several forms. */
const VARY = { vary: "Accept" };

function answerStream(type: string, pieces: AsyncGenerator<string>): Answer {
  return { status: 200, body: toStream(pieces), headers: { ...VARY, "content-type": type } };
}

let turnsTaken: Promise<unknown> = Promise.resolve();

/**
 * One page a turn of the event loop, of all exports together: to read one takes milliseconds, and where nobody
 * reads them yet, the system takes many before it holds us up.
 */
function takeTurn(): Promise<unknown> {
  turnsTaken = turnsTaken.then(() => new Promise(setImmediate));
  return turnsTaken;
}

async function* followPages(
  service: Service,
  requestId: string,
  query: PlantQuery,
  first: PlantPage,
): AsyncGenerator<PlantPage> {
  for (
    let page = first;
    ;
    page = await readOn(service, requestId, { ...query, after: page.next })
  ) {
    yield page;
    if (page.next === undefined) return;
    await takeTurn();
  }
}

/** The answer has begun: a failure breaks it off, so that it cannot be taken for the whole. */
async function readOn(
  { store, config, log }: Service,
  requestId: string,
  query: PlantQuery,
): Promise<PlantPage> {
  try {
    return await patiently(config.queueSecondsMax, () => store.listPlants(query));
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
