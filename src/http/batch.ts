/** POST /plants/batch: one result per plant. NDJSON is streamed in and out, in constant memory. */

import type { Writer } from "../domain/change.ts";
import { catalogue, Refusal, toRefusal } from "../domain/errors.ts";
import { describe, parseJson, parseNewPlant, type Plant } from "../domain/plant.ts";
import { ElementReader, type Line, LineReader } from "../format/records.ts";
import {
  countUnread,
  JSON_TYPE,
  NDJSON_TYPES,
  nextTick,
  readChunks,
  readText,
  requireOpen,
  requireType,
} from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange, Reader, Service } from "./exchange.ts";
import { discard, isClosing } from "./linger.ts";
import { answer, describeRefusal, requireRoomToAnswer } from "./handle.ts";
import { nameWriter, prefersMinimal } from "./query.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";

export const BATCH_TYPES = [...NDJSON_TYPES, JSON_TYPE];

/** Plants of one request in flight in the store: enough to fill a commit. */
const BLOCK_LENGTH_MAX = 512;
/** Memory per line in flight, however short the line is. */
const LINE_BYTES = 800;
/** Above this share of the budget, dropped lines count towards GC: 500 batches of 512 lines took 143 MB, not 286. */
const BESIDE_SHARE = 0.25;
/** Allowance for the id: a batch accepts the export of the largest plant that PUT accepts. */
const ID_BYTES_MAX = 64;

export const lineBytesMax = ({ bodyBytesMax }: Service["config"]): number =>
  bodyBytesMax + ID_BYTES_MAX;

export async function createPlants(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  service.rates.requireBatch(exchange.token);
  const writer = nameWriter(exchange);
  const type = requireType(request.headers, ...BATCH_TYPES);
  if (type !== JSON_TYPE) {
    exchange.reserve(countUnread(exchange), ANSWERS_SHARE);
    await requireOpen(request);
    const report = createReport("", "", "");
    report.isMinimal = prefersMinimal(request.headers.get("prefer"));
    const applied = report.isMinimal ? { "preference-applied": "return=minimal" } : {};
    const onUnread = (): void => void (report.isMinimal = true);
    const batch = { exchange, writer, report };
    const results = toStream(exchange, (signal) => createLines(batch, signal), { onUnread });
    return answer(200, results, { "content-type": type, ...applied });
  }
  const text = await readText(exchange);
  requireRoomToAnswer(exchange, text.length);
  exchange.reserve(ARRAY_COPIES * text.length);
  requireArray(text);
  service.budget.noteDropped(ARRAY_GROWTH * text.length);
  await requireOpen(request);
  const batch = { exchange, writer, report: createReport("[", ",", "]") };
  const results = toStream(exchange, (signal) =>
    createAll(batch, readArray(text, service), signal),
  );
  return answer(200, results);
}

/** Refused lines that a minimal report lists. */
const REFUSED_SHOWN_MAX = 1_000;

/**
 * Results are streamed as they arrive. A minimal report has only refused lines and counts, at the end: a client that
 * sends everything before it reads has no buffer for more.
 */
function createReport(open: string, between: string, close: string) {
  const counts = { created: 0, replayed: 0, refused: 0, complete: true };
  let texts: string[] = [];
  let isBegun = false;
  let refusedShown = 0;
  const report = {
    isMinimal: false,

    note(line: number, outcome: Outcome): void {
      const isRefused = outcome instanceof Refusal;
      counts[isRefused ? "refused" : outcome]++;
      const isShown = !report.isMinimal || (isRefused && ++refusedShown <= REFUSED_SHOWN_MAX);
      if (isShown) texts.push(formatResult(line, outcome));
    },

    /** The error that ended the batch. The status has been sent, so the error is the last result. */
    breakOff(line: number, refusal: Refusal): void {
      counts.complete = false;
      texts.push(formatResult(line, refusal));
    },

    take(): string {
      if (report.isMinimal || texts.length === 0) return "";
      const text = (isBegun ? between : open) + texts.join(between);
      isBegun = true;
      texts = [];
      return text;
    },

    end(): string {
      if (report.isMinimal) return `${texts.join("")}${JSON.stringify(counts)}\n`;
      return report.take() + (isBegun ? "" : open) + close;
    },
  };
  return report;
}

interface Batch {
  readonly exchange: Exchange;
  readonly writer: Writer;
  readonly report: ReturnType<typeof createReport>;
}

async function* createLines(batch: Batch, signal: AbortSignal) {
  const { exchange, report } = batch;
  const { request, service } = exchange;
  const reader = request.body?.getReader();
  if (reader === undefined) {
    yield report.end();
    return;
  }
  try {
    const chunks = reserveChunks(reader, exchange, signal);
    const blocks = new LineReader(lineBytesMax(service.config)).read(chunks, BLOCK_LENGTH_MAX);
    yield* createAll(batch, blocks, signal);
    // After an aborted batch the last result has been sent, but part of the body is unread. On a keep-alive
    // connection the runtime discards it.
    if (isClosing(exchange)) await discard(reader, service.budget);
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

async function* createAll(batch: Batch, blocks: AsyncIterable<Line[]>, signal: AbortSignal) {
  const { report } = batch;
  const { service, requestId, token } = batch.exchange;
  const { config, budget } = service;
  let lastLine = 0;
  try {
    for await (const lines of service.rates.pace(blocks, token, signal)) {
      signal.throwIfAborted();
      // Concurrent batches queue here, before parsing, while lines are short strings.
      const held = service.lines;
      const bytes = lines.length * LINE_BYTES;
      await retryWhileOverloaded(config.idleSecondsMax, async () => {
        signal.throwIfAborted();
        if (!held.hasRoom(bytes, held.bytesHeld)) throw new Refusal("overloaded");
        held.bytesHeld += bytes;
      });
      lastLine = lines.at(-1)?.number ?? lastLine;
      await createBlock(batch, lines).finally(() => (held.bytesHeld -= bytes));
      // Only under load: GC would slow down a batch that runs alone.
      if (budget.bytesHeld + held.bytesHeld > budget.bytesMax * BESIDE_SHARE)
        budget.noteDropped(bytes);
      // Refused lines await no I/O: without a tick they would starve other requests.
      await nextTick();
      const text = report.take();
      if (text !== "") yield text;
    }
  } catch (error) {
    const refusal = toRefusal(error);
    const { reason, cause } = refusal;
    service.log.info("batch_broken_off", { requestId, lastLine, reason, cause });
    report.breakOff(lastLine + 1, refusal);
  }
  const end = report.end();
  if (end !== "") yield end;
}

/** One result per line. The store gets all plants in one call, so they share a commit and keep their order. */
async function createBlock({ exchange, writer, report }: Batch, lines: readonly Line[]) {
  const { service, requestId } = exchange;
  const startedAtMs = performance.now();
  const parsed = lines.map((line) => parseLine(line));
  const plants = parsed.filter((plant): plant is Plant => !(plant instanceof Refusal));
  const stored = plants.length === 0 ? [] : await service.store.createPlants(plants, writer);
  const outcomes = stored.values();
  const durationMs = performance.now() - startedAtMs;
  const failed: Refusal[] = [];
  for (const [index, plant] of parsed.entries()) {
    const outcome = plant instanceof Refusal ? plant : (outcomes.next().value as Outcome);
    const status = outcome instanceof Refusal ? catalogue[outcome.reason].status : 200;
    service.metrics.countBatchLine(status);
    report.note((lines[index] as Line).number, outcome);
    if (outcome instanceof Refusal && status >= 500) failed.push(outcome);
  }
  const created = stored.filter((outcome) => outcome === "created").length;
  service.metrics.countCreates(durationMs, created);
  // One log line per block: a full disk fails every line.
  const [{ reason, cause } = {}] = failed;
  if (reason !== undefined)
    service.log.warn("batch_lines_failed", { requestId, reason, count: failed.length, cause });
}

type Outcome = Awaited<ReturnType<Service["store"]["createPlants"]>>[number];

function parseLine({ text }: Line): Plant | Refusal {
  try {
    return typeof text === "string" ? parseNewPlant(text) : text;
  } catch (error) {
    return toRefusal(error);
  }
}

function formatResult(line: number, outcome: Outcome): string {
  if (!(outcome instanceof Refusal))
    return `{"line":${line},"status":200${outcome === "replayed" ? ',"replayed":true' : ""}}\n`;
  return `${JSON.stringify({ line, ...describeRefusal(outcome) })}\n`;
}

/** Only validates. The parsed values are dropped at once: they take more memory than the text. */
function requireArray(text: string): void {
  const value = parseJson(text);
  if (!Array.isArray(value))
    throw new Refusal("invalid_plant", `body: expected an array, got ${describe(value)}`);
}

/** Bytes per character: a string takes up to 2, and its UTF-8 copy 1. */
const ARRAY_COPIES = 3;
/** Garbage of parsing, as a multiple of the text: about 100 bytes for a plant of 20. */
const ARRAY_GROWTH = 5;

/** The elements of a JSON array as raw text, numbered from 1. */
async function* readArray(text: string, { config }: Service): AsyncGenerator<Line[]> {
  const bytes = new TextEncoder().encode(text);
  const elements = new ElementReader(lineBytesMax(config)).read([bytes], BLOCK_LENGTH_MAX);
  let count = 0;
  for await (const block of elements)
    yield block.map((element) => ({ number: ++count, text: element.text }));
}

const NEWLINE = 10;
/** Memory of an unfinished line, as a multiple: a buffer that doubles, and its garbage. */
const BUFFER_GROWTH = 3;

/** Reserves memory for the unfinished line and for what the runtime may buffer of the body. */
async function* reserveChunks(reader: Reader, exchange: Exchange, signal: AbortSignal) {
  const { config } = exchange.service;
  const unread = countUnread(exchange);
  let unfinished = 0;
  for await (const chunk of readChunks(reader, () => config.readSecondsMax * 1000, signal)) {
    const newline = chunk.lastIndexOf(NEWLINE);
    const grown = newline === -1 ? unfinished + chunk.length : chunk.length - newline - 1;
    // A line over the limit is not buffered.
    unfinished = Math.min(grown, lineBytesMax(config));
    // A single line always fits, however small the budget.
    const most = Math.max(unfinished, config.bodyBytesTotalMax / 2);
    exchange.reserve(Math.min(unread + BUFFER_GROWTH * unfinished, most));
    yield chunk;
  }
}
