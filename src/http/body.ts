/** Reading a body, within bounds of size and time. */

import { Refusal } from "../domain/errors.ts";
import { Bytes, decodeUtf8 } from "../format/records.ts";
import { endOfTick, within } from "../tick.ts";
import { unpack } from "./unpack.ts";
import type { Exchange, Reader } from "./exchange.ts";

export const JSON_TYPE = "application/json";
/** One format with three names; the client gets the name it asked for. */
export const NDJSON_TYPES = [
  "application/x-ndjson",
  "application/ndjson",
  "application/jsonl",
] as const;

/** Returns the body's media type. Throws a Refusal unless it is one of these, in UTF-8 and without a coding. */
export function requireType(headers: Headers, allowed: readonly string[]): string {
  const type = requireMediaType(headers, allowed);
  if (encodingOf(headers) !== IDENTITY) throw new Refusal("unsupported_encoding");
  return type;
}

const IDENTITY = "identity";
const encodingOf = (headers: Headers): string =>
  headers.get("content-encoding")?.trim().toLowerCase() ?? IDENTITY;

/** Whether a body is in gzip. Throws a Refusal if it has another coding, or several. */
export function isPacked(headers: Headers): boolean {
  const encoding = encodingOf(headers);
  if (encoding === "gzip" || encoding === "x-gzip") return true;
  if (encoding === IDENTITY) return false;
  const message = "The body must be sent in gzip, or without a content encoding.";
  throw new Refusal("unsupported_encoding", message);
}

export function requireMediaType(headers: Headers, allowed: readonly string[]): string {
  const contentType = headers.get("content-type") ?? "";
  const type = contentType === allowed[0] ? contentType : findUtf8Type(contentType, allowed);
  if (type === undefined)
    throw new Refusal(
      "unsupported_media_type",
      `The body must be declared as ${allowed.join(" or ")}, in UTF-8.`,
    );
  return type;
}

/** Any media-type parameter except a charset other than UTF-8; RFC 9110, section 5.6.6. It may be empty. */
const PARAMETER =
  /^(?:charset=(?:utf-8|"utf-8")|(?!charset=)[!#$%&'*+.^_`|~0-9a-z-]+=(?:[!#$%&'*+.^_`|~0-9a-z-]+|"(?:[^"\\]|\\.)*"))?$/;

function findUtf8Type(contentType: string, allowed: readonly string[]): string | undefined {
  const parts = contentType.toLowerCase().split(";");
  const [type = "", ...parameters] = parts.map((part) => part.trim());
  const isUtf8 = parameters.every((each) => PARAMETER.test(each));
  return isUtf8 ? allowed.find((each) => each === type) : undefined;
}

/** Smaller bodies are bounded by the number of connections, so they are served while large ones are refused. */
const COUNTED_BYTES_MIN = 1_024;

/** The runtime buffers up to this much of a body before the service reads it. */
export const UNREAD_BYTES_MAX = 1_572_864;

/** Bytes that the runtime may buffer of an unread body. One body fits, however small the budget. */
export function countUnread({ request, service }: Exchange): number {
  const fallback = request.headers.has("transfer-encoding") ? Number.POSITIVE_INFINITY : 0;
  const length = findLength(request) ?? fallback;
  if (length < COUNTED_BYTES_MIN) return 0;
  return Math.min(length, UNREAD_BYTES_MAX, service.budget.bytesMax / 2);
}

/** The declared length. The runtime joins equal ones with a comma, and refuses different ones. */
export function findLength({ headers }: Request): number | undefined {
  const declared = headers.get("content-length");
  return declared === null ? undefined : Number.parseInt(declared, 10);
}

/** Larger bodies are read in chunks, so a slow client can be told from a stalled one. */
export const WHOLE_BYTES_MAX = 65_536;
/** Reading chunks that have arrived never yields, so a tick between them lets other requests run. */
const CHUNKS_PER_TICK = 8;
/** A buffer for a body of unknown length doubles. */
const BUFFER_GROWTH = 2;
/** Bytes of a body of unknown length that the runtime may read from the socket in one tick, before the service sees them. */
const ARRIVING_BYTES_MAX = 262_144;

/**
 * The value is case-insensitive (RFC 9110, section 10.1.1), but the runtime answers it in lower case alone. Another
 * client would wait for its 100 until the body is too slow.
 */
const waitsInVain = ({ headers }: Request): boolean =>
  (headers.get("expect") ?? RUNTIME_EXPECTATION) !== RUNTIME_EXPECTATION;

const RUNTIME_EXPECTATION = "100-continue";

/** Throws a Refusal. For a body that may have arrived only in part, or not at all. */
export function requireExpectation(request: Request): void {
  if (waitsInVain(request)) throw new Refusal("expectation_failed");
}

/** The text of the body: synchronously if it has arrived. */
export function readText(exchange: Exchange): string | Promise<string> {
  const { request } = exchange;
  const length = findLength(request);
  requireLength(length ?? 0, exchange);
  // Small bodies are read in one piece: a loop over chunks is far slower.
  if (length === undefined || length > WHOLE_BYTES_MAX)
    return readLarge(exchange, length).then((bytes) => takeText(exchange, bytes), rethrowAbort);
  const bytes = request.bytes();
  const arrived = Bun.peek(bytes);
  if (arrived instanceof Uint8Array) return takeText(exchange, arrived);
  // Before `reserve` can throw: an unhandled rejection ends the process.
  bytes.catch(() => undefined);
  exchange.rest = bytes;
  if (length >= COUNTED_BYTES_MIN) exchange.reserve(length);
  exchange.rest = undefined;
  return readSmall(exchange, bytes);
}

/** Decodes the body. Its text counts until the request is answered: twice if it is wide (UTF-16). */
function takeText(exchange: Exchange, bytes: Uint8Array): string {
  const text = decodeUtf8(bytes);
  if (bytes.length < COUNTED_BYTES_MIN) {
    exchange.hold(0);
    return text;
  }
  const isWide = text.length < bytes.length || text.includes("\\u");
  exchange.isRead = true;
  exchange.reserve(isWide ? 2 * text.length : text.length);
  return text;
}

async function readSmall(exchange: Exchange, bytes: Promise<Uint8Array>): Promise<string> {
  // Most bodies arrive in the tick of their head. A timer for each request would cost more than the wait.
  await endOfTick();
  const arrived = Bun.peek(bytes);
  if (arrived instanceof Uint8Array) return takeText(exchange, arrived);
  const isVain = waitsInVain(exchange.request);
  const msMax = exchange.service.config.readSecondsMax * 1000;
  const all = isVain ? undefined : await within(msMax, bytes).catch(rethrowAbort);
  if (all !== undefined) return takeText(exchange, all);
  exchange.rest = bytes;
  throw new Refusal(isVain ? "expectation_failed" : "body_too_slow");
}

async function readLarge(exchange: Exchange, length: number | undefined): Promise<Uint8Array> {
  const { request, service } = exchange;
  if (request.body === null) return new Uint8Array();
  const reader = request.body.getReader();
  exchange.rest = reader;
  requireExpectation(request);
  if (length !== undefined) exchange.reserve(length);
  const deadlineMs = performance.now() + service.config.readSecondsMax * 1000;
  const bytes = new Bytes(length);
  const bufferBytes = (): number => length ?? BUFFER_GROWTH * bytes.length;
  const refused = new AbortController();
  let bytesArriving = 0;
  const msLeft = (): number => deadlineMs - performance.now();
  const readAll = async (): Promise<void> => {
    for await (const chunk of readChunks(reader, msLeft, refused.signal)) {
      const total = bytes.length + chunk.length;
      requireLength(total, exchange);
      if (length === undefined && total >= COUNTED_BYTES_MIN)
        exchange.reserve(bytesArriving + BUFFER_GROWTH * total);
      bytes.add(chunk);
      service.budget.noteGarbage(BUFFER_GROWTH * chunk.length);
    }
  };
  const reading = readAll();
  try {
    // A refusal must not wait for the tick: nobody would read on, and the runtime would buffer what arrives.
    if (length === undefined) await Promise.race([reading, endOfTick()]);
    if (length === undefined && Bun.peek.status(reading) === "pending")
      try {
        bytesArriving = ARRIVING_BYTES_MAX;
        exchange.reserve(bytesArriving + bufferBytes());
      } catch (error) {
        refused.abort(error);
      }
    await reading;
  } catch (error) {
    service.budget.noteDropped(bufferBytes());
    throw error;
  }
  if (bytesArriving > 0) exchange.hold(bufferBytes());
  // The runtime reads the trailer after the body. A request with a malformed trailer must have no effect.
  await nextTick();
  exchange.rest = undefined;
  if (request.signal.aborted) throw new Refusal("body_incomplete");
  return bytes.take();
}

/** The text of a packed body. Both its sizes are bounded. */
export async function readPacked(exchange: Exchange): Promise<string> {
  const length = findLength(exchange.request);
  requireLength(length ?? 0, exchange);
  const packed = await readLarge(exchange, length).catch(rethrowAbort);
  const bytes = new Bytes();
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    yield packed;
  };
  for await (const chunk of unpack(chunks(), exchange.service)) {
    requireLength(bytes.length + chunk.length, exchange);
    bytes.add(chunk);
    exchange.reserve(packed.length + BUFFER_GROWTH * bytes.length);
  }
  return takeText(exchange, bytes.take());
}

/** The chunks of a body. Throws a Refusal on a timeout. */
export async function* readChunks(reader: Reader, msLeft: () => number, signal?: AbortSignal) {
  let count = 0;
  // Checked before each chunk: a chunk that has arrived would win against a timer.
  for (let ms = msLeft(); ms > 0; ms = msLeft()) {
    signal?.throwIfAborted();
    const next = await within(ms, reader.read(), signal).catch(rethrowAbort);
    signal?.throwIfAborted();
    if (next === undefined) break;
    if (next.done) return;
    if (++count % CHUNKS_PER_TICK === 0) await nextTick();
    signal?.throwIfAborted();
    yield next.value;
  }
  throw new Refusal("body_too_slow");
}

export const nextTick = (): Promise<unknown> => new Promise(setImmediate);

function rethrowAbort(error: unknown): never {
  const isAbort = error instanceof Error && error.name === "AbortError";
  throw isAbort ? new Refusal("body_incomplete") : error;
}

function requireLength(bytes: number, { service }: Exchange): void {
  const { bodyBytesMax: most } = service.config;
  if (bytes <= most) return;
  const message = `The body is larger than the limit of ${most} bytes.`;
  throw new Refusal("body_too_large", message);
}

/** For an operation that ignores its body: the runtime would buffer it until the answer. Rejects if it is malformed. */
export async function ignoreBody(request: Request): Promise<void> {
  if (request.body === null) return;
  await request.body.cancel().catch(rethrowAbort);
  await requireOpen(request);
}

/** Throws a Refusal if the client has closed its half: it would get no answer. The runtime notices two ticks late. */
export async function requireOpen({ signal }: Request): Promise<void> {
  await nextTick();
  await nextTick();
  if (signal.aborted) throw new Refusal("body_incomplete");
}
