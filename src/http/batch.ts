/** POST /plants/batch: one result per line. NDJSON is streamed in and out, in constant memory. */

import type { Writer } from "../domain/change.ts";
import type { Rehearsal, Rehearsed } from "../domain/decide.ts";
import { catalogue, describeRefusal, Refusal, toRefusal } from "../domain/errors.ts";
import { describe, parseJson } from "../domain/json.ts";
import { formatPlant, lengthOf, type Plant } from "../domain/plant.ts";
import { type Done, parseWrite, type PlantWrite, refuseLine } from "../domain/write.ts";
import { ElementReader, type Line, LineReader, recordBytesMaxOf } from "../format/records.ts";
import {
  countUnread,
  isPacked,
  JSON_TYPE,
  NDJSON_TYPES,
  nextTick,
  readChunks,
  readPacked,
  readText,
  requireExpectation,
  requireOpen,
} from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { acceptUpserts } from "./bulk.ts";
import { unpack } from "./unpack.ts";
import { type Endpoints, jsonAndLines, ok, operation } from "./endpoint.ts";
import type { Exchange, Input, Reader, Service } from "./exchange.ts";
import { batchFields, prefer, type Values } from "./field.ts";
import { discard, isClosing } from "./linger.ts";
import { answer, requireRoomToAnswer, answerText } from "./answer.ts";
import { accepted } from "./jobs.ts";
import { batchResults, ficus, monstera } from "./plant-shapes.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";
import { writeTool } from "./tools.ts";

const batchHeaders = prefer(
  "`return=minimal` answers lines with a summary, and `respond-async` with `upsert=true` answers 202 (RFC 7240). Other preferences are ignored.",
);

/** Plants of one request in flight in the store: enough to fill a commit. */
const BLOCK_LENGTH_MAX = 512;
/** Memory per line in flight, however short the line is. */
const LINE_BYTES = 800;
/** Plants that a dry run has changed so far, and that later lines see. Then it forgets the oldest. */
const REHEARSED_MAX = 10_000;
/** Characters of their names and tags. */
const REHEARSED_CHARACTERS_MAX = 4_194_304;
/** Lines of a dry run at a time: the stored plants that they concern may be far longer. */
const LOOK_UPS_MAX = 64;
/** A dry run reserves at most this share of the budget. */
const REHEARSED_SHARE = 0.5;
/** Results are sent in pieces of this length, or of one result. */
const PIECE_CHARACTERS = 65_536;
/** Memory per character of a plant. */
const CHARACTER_BYTES = 2;

type BatchInput = Input<object, Values<typeof batchFields>, Values<typeof batchHeaders>, undefined>;

type BatchHead = Pick<BatchInput, "query" | "headers">;

/** Lines of an atomic batch do nothing alone. */
function refuseContradiction({ query }: BatchHead): BatchInput["query"] {
  if (query.atomic && query.dry_run)
    throw new Refusal("invalid_query", "dry_run: expected nothing with atomic=true");
  return query;
}

/** A removal without upsert=true is a 404 when it is repeated, and a job repeats a write whose answer was lost. */
const isJob = ({ query, headers }: BatchHead): boolean =>
  query.upsert && !query.atomic && !query.dry_run && headers.Prefer.isAsync;

/** A dry run tells what is stored, and changes nothing that would betray the question. */
const needsRead = (head: BatchHead): boolean => head.query.dry_run || isJob(head);

async function writePlants(input: BatchInput, exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const { batch: name, upsert, atomic, dry_run: isDry } = input.query;
  const { form: type, headers: sent } = input;
  const isGzip = isPacked(request.headers);
  const isArray = type === JSON_TYPE;
  const report = isArray ? createReport("[", ",", "]") : createReport("", "", "");
  report.isMinimal = !isArray && sent.Prefer.isMinimal;
  report.isMixed = upsert || atomic;
  const applied = report.isMinimal ? { "preference-applied": "return=minimal" } : {};
  const headers = { "content-type": type, ...applied };
  const writer = exchange.leaseWriter(name);
  const rehearsal = isDry ? createRehearsal(exchange) : undefined;
  const blockLengthMax = isDry ? LOOK_UPS_MAX : BLOCK_LENGTH_MAX;
  const batch = { exchange, writer, rehearsal, blockLengthMax, isUpsert: upsert, report, isGzip };
  const isAccepted = isJob(input);
  if (!isArray && !atomic && !isAccepted) {
    requireExpectation(request);
    const unread = countUnread(exchange);
    // A small batch is never refused for large ones.
    if (unread > 0) exchange.reserve(unread, ANSWERS_SHARE);
    await requireOpen(request);
    if (!isDry) await exchange.requireFree(writer);
    const onUnread = (): void => void (report.isMinimal = true);
    const results = toStream(exchange, (signal) => writeLines(batch, signal), { onUnread });
    return answer(200, results, headers);
  }
  const text = await (isGzip ? readPacked(exchange) : readText(exchange));
  requireRoomToAnswer(exchange, text.length);
  exchange.reserve(TEXT_COPIES * text.length);
  if (isArray) requireArray(text);
  service.budget.noteDropped(TEXT_GROWTH * text.length);
  await requireOpen(request);
  if (isAccepted) return acceptJob(exchange, name, text, isArray);
  if (!isDry) await exchange.requireFree(writer);
  const blocks = readRecords(text, isArray, service, blockLengthMax);
  if (atomic) {
    const results = await writeTogether(batch, blocks);
    exchange.isStored = true;
    return answerText(exchange, results, headers);
  }
  return answer(
    200,
    toStream(exchange, (signal) => writeAll(batch, blocks, signal)),
  );
}

/** Refused lines that a minimal report lists. */
const REFUSED_SHOWN_MAX = 1_000;

/**
 * Results are streamed as they arrive. A minimal report has only refused lines and counts, at the end: a client that
 * sends everything before it reads has no buffer for more.
 */
function createReport(open: string, between: string, close: string) {
  const counts = { created: 0, replaced: 0, removed: 0, replayed: 0, refused: 0 };
  let complete = true;
  const texts: string[] = [];
  let isBegun = false;
  let refusedShown = 0;
  /** A batch that only creates plants leaves out what it cannot do. */
  const describeCounts = (): object => {
    const { replaced, removed, ...others } = counts;
    const isMixed = report.isMixed || replaced + removed > 0;
    return { ...(isMixed ? counts : others), complete };
  };
  const report = {
    isMinimal: false,
    /** Lines may do more than create. */
    isMixed: false,

    note(line: number, outcome: Outcome, now?: Plant): void {
      const isRefused = outcome instanceof Refusal;
      counts[isRefused ? "refused" : outcome]++;
      const isShown = !report.isMinimal || (isRefused && ++refusedShown <= REFUSED_SHOWN_MAX);
      if (isShown) texts.push(formatResult(line, outcome, now));
    },

    /** The error that ended the batch. The status has been sent, so the error is the last result. */
    breakOff(line: number, refusal: Refusal): void {
      complete = false;
      texts.push(formatResult(line, refusal));
    },

    /** The next piece; empty if there is none. */
    take(charactersMax = PIECE_CHARACTERS): string {
      if (report.isMinimal || texts.length === 0) return "";
      let [count, characters] = [0, 0];
      while (count < texts.length && characters < charactersMax)
        characters += (texts[count++] as string).length;
      const text = (isBegun ? between : open) + texts.splice(0, count).join(between);
      isBegun = true;
      return text;
    },

    end(): string {
      if (report.isMinimal) return `${texts.join("")}${JSON.stringify(describeCounts())}\n`;
      return report.take(Number.POSITIVE_INFINITY) + (isBegun ? "" : open) + close;
    },
  };
  return report;
}

interface Batch {
  readonly exchange: Exchange;
  readonly writer: Writer;
  /** Of a dry run. */
  readonly rehearsal: ReturnType<typeof createRehearsal> | undefined;
  readonly blockLengthMax: number;
  readonly isUpsert: boolean;
  readonly report: ReturnType<typeof createReport>;
  readonly isGzip: boolean;
}

/** Answers what lines would do, and holds the memory of what they would leave and of what it shows. */
function createRehearsal(exchange: Exchange) {
  const earlier: Rehearsed = new Map();
  const rehearsal = {
    bytesHeld: 0,

    async run(writes: readonly PlantWrite[], writer: Writer): Promise<readonly Rehearsal[]> {
      const { queueSecondsMax } = exchange.service.config;
      const rehearse = () => exchange.store.rehearse(writes, writer, earlier);
      const rehearsed = await retryWhileOverloaded(queueSecondsMax, rehearse);
      let characters = sumLengths(earlier.values());
      for (const [id, plant] of earlier) {
        if (earlier.size <= REHEARSED_MAX && characters <= REHEARSED_CHARACTERS_MAX) break;
        earlier.delete(id);
        characters -= lengthOf(plant);
      }
      characters += sumLengths(rehearsed.map(({ now }) => now));
      // 64 large plants may exceed the budget. They are in memory already, and a dry run fits beside small batches.
      const bytes = Math.min(
        earlier.size * LINE_BYTES + CHARACTER_BYTES * characters,
        exchange.service.budget.bytesMax * REHEARSED_SHARE,
      );
      exchange.reserve(exchange.bytesKept - rehearsal.bytesHeld + bytes);
      rehearsal.bytesHeld = bytes;
      return rehearsed;
    },
  };
  return rehearsal;
}

function sumLengths(plants: Iterable<Plant | undefined>): number {
  let characters = 0;
  for (const plant of plants) characters += lengthOf(plant);
  return characters;
}

async function* writeLines(batch: Batch, signal: AbortSignal) {
  const { exchange, report } = batch;
  const { request, service } = exchange;
  const reader = request.body?.getReader();
  if (reader === undefined) {
    yield report.end();
    return;
  }
  try {
    const chunks = reserveChunks(reader, batch, signal);
    const lines = new LineReader(recordBytesMaxOf(service.config));
    const blocks = lines.read(chunks, batch.blockLengthMax);
    yield* writeAll(batch, whileConnected(blocks, reader, exchange), signal);
    // After an aborted batch the last result has been sent, but part of the body is unread. On a keep-alive
    // connection the runtime discards it.
    if (isClosing(exchange)) await discard(reader, service);
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/**
 * The runtime does not notice that a client leaves while it holds back the rest of a body, and what has arrived may be the
 * work of minutes. The kernel knows: a closed connection has no address.
 */
async function* whileConnected(
  blocks: AsyncIterable<Line[]>,
  reader: Reader,
  { request, service }: Exchange,
): AsyncGenerator<Line[]> {
  for await (const block of blocks) {
    if (service.addressOf(request) === undefined) {
      // The runtime looks at the connection again when what it has buffered is read, and cancels the answer.
      for await (const _ of readChunks(reader, () => service.config.readSecondsMax * 1000));
      throw new Refusal("body_incomplete");
    }
    yield block;
  }
}

async function* writeAll(batch: Batch, blocks: AsyncIterable<Line[]>, signal: AbortSignal) {
  const { report } = batch;
  const { service, ids, token } = batch.exchange;
  let lastLine = 0;
  try {
    for await (const lines of service.rates.pace(blocks, token, signal)) {
      signal.throwIfAborted();
      await holdLines(service, lines.length, signal, async () => {
        lastLine = lines.at(-1)?.number ?? lastLine;
        await writeBlock(batch, lines);
      });
      // Refused lines await no I/O: without a tick they would starve other requests.
      await nextTick();
      for (let text = report.take(); text !== ""; text = report.take()) yield text;
    }
  } catch (error) {
    const refusal = toRefusal(error);
    const { reason, cause } = refusal;
    service.log.info("batch_broken_off", { ...ids, lastLine, reason, cause });
    report.breakOff(lastLine + 1, refusal);
  }
  const end = report.end();
  if (end !== "") yield end;
}

/** Concurrent batches queue here, before parsing, while lines are short strings. */
async function holdLines<Result>(
  { config, budget, lines }: Service,
  count: number,
  signal: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  const bytes = count * LINE_BYTES;
  await retryWhileOverloaded(config.idleSecondsMax, async () => {
    signal.throwIfAborted();
    if (!lines.hasRoom(bytes, lines.bytesHeld)) throw new Refusal("overloaded");
    lines.bytesHeld += bytes;
  });
  try {
    return await work();
  } finally {
    lines.bytesHeld -= bytes;
    budget.noteGarbage(bytes, lines.bytesHeld);
  }
}

/** One result per line. The store gets all writes in one call, so they share a commit and keep their order. */
async function writeBlock(batch: Batch, lines: readonly Line[]): Promise<void> {
  const { exchange, writer, rehearsal, isUpsert, report } = batch;
  const { service, ids } = exchange;
  const startedAtMs = performance.now();
  const parsed = lines.map((line) => parseLine(line, isUpsert));
  const writes = parsed.filter((write): write is PlantWrite => !(write instanceof Refusal));
  const rehearsed = await rehearsal?.run(writes, writer);
  const shown = rehearsed?.values();
  const stored =
    rehearsed?.map(({ outcome }) => outcome) ??
    (writes.length === 0 ? [] : await exchange.store.writePlants(writes, writer));
  const outcomes = stored.values();
  const durationMs = performance.now() - startedAtMs;
  const failed: Refusal[] = [];
  for (const [index, write] of parsed.entries()) {
    const isRead = !(write instanceof Refusal);
    const outcome = isRead ? (outcomes.next().value as Outcome) : write;
    const now = isRead ? shown?.next().value?.now : undefined;
    const status = outcome instanceof Refusal ? catalogue[outcome.reason].status : 200;
    service.metrics.countBatchLine(status);
    report.note((lines[index] as Line).number, outcome, now);
    if (outcome instanceof Refusal && status >= 500) failed.push(outcome);
  }
  const created = stored.filter((outcome) => outcome === "created").length;
  if (rehearsal === undefined) service.metrics.countCreates(durationMs, created);
  // One log line per block: a full disk fails every line.
  const [{ reason, cause } = {}] = failed;
  if (reason !== undefined)
    service.log.warn("batch_lines_failed", { ...ids, reason, count: failed.length, cause });
}

/** Resolves to the results of an atomic batch. Rejects with the refusal of its first line that failed. */
async function writeTogether(batch: Batch, blocks: AsyncIterable<Line[]>): Promise<string> {
  const { exchange, writer, isUpsert, report } = batch;
  const { request, service, token, startedAtMs } = exchange;
  const { signal } = request;
  const lines: Line[] = [];
  for await (const block of service.rates.pace(blocks, token, signal)) {
    lines.push(...block);
    await nextTick();
    signal.throwIfAborted();
  }
  const outcomes = await holdLines(service, lines.length, signal, () => {
    const writes: PlantWrite[] = [];
    let refusal: Refusal | undefined;
    for (const line of lines) {
      const write = parseLine(line, isUpsert);
      if (write instanceof Refusal) {
        refusal = refuseLine(line.number, write);
        break;
      }
      writes.push({ ...write, line: line.number });
    }
    return retryWhileOverloaded(service.config.queueSecondsMax, () =>
      exchange.store.writeAtomic(writes, writer, refusal),
    );
  });
  for (const [index, outcome] of outcomes.entries()) {
    service.metrics.countBatchLine(200);
    report.note((lines[index] as Line).number, outcome);
  }
  const created = outcomes.filter((outcome) => outcome === "created").length;
  service.metrics.countCreates(performance.now() - startedAtMs, created);
  return report.end();
}

/** No client reads results of lines, so one that is wrong refuses the request. */
async function acceptJob(
  exchange: Exchange,
  name: string | undefined,
  text: string,
  isArray: boolean,
): Promise<Response> {
  const { service } = exchange;
  // Parsed block by block, when it is written: all writes together take more memory than their text.
  const read = async function* () {
    for await (const lines of readRecords(text, isArray, service, BLOCK_LENGTH_MAX)) {
      yield lines.map((line) => {
        const write = parseLine(line, true);
        if (write instanceof Refusal) throw refuseLine(line.number, write);
        return write;
      });
      await nextTick();
    }
  };
  for await (const _ of read());
  exchange.reserve(TEXT_COPIES * text.length + BLOCK_LENGTH_MAX * LINE_BYTES);
  const digest = new Bun.CryptoHasher("sha256").update(text).digest("hex");
  return acceptUpserts(exchange, name, digest, read);
}

type Outcome = Done | Refusal;

function parseLine({ text }: Line, isUpsert: boolean): PlantWrite | Refusal {
  try {
    return typeof text === "string" ? parseWrite(text, isUpsert) : text;
  } catch (error) {
    return toRefusal(error);
  }
}

function formatResult(line: number, outcome: Outcome, now?: Plant): string {
  if (outcome === "created") return `{"line":${line},"status":200}\n`;
  if (!(outcome instanceof Refusal)) {
    const shown = now === undefined ? "" : `,"now":${formatPlant(now)}`;
    return `{"line":${line},"status":200,"${outcome}":true${shown}}\n`;
  }
  return `${JSON.stringify({ line, ...describeRefusal(outcome) })}\n`;
}

/** Only validates. The parsed values are dropped at once: they take more memory than the text. */
function requireArray(text: string): void {
  const value = parseJson(text);
  if (!Array.isArray(value))
    throw new Refusal("invalid_plant", `body: expected an array, got ${describe(value)}`);
}

/** Bytes per character: a string takes up to 2, and its UTF-8 copy 1. */
const TEXT_COPIES = 3;
/** Garbage of parsing, as a multiple of the text: about 100 bytes for a plant of 20. */
const TEXT_GROWTH = 5;

/** The elements of a JSON array as raw text, numbered from 1; or lines. */
async function* readRecords(
  text: string,
  isArray: boolean,
  { config }: Service,
  blockLengthMax: number,
): AsyncGenerator<Line[]> {
  const bytes = new TextEncoder().encode(text);
  const Reader = isArray ? ElementReader : LineReader;
  let count = 0;
  for await (const block of new Reader(recordBytesMaxOf(config)).read([bytes], blockLengthMax))
    yield isArray ? block.map((line) => ({ number: ++count, text: line.text })) : block;
}

const NEWLINE = 10;
/** Memory of an unfinished line, as a multiple: a buffer that doubles, and its garbage. */
const BUFFER_GROWTH = 3;

/** Reserves memory for the unfinished line and for what the runtime may buffer of the body. */
async function* reserveChunks(
  reader: Reader,
  { exchange, rehearsal, isGzip }: Batch,
  signal: AbortSignal,
) {
  const { config } = exchange.service;
  const sent = readChunks(reader, () => config.readSecondsMax * 1000, signal);
  const chunks = isGzip ? unpack(sent, exchange.service) : sent;
  const unread = countUnread(exchange);
  let unfinished = 0;
  for await (const chunk of chunks) {
    const newline = chunk.lastIndexOf(NEWLINE);
    const grown = newline === -1 ? unfinished + chunk.length : chunk.length - newline - 1;
    // A line over the limit is not buffered.
    unfinished = Math.min(grown, recordBytesMaxOf(config));
    // A single line always fits, however small the budget.
    const most = Math.max(unfinished, config.bodyBytesTotalMax / 2);
    if (unread > 0)
      exchange.reserve(
        Math.min(unread + BUFFER_GROWTH * unfinished, most) + (rehearsal?.bytesHeld ?? 0),
      );
    yield chunk;
  }
}

export const batchOperations: Endpoints = {
  createPlants: operation({
    at: "POST /plants/batch",
    scopes: ["plants:write"],
    kind: "batch",
    summary: "Write many plants",
    description: (config) =>
      "Accepts an array of plants and answers with an array of results, or accepts one plant per line and answers with one " +
      "result per line, while the lines are still being sent. The body may be sent in gzip (`Content-Encoding`). Results are in the order of the plants. " +
      "Each plant succeeds or fails alone, as a single create would. The whole batch is safe to send again. " +
      "With `upsert=true`, a plant whose id is taken replaces the stored one, and an equal one changes nothing. " +
      '`{"id": 7, "removed": true}` removes a plant. If there is no such plant, the line gets a 404, or with `upsert=true` changes nothing. ' +
      'With `upsert=true` or `removed`, a line may have `"ifMatch"`, with the meaning of the header `If-Match`. ' +
      "With `atomic=true` the whole batch is one transaction, no larger than one body: " +
      "either every line succeeds, or nothing is stored, and the answer is the error of the first line that failed, " +
      "with a message that begins with `line`, its number and a colon. If the answer was lost, send it again. " +
      "With `upsert=true` and `Prefer: respond-async`, a batch no larger than one body is a job that the service finishes without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. It also needs `plants:read`. If one line is not a plant, all are refused, with such a message. " +
      `With \`dry_run=true\` nothing is changed: each line gets the result that it would have, with the plant that it would replace or remove as \`now\`. Limits of the whole store, such as a full disk, are not checked. A line sees what the lines before it would do, as far as the last ${REHEARSED_MAX} plants that they would change, with ${REHEARSED_CHARACTERS_MAX} characters. It also needs \`plants:read\`, is no job, and refuses \`atomic=true\`. ` +
      `Limits: ${config.bodyBytesMax} bytes per array; any number of lines, ${recordBytesMaxOf(config)} bytes per line, ` +
      `${config.readSecondsMax} s between two chunks. ` +
      `A client that sends everything before it reads must send \`Prefer: return=minimal\` with its lines. It gets the results of the first ${REFUSED_SHOWN_MAX} refused lines ` +
      'and then `{"created":2,"replayed":0,"refused":1,"complete":true}` as the last line, with `replaced` and `removed` if lines can do that. `complete` is false if the lines could not be read to their end. ' +
      `Without that header, read the results while you send: the service waits ${config.idleSecondsMax / 2} s for a client that does not read, then stores the rest and ends the answer in the same way. ` +
      "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
    query: batchFields,
    headers: batchHeaders,
    refine: refuseContradiction,
    also: { scopes: ["plants:read"], when: needsRead },
    body: {
      accepts: jsonAndLines("BatchLine", [monstera, ficus]),
      types: [...NDJSON_TYPES, JSON_TYPE],
      codings: "gzip, identity",
    },
    answers: {
      ...ok(
        "A result for each line.",
        jsonAndLines("BatchResult", batchResults),
        "Preference-Applied",
      ),
      ...accepted,
    },
    fails: ["BadPlant", "PlantNotFound", "PreconditionFailed", "BatchConflict"],
    run: writePlants,
    tool: writeTool,
  }),
};
