/** GET /changes: a page of the journal as JSON, the rest of it as a stream, or events that go on. */

import {
  type ChangePage,
  type ChangeQuery,
  formatChange,
  isWanted,
  type Change,
} from "../domain/change.ts";
import { type Chunk, formatEvent } from "./feed.ts";
import type { Exchange } from "./handle.ts";
import { answerStream, formatNextLink, retryWhileOverloaded, takeTick, VARY } from "./list.ts";
import { parseChangeQuery, parseChangeStreamQuery } from "./query.ts";
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
  if (form === JSON_TYPE || request.method === "HEAD") return answerPage(exchange);
  const isFeed = form === EVENT_STREAM_TYPE;
  const query = parseChangeStreamQuery(
    request.url,
    isFeed ? request.headers.get("last-event-id") : null,
  );
  // Read before anything is sent, so what cannot be read has a status of its own.
  const first = await readPage(exchange, query);
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

async function answerPage(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const query = parseChangeQuery(request.url);
  const page = await service.store.readChanges(query);
  const text = `[${page.changes.map(formatChange).join(",")}]`;
  requireRoomToAnswer(service, text.length);
  const headers = { ...VARY, ...toHeaders(page) };
  if (!page.hasMore) return answerText(exchange, text, headers);
  const link = formatNextLink(request, query, String(page.last));
  return answerText(exchange, text, { ...headers, link });
}

const toHeaders = ({ newest }: ChangePage): { readonly "last-change": string } => ({
  "last-change": String(newest),
});

async function readPage(
  exchange: Exchange,
  query: ChangeQuery,
  signal?: AbortSignal,
): Promise<ChangePage> {
  const { config, memory, store } = exchange.service;
  return retryWhileOverloaded(config.queueSecondsMax, () => {
    signal?.throwIfAborted();
    memory.requireHalf(exchange.bytesHeld);
    return store.readChanges(query);
  });
}

/** Up to the newest change. */
async function* readRest(
  exchange: Exchange,
  query: ChangeQuery,
  first: ChangePage,
  signal: AbortSignal,
): AsyncGenerator<string> {
  for (
    let page = first;
    ;
    page = await readPage(exchange, { ...query, after: page.last }, signal)
  ) {
    if (page.changes.length > 0)
      yield page.changes.map((change) => `${formatChange(change)}\n`).join("");
    if (!page.hasMore) return;
    await takeTick();
  }
}

/** Goes on until the client goes, its token is no longer good, or the service stops. */
async function* follow(
  exchange: Exchange,
  query: ChangeQuery,
  first: ChangePage,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const { config, feed, memory } = exchange.service;
  const quietMsMax = config.commentSeconds * 1000;
  feed.join();
  try {
    yield `retry: ${RETRY_MS}\n\n${formatEvents(first.changes)}`;
    let { last, hasMore } = first;
    let quietSinceMs = performance.now();
    while (!feed.hasEnded) {
      signal.throwIfAborted();
      const chunk = hasMore ? undefined : feed.find(last);
      const isOwn = hasMore || (chunk === undefined && feed.isBehind(last));
      let text: string;
      if (chunk !== undefined) {
        text = textBehind(chunk, last, query);
        ({ last } = chunk);
      } else if (isOwn) {
        const limit = feed.ownLimit;
        const page = await readPage(exchange, { ...query, after: last, limit }, signal);
        text = formatEvents(page.changes);
        ({ last, hasMore } = page);
      } else {
        await feed.wait(quietSinceMs + quietMsMax - performance.now(), signal);
        if (performance.now() - quietSinceMs < quietMsMax) continue;
        // The client learns how far it is, even if its filter has left out everything.
        text = wantsAll(query) ? ":\n\n" : `:\nid: ${last}\n\n`;
      }
      if (text === "") {
        // A filter that matches little looks at much, and others want their share of the thread.
        await feed.pay(isOwn ? LOOK_CHARACTERS : 0, { isOwn });
        await takeTick();
        continue;
      }
      await feed.pay(text.length, { isOwn });
      // A reader of the feed is not refused when clients have not read their answers: it waits.
      await retryWhileOverloaded(Number.POSITIVE_INFINITY, async () => {
        signal.throwIfAborted();
        memory.requireHalf(exchange.bytesHeld);
      });
      yield text;
      quietSinceMs = performance.now();
    }
  } finally {
    feed.leave();
  }
}

const formatEvents = (changes: readonly Change[]): string => changes.map(formatEvent).join("");

const wantsAll = ({ id, types }: ChangeQuery): boolean => id === undefined && types === undefined;

function textBehind({ after, changes, text }: Chunk, last: number, query: ChangeQuery): string {
  if (wantsAll(query) && after === last) return text;
  return formatEvents(changes.filter((change) => change.seq > last && isWanted(query, change)));
}
