/** GET /changes: a page of the journal as JSON, the rest of it as a stream, or events that go on. */

import {
  type ChangePage,
  type ChangeQuery,
  formatChange,
  isWanted,
  type Change,
} from "../domain/change.ts";
import { lengthOf, type Plant } from "../domain/plant.ts";
import { formatEvents } from "./feed.ts";
import { answer, type Exchange } from "./handle.ts";
import { answerStream, formatNextLink, retryWhileOverloaded, takeTick, VARY } from "./plants.ts";
import { parseChangeQuery } from "./query.ts";
import { chooseForm, JSON_TYPE, NDJSON_TYPES } from "./request-headers.ts";
import {
  answerText,
  type MakePieces,
  readWithinHalf,
  requireRoomToAnswer,
  toStream,
} from "./stream.ts";

const EVENT_STREAM_TYPE = "text/event-stream";

/** How long a reader waits before it connects again. */
const RETRY_MS = 2_000;
/** Readers that are less far behind read all changes, and share them whatever their filters are. */
const SHARED_MS = 60_000;

/** GET /changes */
export async function listChanges(exchange: Exchange): Promise<Response> {
  const { request } = exchange;
  const accept = request.headers.get("accept");
  const form = chooseForm(accept, [JSON_TYPE, ...NDJSON_TYPES, EVENT_STREAM_TYPE]);
  const isFeed = form === EVENT_STREAM_TYPE;
  const lastEventId = isFeed ? request.headers.get("last-event-id") : null;
  const query = parseChangeQuery(request.url, form !== JSON_TYPE, lastEventId);
  if (request.method === "HEAD") return answerHead(exchange, form, query);
  if (form === JSON_TYPE) return answerPage(exchange, query);
  // Read before anything is sent, so what cannot be read has a status of its own.
  if (!isFeed) {
    const first = await readLines(exchange, query);
    const readOn: MakePieces = (signal) => readRest(exchange, query, first, signal);
    return answerStream(exchange, form, readOn, toHeaders(first));
  }
  const newest = await exchange.service.store.readChanges({ ...query, limit: 0 });
  const follower: MakePieces = (signal) => follow(exchange, query, signal);
  return answer(200, toStream(exchange, follower, { isFeed: true }), {
    ...VARY,
    ...toHeaders(newest),
    "content-type": form,
    // nginx would hold back events until it has a buffer full of them.
    "x-accel-buffering": "no",
  });
}

/** Has no link: to know where a page ends, it would have to be read. */
async function answerHead(
  { service }: Exchange,
  form: string,
  query: ChangeQuery,
): Promise<Response> {
  const page = await service.store.readChanges({ ...query, limit: 0 });
  // Of a text, the runtime would tell the length.
  const body = new ReadableStream<Uint8Array>();
  return answer(200, body, { ...VARY, ...toHeaders(page), "content-type": form });
}

async function answerPage(exchange: Exchange, query: ChangeQuery): Promise<Response> {
  const { request, service } = exchange;
  const page = await service.store.readChanges(query);
  requireRoomToAnswer(service, countCharacters(page.changes));
  const text = `[${page.changes.map(formatChange).join(",")}]`;
  const headers = { ...VARY, ...toHeaders(page) };
  if (!page.hasMore) return answerText(exchange, text, headers);
  const link = formatNextLink(request, query, String(page.last));
  return answerText(exchange, text, { ...headers, link });
}

const toHeaders = ({ newest }: Pick<ChangePage, "newest">): { readonly "last-change": string } => ({
  "last-change": String(newest),
});

const readPage = (exchange: Exchange, query: ChangeQuery): Promise<ChangePage> =>
  readWithinHalf(
    exchange,
    () => exchange.service.store.readChanges(query),
    ({ changes }) => countCharacters(changes),
  );

const countCharacters = (changes: readonly Change[]): number =>
  changes.reduce((sum, { plant, before }) => sum + countIn(plant) + countIn(before), 0);

const countIn = (plant: Plant | undefined): number => (plant === undefined ? 0 : lengthOf(plant));

/** What of a page is sent. */
interface PageText extends Omit<ChangePage, "changes"> {
  text: string;
}

/** The text counts as held until the client is sent it. */
const readLines = (
  exchange: Exchange,
  query: ChangeQuery,
  signal?: AbortSignal,
): Promise<PageText> =>
  retryWhileOverloaded(exchange.service.config.queueSecondsMax, async () => {
    signal?.throwIfAborted();
    const { changes, ...page } = await readPage(exchange, query);
    const text = changes.map((change) => `${formatChange(change)}\n`).join("");
    exchange.release = exchange.service.memory.reserve(Buffer.byteLength(text));
    return { ...page, text };
  });

/** Up to the newest change. */
async function* readRest(
  exchange: Exchange,
  query: ChangeQuery,
  first: PageText,
  signal: AbortSignal,
): AsyncGenerator<string> {
  for (let page = first; ;) {
    if (page.text !== "") yield takeText(page);
    if (!page.hasMore) return;
    await takeTick();
    page = await readLines(exchange, { ...query, after: page.last }, signal);
  }
}

/** What was sent is not kept until the next is asked for. */
function takeText(page: PageText): string {
  const { text } = page;
  page.text = "";
  return text;
}

/** Goes on until the client goes, its token is no longer good, or the service stops. */
async function* follow(
  exchange: Exchange,
  query: ChangeQuery,
  signal: AbortSignal,
): AsyncGenerator<string | Uint8Array> {
  const { config, feed, memory } = exchange.service;
  const quietMsMax = config.commentSeconds * 1000;
  let last = query.after;
  const makePiece = async (): Promise<string | Uint8Array> => {
    signal.throwIfAborted();
    memory.requireHalf();
    const after = last;
    let kept = feed.find(after);
    // Numbers are times in microseconds.
    const isShared = wantsAll(query) || after > (Date.now() - SHARED_MS) * 1000;
    const filter = isShared ? { id: undefined, types: undefined } : {};
    const page = kept ?? (await readPage(exchange, { ...query, ...filter, after }));
    ({ last } = page);
    if (isShared) kept ??= feed.keep(after, page);
    if (wantsAll(query) && kept?.after === after) return kept.events;
    // What is kept has earlier changes, and those that others want.
    const isDue = (change: Change): boolean => change.seq > after && isWanted(query, change);
    return formatEvents(page.changes.filter(isDue));
  };
  // A reader of the feed is not refused when clients have not read their answers: it waits.
  const makeWhenRoom = () => retryWhileOverloaded(Number.POSITIVE_INFINITY, makePiece);
  feed.join();
  try {
    yield `retry: ${RETRY_MS}\n\n`;
    let quietSinceMs = performance.now();
    while (!feed.isClosed) {
      signal.throwIfAborted();
      const quietMs = performance.now() - quietSinceMs;
      const piece = await feed.takeTurn(last, quietMsMax - quietMs, signal, makeWhenRoom);
      if (piece !== undefined && piece.length > 0) yield piece;
      // The client learns how far it is, even if its filter has left out everything.
      else if (performance.now() - quietSinceMs >= quietMsMax)
        yield wantsAll(query) ? ":\n\n" : `:\nid: ${last}\n\n`;
      else continue;
      quietSinceMs = performance.now();
    }
  } finally {
    feed.leave(signal);
  }
}

const wantsAll = ({ id, types }: ChangeQuery): boolean => id === undefined && types === undefined;
