/** GET /changes: a page of the journal as JSON, the rest of it as a stream, or events that go on. */

import {
  type ChangePage,
  type ChangeQuery,
  formatChange,
  isWanted,
  type Change,
} from "../domain/change.ts";
import { lengthOf, type Plant } from "../domain/plant.ts";
import { type Chunk, formatEvent } from "./feed.ts";
import { answer, type Exchange } from "./handle.ts";
import { answerStream, formatNextLink, retryWhileOverloaded, takeTick, VARY } from "./plants.ts";
import { parseChangeQuery } from "./query.ts";
import { chooseForm, JSON_TYPE, NDJSON_TYPES } from "./request-headers.ts";
import { answerText, requireRoomToAnswer } from "./stream.ts";

const EVENT_STREAM_TYPE = "text/event-stream";

/** How long a reader waits before it connects again. */
const RETRY_MS = 2_000;
/** To look through a page for nothing takes as long as to send so much. */
const LOOK_CHARACTERS = 100_000;

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
  const first = await readText(exchange, query, isFeed ? formatEvents : formatLines);
  const headers = toHeaders(first);
  if (!isFeed)
    return answerStream(
      exchange,
      form,
      (signal) => readRest(exchange, query, first, signal),
      headers,
    );
  return answerStream(exchange, form, (signal) => follow(exchange, query, first, signal), {
    ...headers,
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

type Format = (changes: readonly Change[]) => string;

const formatLines: Format = (changes) =>
  changes.map((change) => `${formatChange(change)}\n`).join("");
const formatEvents: Format = (changes) => changes.map(formatEvent).join("");

/** What of a page is sent. */
interface PageText extends Omit<ChangePage, "changes"> {
  text: string;
}

/** Looks twice for room, as others may have read meanwhile. The text counts as held until the client is sent it. */
async function readText(
  exchange: Exchange,
  query: ChangeQuery,
  format: Format,
  signal?: AbortSignal,
): Promise<PageText> {
  const { config, memory, store } = exchange.service;
  return retryWhileOverloaded(config.queueSecondsMax, async () => {
    signal?.throwIfAborted();
    memory.requireHalf(exchange.bytesHeld);
    const { changes, ...page } = await store.readChanges(query);
    memory.noteText(countCharacters(changes));
    memory.requireHalf(exchange.bytesHeld);
    const text = format(changes);
    exchange.release = memory.reserve(Buffer.byteLength(text));
    return { ...page, text };
  });
}

const countCharacters = (changes: readonly Change[]): number =>
  changes.reduce((sum, { plant, before }) => sum + countIn(plant) + countIn(before), 0);

const countIn = (plant: Plant | undefined): number => (plant === undefined ? 0 : lengthOf(plant));

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
    page = await readText(exchange, { ...query, after: page.last }, formatLines, signal);
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
  first: PageText,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const { config, feed, memory } = exchange.service;
  const quietMsMax = config.commentSeconds * 1000;
  // A reader of the feed is not refused when clients have not read their answers: it waits.
  const untilRoom = (): Promise<void> =>
    retryWhileOverloaded(Number.POSITIVE_INFINITY, async () => {
      signal.throwIfAborted();
      memory.requireHalf(exchange.bytesHeld);
    });
  feed.join();
  try {
    let { last, hasMore } = first;
    let owed = first.text.length || LOOK_CHARACTERS;
    yield `retry: ${RETRY_MS}\n\n${takeText(first)}`;
    let quietSinceMs = performance.now();
    while (!feed.isClosed) {
      signal.throwIfAborted();
      const chunk = hasMore ? undefined : feed.find(last);
      // It pays and waits before it has a text of its own, because that would not count meanwhile.
      if (chunk !== undefined) {
        const changes = findBehind(chunk, last, query);
        const share = changes.length / (chunk.changes.length || 1);
        await feed.pay(chunk.text.length * share, { isOwn: false });
        ({ last } = chunk);
        if (changes.length === 0) {
          await takeTick();
          continue;
        }
        await untilRoom();
        yield changes === chunk.changes ? chunk.text : formatEvents(changes);
      } else if (hasMore || feed.isBehind(last)) {
        await feed.pay(owed, { isOwn: true });
        await untilRoom();
        // A filter that matches little looks at much, and others want their share of the thread.
        await takeTick();
        const limit = feed.ownLimit;
        const page = await readText(
          exchange,
          { ...query, after: last, limit },
          formatEvents,
          signal,
        );
        ({ last, hasMore } = page);
        owed = page.text.length || LOOK_CHARACTERS;
        if (page.text === "") continue;
        yield takeText(page);
      } else {
        await feed.wait(quietSinceMs + quietMsMax - performance.now(), signal);
        if (performance.now() - quietSinceMs < quietMsMax) continue;
        // The client learns how far it is, even if its filter has left out everything.
        yield wantsAll(query) ? ":\n\n" : `:\nid: ${last}\n\n`;
      }
      quietSinceMs = performance.now();
    }
  } finally {
    feed.leave();
  }
}

const wantsAll = ({ id, types }: ChangeQuery): boolean => id === undefined && types === undefined;

function findBehind(
  { after, changes }: Chunk,
  last: number,
  query: ChangeQuery,
): readonly Change[] {
  if (wantsAll(query) && after === last) return changes;
  return changes.filter((change) => change.seq > last && isWanted(query, change));
}
