/** One request in flight: the memory it holds, and reading its body within bounds of size and time. */

import type { Authenticator } from "../auth/token.ts";
import type { createRateLimiter, RateState } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { ServedStore } from "../domain/store.ts";
import type { TokenRecord } from "../domain/token.ts";
import { Bytes, decodeUtf8 } from "../format/records.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Reports } from "../observe/reporter.ts";
import { endOfTick, within } from "../tick.ts";
import type { Feed } from "./feed.ts";

export interface Service {
  readonly config: Config;
  readonly store: ServedStore;
  readonly authenticator: Authenticator;
  readonly rates: ReturnType<typeof createRateLimiter>;
  readonly budget: Budget;
  /** For batch lines in flight to the store. */
  readonly lines: Budget;
  readonly readiness: { readonly isDraining: boolean; readonly check: () => Promise<void> };
  readonly log: Log;
  readonly metrics: Metrics;
  readonly reports: Reports;
  readonly feed: Feed;
  /** Sets the runtime's idle timer for one exchange; 0 turns it off. */
  readonly limitIdle: (request: Request, seconds: number) => void;
  readonly addressOf: (request: Request) => string | undefined;
}

export type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

export class Exchange {
  readonly service: Service;
  readonly request: RoutedRequest;
  readonly startedAtMs: number;
  readonly sentId: string | null;
  /** Bytes held for its body, and for the source of its answer. */
  bytesKept = 0;
  /** Bytes of a streamed answer in flight to the client. */
  private bytesLeaving = 0;
  /** The body was read, and counts as text. */
  isRead = false;
  /** Memory is held until the stream ends. */
  isStreamed = false;
  /** The unread rest of a body. */
  rest: Rest | undefined;
  token: TokenRecord | undefined;
  /** The token's rate state, if little is left. */
  rate: RateState | undefined;
  private id: string | undefined;

  constructor(service: Service, request: RoutedRequest, startedAtMs: number) {
    this.service = service;
    this.request = request;
    this.startedAtMs = startedAtMs;
    this.sentId = request.headers.get("x-request-id");
  }

  /** Sets the bytes held. Throws a Refusal if the budget lacks room, or other requests hold more than `share` of it. */
  reserve(bytesKept: number, share = 1): void {
    const { budget } = this.service;
    const others = budget.bytesHeld - this.bytesKept - this.bytesLeaving;
    const bytes = bytesKept + this.bytesLeaving;
    if (!budget.hasRoom(bytes, others, share)) {
      if (this.isRead || share < 1) budget.noteDropped(bytes);
      throw new Refusal("overloaded");
    }
    this.hold(bytesKept);
  }

  /** The same without a check, for bytes that are in memory already. */
  hold(bytesKept: number, bytesLeaving = this.bytesLeaving): void {
    const { budget } = this.service;
    const grown = bytesKept + bytesLeaving - this.bytesKept - this.bytesLeaving;
    budget.bytesHeld += grown;
    // The runtime collects the small pieces of a stream in time. A body that was not read leaves nothing to collect.
    const isLate = this.isStreamed ? -grown >= LARGE_BYTES : this.isRead;
    if (isLate && grown < 0) budget.noteDropped(-grown);
    this.bytesKept = bytesKept;
    this.bytesLeaving = bytesLeaving;
  }

  /** The request's id in the log: the client's if it is sane, else ours. */
  get requestId(): string {
    this.id ??=
      this.sentId !== null && SANE_REQUEST_ID.test(this.sentId)
        ? this.sentId
        : `${requestIdPrefix}-${(++requestCount).toString(36)}`;
    return this.id;
  }
}

const SANE_REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;
const requestIdPrefix = Math.random().toString(36).slice(2, 10);
let requestCount = 0;

export const JSON_TYPE = "application/json";
/** One format with three names; the client gets the name it asked for. */
export const NDJSON_TYPES = [
  "application/x-ndjson",
  "application/ndjson",
  "application/jsonl",
] as const;

/** Returns the body's media type. Throws a Refusal unless it is one of these, in UTF-8 and not compressed. */
export function requireType(headers: Headers, ...allowed: readonly string[]): string {
  const contentType = headers.get("content-type") ?? "";
  const type = contentType === allowed[0] ? contentType : findUtf8Type(contentType, allowed);
  if (type === undefined)
    throw new Refusal(
      "unsupported_media_type",
      `The body must be declared as ${allowed.join(" or ")}, in UTF-8.`,
    );
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.trim().toLowerCase() !== "identity")
    throw new Refusal("unsupported_encoding");
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

/** Unread answers may use this share; the rest is for writes. */
export const ANSWERS_SHARE = 0.5;
/** For batch lines in flight to the store, in a budget of their own: unread answers do not delay them. */
export const LINES_SHARE = 0.25;
/** For draining refused bodies, in addition to the budget: clients without a token can cause these. */
const LINGERING_SHARE = 0.125;

/** For bodies of requests whose JWT is being verified: anyone can make up one that waits for the issuer. */
const UNVERIFIED_SHARE = 0.25;

const LARGE_BYTES = 262_144;
/** A GC takes about 10 ms. Collecting twice as often saved no memory; a quarter as often took 60 MB more. */
const COLLECT_SHARE = 0.0625;

/** The memory budget for request bodies and large unsent answers. */
export class Budget {
  readonly bytesMax: number;
  bytesHeld = 0;
  private bytesDropped = 0;
  bytesLingering = 0;
  private bytesUnverified = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Whether the budget has room, and others hold at most `share` of it. A request alone always fits. */
  hasRoom(bytes: number, others: number, share = 1): boolean {
    return others <= this.bytesMax * share && (others === 0 || others + bytes <= this.bytesMax);
  }

  /** Throws a Refusal if others that wait hold their share. One body fits, however small the budget. */
  holdUnverified<Token>(bytes: number, found: Promise<Token>): Promise<Token> {
    const others = this.bytesUnverified;
    if (bytes > 0 && others > 0 && others + bytes > this.bytesMax * UNVERIFIED_SHARE)
      throw new Refusal("overloaded");
    this.bytesUnverified += bytes;
    return found.finally(() => (this.bytesUnverified -= bytes));
  }

  /**
   * On a busy machine GC is late for large strings: without this, unread pages took 270 to 333 MB, and 500 bodies of
   * 250 kB 423 MB.
   */
  noteDropped(bytes: number): void {
    this.bytesDropped += bytes;
    if (this.bytesDropped < this.bytesMax * COLLECT_SHARE) return;
    this.bytesDropped = 0;
    Bun.gc(true);
  }
}

/** Smaller bodies are bounded by the number of connections, so they are served while large ones are refused. */
const COUNTED_BYTES_MIN = 1_024;

/** The runtime buffers up to this much of a body before the service reads it (measured). */
const UNREAD_BYTES_MAX = 1_572_864;

/** The rest of a body: its reader, or the promise of the whole. */
type Rest = Reader | Promise<unknown>;
export type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "cancel">;

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
const WHOLE_BYTES_MAX = 65_536;
/** Reading chunks that have arrived never yields, so a tick between them lets other requests run. */
const CHUNKS_A_TICK = 8;
/** A buffer for a body of unknown length doubles. */
const BUFFER_GROWTH = 2;

export function readJson(exchange: Exchange): string | Promise<string> {
  requireType(exchange.request.headers, JSON_TYPE);
  return readText(exchange);
}

/** The text of the body: synchronously if it has arrived. */
export function readText(exchange: Exchange): string | Promise<string> {
  const { request } = exchange;
  const length = findLength(request);
  requireLength(length ?? 0, exchange);
  // Small bodies are read in one piece: a loop over chunks costs 45 % of the throughput.
  if (length === undefined || length > WHOLE_BYTES_MAX)
    return decodeLater(exchange, readLarge(exchange, length));
  const bytes = request.bytes();
  const arrived = Bun.peek(bytes);
  if (arrived instanceof Uint8Array) return takeText(exchange, arrived);
  // Before `reserve` can throw: an unhandled rejection ends the process.
  bytes.catch(() => undefined);
  exchange.rest = bytes;
  if (length >= COUNTED_BYTES_MIN) exchange.reserve(length);
  exchange.rest = undefined;
  return decodeLater(exchange, readSmall(exchange, bytes));
}

const decodeLater = async (exchange: Exchange, read: Promise<Uint8Array>): Promise<string> =>
  takeText(exchange, await read.catch(explainAbort));

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

async function readSmall(exchange: Exchange, bytes: Promise<Uint8Array>): Promise<Uint8Array> {
  // Most bodies arrive in the tick of their head. A timer for each request would cost more than the wait.
  await endOfTick();
  const arrived = Bun.peek(bytes);
  if (arrived instanceof Uint8Array) return arrived;
  const all = await within(exchange.service.config.readSecondsMax * 1000, bytes);
  if (all !== undefined) return all;
  exchange.rest = bytes;
  throw new Refusal("body_too_slow");
}

async function readLarge(exchange: Exchange, length: number | undefined): Promise<Uint8Array> {
  const { request, service } = exchange;
  if (request.body === null) return new Uint8Array();
  const reader = request.body.getReader();
  exchange.rest = reader;
  exchange.reserve(length ?? 0);
  const deadlineMs = performance.now() + service.config.readSecondsMax * 1000;
  const bytes = new Bytes(length);
  let total = 0;
  for await (const chunk of readChunks(reader, () => deadlineMs - performance.now())) {
    total += chunk.length;
    if (length === undefined) {
      requireLength(total, exchange);
      if (total >= COUNTED_BYTES_MIN) exchange.reserve(BUFFER_GROWTH * total);
    }
    bytes.add(chunk);
  }
  // The runtime reads the trailer after the body. A request with a malformed trailer must have no effect.
  await nextTick();
  exchange.rest = undefined;
  if (request.signal.aborted) throw new Refusal("body_incomplete");
  return bytes.take();
}

/** The chunks of a body. Throws a Refusal on a timeout. */
export async function* readChunks(reader: Reader, msLeft: () => number, signal?: AbortSignal) {
  let count = 0;
  // Checked before each chunk: a chunk that has arrived would win against a timer.
  for (let ms = msLeft(); ms > 0; ms = msLeft()) {
    signal?.throwIfAborted();
    const next = await within(ms, reader.read(), signal).catch(explainAbort);
    signal?.throwIfAborted();
    if (next === undefined) break;
    if (next.done) return;
    if (++count % CHUNKS_A_TICK === 0) await nextTick();
    signal?.throwIfAborted();
    yield next.value;
  }
  throw new Refusal("body_too_slow");
}

export const nextTick = (): Promise<unknown> => new Promise(setImmediate);

function explainAbort(error: unknown): never {
  const isAbort = error instanceof Error && error.name === "AbortError";
  throw isAbort ? new Refusal("body_incomplete") : error;
}

function requireLength(bytes: number, { service }: Exchange): void {
  const { bodyBytesMax: most } = service.config;
  if (bytes <= most) return;
  const message = `The body is larger than ${most} bytes, the most that this service reads.`;
  throw new Refusal("body_too_large", message);
}

/*
 * Closing a connection with unread data makes the system send a reset, which overtakes the answer: the client would
 * see a broken connection, and a proxy would make it a 502. So the service discards what the client still sends,
 * within bounds, before it closes. This is what nginx calls lingering close.
 */
const LINGER_BYTES_MAX = 67_108_864;
const LINGER_MS_MAX = 10_000;
/** Must outlast LINGER_MS_MAX: the runtime's idle timer may fire early and would cut off the answer. */
const LINGER_SECONDS_MAX = 20;
/** After an early answer a proxy may stop sending and wait for the end of the answer. It waits this long. */
const LINGER_IDLE_MS_MAX = 500;
/** For a body whose end the service cannot see. Most clients have sent theirs by then. */
const LINGER_BLIND_MS = 2_000;

export const isClosing = ({ request, service }: Exchange): boolean =>
  service.readiness.isDraining || /\bclose\b/i.test(request.headers.get("connection") ?? "");

/** The body of a refusal, which ends after the request body has arrived, and whether the connection closes. */
export function linger(exchange: Exchange, text: string) {
  const { request, service, rest: begun } = exchange;
  const length = findLength(request) ?? Number.POSITIVE_INFINITY;
  const closes = isClosing(exchange) || length > LINGER_BYTES_MAX || begun !== undefined;
  const rest = begun ?? findRest(request, length, closes);
  if (rest === undefined) return { body: text, closes: isClosing(exchange) };
  if (closes) service.limitIdle(request, LINGER_SECONDS_MAX);
  let isSent = false;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (isSent) {
        await discard(rest, service.budget);
        controller.close();
      } else controller.enqueue(new TextEncoder().encode(text));
      isSent = true;
    },
  });
  return { body, closes };
}

function findRest(request: Request, length: number, closes: boolean): Rest | undefined {
  if (request.bodyUsed || length === 0) return undefined;
  // HTTP/1.0 closes by default, and the runtime does not expose the version.
  if (!closes && /\bkeep-alive\b/i.test(request.headers.get("connection") ?? "")) return undefined;
  if (length > WHOLE_BYTES_MAX) return request.body?.getReader();
  const bytes = request.bytes();
  // Before the peek: the client may be gone already, and an unhandled rejection ends the process.
  bytes.catch(() => undefined);
  return Bun.peek(bytes) === bytes ? bytes : undefined;
}

/** Resolves when the body ends, the client disconnects, or a bound is reached. */
export async function discard(rest: Rest, budget: Budget): Promise<void> {
  if (rest instanceof Promise)
    return void (await within(LINGER_IDLE_MS_MAX, rest).catch(() => undefined));
  if (budget.bytesLingering > budget.bytesMax * LINGERING_SHARE) {
    // The runtime discards it without buffering, but does not report its end.
    await rest.cancel().catch(() => undefined);
    return Bun.sleep(LINGER_BLIND_MS);
  }
  budget.bytesLingering += UNREAD_BYTES_MAX;
  const deadlineMs = performance.now() + LINGER_MS_MAX;
  let bytes = 0;
  const msLeft = (): number =>
    bytes > LINGER_BYTES_MAX ? 0 : Math.min(LINGER_IDLE_MS_MAX, deadlineMs - performance.now());
  try {
    for await (const chunk of readChunks(rest, msLeft)) bytes += chunk.length;
  } catch {
    // The client has disconnected, or a bound is reached.
  } finally {
    budget.bytesLingering -= UNREAD_BYTES_MAX;
  }
}

/** Throws a Refusal if the client has closed its half: it would get no answer. The runtime notices two ticks late. */
export async function requireOpen({ signal }: Request): Promise<void> {
  await nextTick();
  await nextTick();
  if (signal.aborted) throw new Refusal("body_incomplete");
}
