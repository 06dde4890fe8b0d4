/**
 * GET /changes: a page of the journal as JSON, the rest of it as NDJSON, or server-sent events that follow it.
 * GET /changes/counts: how many there are.
 */

import { countChanges as count } from "../domain/change-count.ts";
import {
  BACKWARDS,
  type ChangePage,
  type ChangeQuery,
  isBackwards,
  isFiltered,
  type Period,
} from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { formatTime } from "../domain/time.ts";
import { within } from "../tick.ts";
import { JSON_TYPE, NDJSON_TYPES } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { answerPage, openPacker, VARY } from "./pack.ts";
import type { Exchange, Input } from "./exchange.ts";
import {
  type changeCountFields,
  type changeFields,
  EVENT_STREAM_TYPE,
  type followHeaders,
  type Values,
} from "./field.ts";
import { toChunk } from "./feed.ts";
import { answer, answerJson, requireRoomToAnswer } from "./answer.ts";
import { linkNext } from "./query.ts";
import { type Packer, retryWhileOverloaded, streamPages, toStream } from "./stream.ts";

const RETRY_MS = 2_000;
/**
 * Larger chunks are sent in pieces, so a client that stops reading holds little memory. Too small to count for a forced
 * GC: readers share a chunk.
 */
const PIECE_BYTES_MAX = 131_072;

export const CHANGE_FORMS = [JSON_TYPE, ...NDJSON_TYPES, EVENT_STREAM_TYPE] as const;

function requireForwards<Query extends Period>(query: Query): Query {
  if (isBackwards(query)) throw new Refusal("invalid_query", BACKWARDS);
  return query;
}

/** A client that reconnects sends its cursor in Last-Event-ID, which overrides `after`. */
export function toChangeQuery({
  query,
  headers,
}: Input<object, Values<typeof changeFields>, Values<typeof followHeaders>>): ChangeQuery {
  const { type: types, after, ...others } = requireForwards(query);
  return { ...others, types, after: headers["Last-Event-ID"] ?? after };
}

export function toCountQuery({ query }: Input<object, Values<typeof changeCountFields>>) {
  const { type: types, group, every: everyMs, ...others } = requireForwards(query);
  return { ...others, types, count: { group, everyMs } };
}

export async function listChanges(
  { query, form }: Input<object, ChangeQuery>,
  exchange: Exchange,
): Promise<Response> {
  const { service, isHead } = exchange;
  if (form === JSON_TYPE && !isHead) return listPage(exchange, query);
  // Read before the headers are sent, so a bad cursor gets an error status.
  const { newest } = await service.store.readChanges({ ...query, limit: 0 });
  const isPacked = NDJSON_TYPES.some((type) => type === form);
  const packer = isPacked ? openPacker(exchange) : undefined;
  const headers = {
    vary: VARY,
    "last-change": String(newest),
    "content-type": form,
    ...packer?.headers,
  };
  // No Link header: that would need a read of the page. A stream, because a string would set Content-Length.
  if (isHead) {
    packer?.hold(false);
    return answer(200, new ReadableStream(), headers);
  }
  if (isPacked) return answer(200, await streamLines(exchange, query, packer), headers);
  const events = toStream(exchange, (signal) => follow(exchange, query, signal), { isFeed: true });
  // nginx would buffer the events.
  return answer(200, events, { ...headers, "x-accel-buffering": "no" });
}

async function listPage(exchange: Exchange, query: ChangeQuery): Promise<Response> {
  const page = await readPage(exchange, query);
  const text = `[${page.changes.map(({ json }) => json).join(",")}]`;
  const link = linkNext(exchange, query.limit, page.hasMore ? page.last : undefined);
  const headers = { vary: VARY, ...link, "last-change": String(page.newest) };
  return answerPage(exchange, text, headers);
}

export async function countChanges(
  { query }: Input<object, ReturnType<typeof toCountQuery>>,
  exchange: Exchange,
): Promise<Response> {
  const { counts, next, newest } = await count(exchange.service.store, query);
  const shown = counts.map(({ startMs, by, batch, firstMs, lastMs, ...each }) =>
    Object.assign(
      { start: startMs === undefined ? undefined : formatTime(startMs), by, batch },
      each,
      { firstTime: formatTime(firstMs), lastTime: formatTime(lastMs) },
    ),
  );
  const link = linkNext(exchange, query.limit, next);
  return answerJson(exchange, shown, { ...link, "last-change": String(newest) });
}

const streamLines = (exchange: Exchange, query: ChangeQuery, packer: Packer | undefined) =>
  streamPages(
    exchange,
    query.after,
    async (after) => {
      const { changes, hasMore, last } = await readPage(exchange, { ...query, after });
      const text = changes.map(({ json }) => `${json}\n`).join("");
      return { text, next: hasMore ? last : undefined };
    },
    { packer },
  );

async function readPage(exchange: Exchange, query: ChangeQuery): Promise<ChangePage> {
  const page = await exchange.service.store.readChanges(query);
  const characters = page.changes.reduce((sum, { json }) => sum + json.length, 0);
  requireRoomToAnswer(exchange, characters);
  return page;
}

async function* follow(exchange: Exchange, query: ChangeQuery, signal: AbortSignal) {
  const { config, feed } = exchange.service;
  const wantsAll = !isFiltered(query);
  let last = query.after;
  /** Bytes already sent of the chunk after `last`: a large plant goes out in pieces. */
  let sent = 0;
  const makePiece = async (): Promise<Uint8Array> => {
    signal.throwIfAborted();
    exchange.reserve(0, ANSWERS_SHARE);
    const chunk = wantsAll
      ? await feed.read(last)
      : toChunk(last, await readPage(exchange, { ...query, after: last }));
    await feed.awaitTick();
    // Again: the readers before it hold their pieces now.
    exchange.reserve(0, ANSWERS_SHARE);
    const { events, changes } = chunk;
    const piece = events.subarray(sent, sent + PIECE_BYTES_MAX);
    sent += piece.length;
    // Cursor 0 moves with the oldest change. The next read must continue this chunk, or reject with changes_gone.
    if (last === 0 && changes[0] !== undefined) last = changes[0].seq - 1;
    // A chunk that is read again may end earlier than the one that the previous piece was cut from.
    if (sent >= events.length) [last, sent] = [chunk.last, sent - events.length];
    return piece;
  };
  // When the memory budget is spent, a feed reader waits instead of being refused.
  const makeWhenRoom = () => retryWhileOverloaded(Number.POSITIVE_INFINITY, makePiece);
  feed.join();
  try {
    yield `retry: ${RETRY_MS}\n\n`;
    let commentAtMs = performance.now() + config.commentSeconds * 1000;
    while (!feed.isClosed) {
      signal.throwIfAborted();
      const quietMs = commentAtMs - performance.now();
      let piece: string | Uint8Array = "";
      if (sent > 0 || last < feed.newest) piece = await makeWhenRoom();
      else if (quietMs > 0) await within(quietMs, feed.changed.promise, signal);
      // Heartbeat, with the cursor if a filter may have skipped changes. Never inside a half-sent event.
      if (piece.length === 0 && sent === 0 && quietMs <= 0)
        piece = wantsAll ? ":\n\n" : `:\nid: ${last}\n\n`;
      if (piece.length === 0) continue;
      yield piece;
      commentAtMs = performance.now() + config.commentSeconds * 1000;
    }
  } finally {
    feed.readers--;
  }
}
