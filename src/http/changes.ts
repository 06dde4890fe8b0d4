/**
 * GET /changes: a page of the journal as JSON, the rest of it as NDJSON, or server-sent events that follow it.
 * GET /changes/counts: how many there are.
 */

import { countChanges } from "../domain/change-count.ts";
import {
  BACKWARDS,
  type ChangePage,
  type ChangeQuery,
  isBackwards,
  isFiltered,
  type Period,
} from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { quoteIds } from "../domain/json.ts";
import { formatTime } from "../domain/time.ts";
import { within } from "../tick.ts";
import { JSON_TYPE, NDJSON_TYPES } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { answerPage, openPacker, VARY } from "./pack.ts";
import { type Endpoints, json, jsonAndLines, ok, operation } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import {
  changeCountFields,
  changeFields,
  changeStreamFields,
  EVENT_STREAM_TYPE,
  followHeaders,
  idArgument,
  limitTo,
  toArgument,
} from "./field.ts";
import { toChunk } from "./feed.ts";
import { answer, answerJson, requireRoomToAnswer } from "./answer.ts";
import { Change, ChangeCount, created } from "./plant-shapes.ts";
import { linkNext } from "./query.ts";
import { integer, list, object, text } from "./shape.ts";
import { type Packer, retryWhileOverloaded, streamPages, toStream } from "./stream.ts";
import {
  calling,
  ENTRIES_MAX,
  NEXT,
  nextMember,
  PAGE_CHARACTERS_MAX,
  SEARCH_MS_MAX,
} from "./tools.ts";

const RETRY_MS = 2_000;
/**
 * Larger chunks are sent in parts, so a client that stops reading holds little memory. Too small to count for a forced
 * GC: readers share a chunk.
 */
const PART_BYTES_MAX = 131_072;

const CHANGE_FORMS = [JSON_TYPE, ...NDJSON_TYPES, EVENT_STREAM_TYPE] as const;

function requireForwards<Query extends Period>(query: Query): Query {
  if (isBackwards(query)) throw new Refusal("invalid_query", BACKWARDS);
  return query;
}

async function listChanges(
  { query, form }: Input<object, ChangeQuery>,
  exchange: Exchange,
): Promise<Response> {
  const { isHead } = exchange;
  if (form === JSON_TYPE && !isHead) return listPage(exchange, query);
  // Read before the headers are sent, so a bad cursor gets an error status.
  const { newest } = await exchange.store.readChanges({ ...query, limit: 0 });
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
  const body = `[${page.changes.map((change) => change.json).join(",")}]`;
  const link = linkNext(exchange, query.limit, page.hasMore ? page.last : undefined);
  const headers = { vary: VARY, ...link, "last-change": String(page.newest) };
  return answerPage(exchange, body, headers);
}

const streamLines = (exchange: Exchange, query: ChangeQuery, packer: Packer | undefined) =>
  streamPages(
    exchange,
    query.after,
    async (after) => {
      const { changes, hasMore, last } = await readPage(exchange, { ...query, after });
      const lines = changes.map((change) => `${change.json}\n`).join("");
      return { text: lines, next: hasMore ? last : undefined };
    },
    { packer },
  );

async function readPage(exchange: Exchange, query: ChangeQuery): Promise<ChangePage> {
  const page = await exchange.store.readChanges(query);
  const characters = page.changes.reduce((sum, change) => sum + change.json.length, 0);
  requireRoomToAnswer(exchange, characters);
  return page;
}

async function* follow(exchange: Exchange, query: ChangeQuery, signal: AbortSignal) {
  const { config, feed } = exchange.service;
  const readShared = isFiltered(query) ? undefined : feed.findSharedRead(exchange.store);
  let last = query.after;
  /** Bytes already sent of the chunk after `last`: a large plant goes out in parts. */
  let sent = 0;
  const makePart = async (): Promise<Uint8Array> => {
    signal.throwIfAborted();
    exchange.reserve(0, ANSWERS_SHARE);
    const chunk =
      readShared === undefined
        ? toChunk(last, await readPage(exchange, { ...query, after: last }))
        : await readShared(last);
    await feed.awaitTick();
    // Again: the readers before it hold their parts now.
    exchange.reserve(0, ANSWERS_SHARE);
    const { events, changes } = chunk;
    const part = events.subarray(sent, sent + PART_BYTES_MAX);
    sent += part.length;
    // Cursor 0 moves with the oldest change. The next read must continue this chunk, or reject with changes_gone.
    if (last === 0 && changes[0] !== undefined) last = changes[0].seq - 1;
    // A chunk that is read again may end earlier than the one that the previous part was cut from.
    if (sent >= events.length) [last, sent] = [chunk.last, sent - events.length];
    return part;
  };
  // When the memory budget is spent, a feed reader waits instead of being refused.
  const makeWhenRoom = () => retryWhileOverloaded(Number.POSITIVE_INFINITY, makePart);
  feed.join();
  try {
    yield `retry: ${RETRY_MS}\n\n`;
    let commentAtMs = performance.now() + config.commentSeconds * 1000;
    while (!feed.isClosed) {
      signal.throwIfAborted();
      const quietMs = commentAtMs - performance.now();
      let part: string | Uint8Array = "";
      if (sent > 0 || last < feed.newest) part = await makeWhenRoom();
      else if (quietMs > 0) await within(quietMs, feed.changed.promise, signal);
      // Heartbeat, with the cursor if changes may have been skipped. Never inside a half-sent event.
      if (part.length === 0 && sent === 0 && quietMs <= 0)
        part = readShared === undefined ? `:\nid: ${last}\n\n` : ":\n\n";
      if (part.length === 0) continue;
      yield part;
      commentAtMs = performance.now() + config.commentSeconds * 1000;
    }
  } finally {
    feed.readers--;
  }
}

async function readHistory(
  { store }: Exchange,
  query: Readonly<{ id: bigint; after: number; limit: number }>,
): Promise<string> {
  const endsAtMs = performance.now() + SEARCH_MS_MAX;
  const shown: string[] = [];
  let characters = 0;
  const finish = (next?: number): string =>
    `{"changes":[${shown.join(",")}]${next === undefined ? "" : `,"next":${next}`}}`;
  for (let { after } = query; ;) {
    const limit = query.limit - shown.length;
    const page = await store.readChanges({ ...query, after, limit });
    for (const change of page.changes) {
      characters += change.json.length;
      if (characters > PAGE_CHARACTERS_MAX && shown.length > 0) return finish(after);
      shown.push(quoteIds(change.json));
      after = change.seq;
    }
    if (!page.hasMore) return finish();
    after = page.last;
    if (shown.length === query.limit || performance.now() > endsAtMs) return finish(after);
  }
}

export const changeOperations: Endpoints = {
  listChanges: operation({
    at: "GET /changes",
    scopes: ["plants:read"],
    kind: "other",
    summary: "List or follow the changes",
    description: ({ changesDays }) =>
      "Every plant that was created (the console says added), changed (in the API `replaced`) or removed (the console says deleted), once, in commit order: after a number was read, no smaller one " +
      "appears. A page is an array; if there are more, the next page is in the `Link` header. With " +
      "`Accept: application/x-ndjson` the rest is streamed, without a `limit`. With `Accept: text/event-stream` " +
      "events follow the journal: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
      "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
      `Changes are kept for ${changesDays} days. If few of many changes match, a page may end early or be empty, with a next link.`,
    query: changeFields,
    streamQuery: changeStreamFields,
    headers: followHeaders,
    forms: CHANGE_FORMS,
    // A client that reconnects sends its cursor in Last-Event-ID, which overrides `after`.
    refine: ({ query, headers }): ChangeQuery => {
      const { type: types, after, ...others } = requireForwards(query);
      return { ...others, types, after: headers["Last-Event-ID"] ?? after };
    },
    answers: ok(
      "The changes.",
      {
        ...jsonAndLines("Change", [created, Change.example]),
        [EVENT_STREAM_TYPE]: text(
          `id: ${created.seq}\nevent: created\ndata: ${JSON.stringify(created)}\n\n`,
        ),
      },
      "Link",
      "Last-Change",
    ),
    fails: ["BadQuery", "ChangesGone"],
    run: listChanges,
    tool: {
      name: "plant_history",
      title: "History of a plant",
      description: `The changes of a plant, oldest first: when, by which token, and the plant before and after. ${NEXT}`,
      output: object({ changes: list(Change), next: { ...nextMember, schema: integer().schema } }),
      ...calling(
        {
          id: idArgument,
          limit: toArgument(limitTo("Changes on a page.", ENTRIES_MAX)),
          after: toArgument(changeFields.after),
        },
        readHistory,
      ),
    },
  }),
  countChanges: operation({
    at: "GET /changes/counts",
    scopes: ["plants:read"],
    kind: "other",
    summary: "Count the changes by token, batch and time",
    description:
      "How many plants were created, changed and removed: per token, per batch and per interval, as `group` and `every` say. " +
      "Counted from the newest change back. A page ends when it has `limit` groups, or after about a second; then it has a next link. " +
      "A group may be on several pages: add up its counts. The group with the newest change is first.",
    query: changeCountFields,
    refine: ({ query }) => {
      const { type: types, group, every: everyMs, ...others } = requireForwards(query);
      return { ...others, types, count: { group, everyMs } };
    },
    answers: ok("The counts of each group.", json(list(ChangeCount)), "Link", "Last-Change"),
    fails: ["BadQuery", "ChangesGone"],
    run: async ({ query }, exchange) => {
      const { counts, next: after, newest } = await countChanges(exchange.store, query);
      const shown = counts.map(({ startMs, by, batch, firstMs, lastMs, ...each }) =>
        Object.assign(
          { start: startMs === undefined ? undefined : formatTime(startMs), by, batch },
          each,
          { firstTime: formatTime(firstMs), lastTime: formatTime(lastMs) },
        ),
      );
      const link = linkNext(exchange, query.limit, after);
      return answerJson(exchange, shown, { ...link, "last-change": String(newest) });
    },
  }),
};
