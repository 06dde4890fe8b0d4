/** One request, from its head to its answer. Every failure is caught here. */

import { challenge } from "../auth/challenge.ts";
import { RateLimited, type RateState } from "../auth/rate-limit.ts";
import { catalogue, Refusal, toRefusal } from "../domain/errors.ts";
import type { Scope, TokenRecord } from "../domain/token.ts";
import { findTraceParent } from "../domain/trace.ts";
import { redact } from "../observe/log.ts";
import { methods, OTHER_PATH } from "../observe/metrics.ts";
import { fillPath } from "../observe/recent-requests.ts";
import { flushOverdue, joinTick } from "../tick.ts";
import {
  countUnread,
  findLength,
  ignoreBody,
  readText,
  requireMediaType,
  requireOpen,
  requireType,
} from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { Exchange, type Input, type RoutedRequest, type Service } from "./exchange.ts";
import { linger } from "./linger.ts";
import { findClientAddress } from "./proxies.ts";
import { createHeadParser, type Head, pathOf } from "./query.ts";
import { toStream } from "./stream.ts";

export interface Operation {
  /** The scopes that a token needs, all of them; none: any valid token. Undefined: open to all, as it shows no plant. */
  readonly scopes: readonly Scope[] | undefined;
  readonly kind: Kind;
  /** Undefined if it ignores its body. */
  readonly body?: Body | undefined;
  /** Reads the URL and the headers, and judges them. */
  readonly parse: (exchange: Exchange) => Input;
  /** Does it. Resolves to what `answer` sends, and a tool shows. */
  readonly run: (input: Input, exchange: Exchange) => unknown;
  /** By default a response is sent as it is, and anything else as JSON. */
  readonly answer?: Answering | undefined;
}

type Answering = (
  result: unknown,
  input: Input,
  exchange: Exchange,
) => Response | Promise<Response>;

/**
 * How requests are counted and bounded. `read`, `create` and `write` concern a page or a plant, and have a latency in the
 * reports. `batch`: each plant takes a unit of the token's rate, and only some run at a time. `manage` concerns tokens
 * and webhooks: if it changes them, the token is checked again when the body has arrived. `other` has no such rules.
 */
export type Kind = "read" | "create" | "write" | "batch" | "manage" | "other";

export interface Body {
  /** The media types that it may have. The 415 answer names them. */
  readonly types: readonly string[];
  /** The codings that it may have, for the same answer; without them, only `identity`. */
  readonly codings?: string;
  /** Undefined if the operation reads it by itself, as it arrives, and answers in its type. */
  readonly parse?: (text: string, path: object) => unknown;
  /** The answer shows what was sent, so its size is judged before anything is stored. */
  readonly isEchoed?: boolean;
}

export type Method = Exclude<(typeof methods)[number], "HEAD" | "OPTIONS">;

export interface Route {
  /** With its parameters in braces, as in the description. */
  readonly path: string;
  readonly operations: Readonly<Partial<Record<Method, Operation>>>;
}

/** The handler of a route or, without one, of all unknown paths. */
export function createHandler(service: Service, route: Route | undefined) {
  const { config, metrics, tracer } = service;
  const operations = new Map<string, Operation>(Object.entries(route?.operations ?? {}));
  const GET = operations.get("GET");
  // The runtime sends no body in answer to HEAD.
  if (GET !== undefined) operations.set("HEAD", GET);
  if (route !== undefined)
    operations.set(
      "OPTIONS",
      openOperation(() => answer(204, null, { allow })),
    );
  const allow = methods.filter((method) => operations.has(method)).join(", ");
  const path = route?.path ?? OTHER_PATH;
  const countRequest = metrics.counterOf(path, Object.keys(route?.operations ?? {}));
  const isLogged = config.logLevel === "debug";
  const hasId = path.includes("{id}");
  /** Probes, monitoring and files would evict the requests of clients. */
  const isListed =
    !POLLED_PATHS.has(path) && operations.values().some(({ scopes }) => scopes !== undefined);

  function finish(exchange: Exchange, response: Response, refusal: Refusal | undefined): Response {
    const { request, startedAtMs } = exchange;
    const { headers, status } = response;
    if (exchange.bytesKept > 0 && !exchange.isStreamed) exchange.hold(0);
    // Also before a stream, which nobody reads in answer to HEAD.
    if (exchange.isPatient) service.limitIdle(request, config.idleSecondsMax);
    const endedMs = performance.now();
    countRequest(request.method, status, endedMs - startedAtMs);
    if (refusal !== undefined || exchange.sentId !== null)
      headers.set("x-request-id", exchange.requestId);
    if (exchange.rate !== undefined) addRateHeaders(headers, exchange.rate);
    // The runtime omits it in answers to HEAD.
    if (request.method === "HEAD") headers.set("date", new Date().toUTCString());
    if (config.corsOrigins.length > 0) addCorsHeaders(exchange, headers, allow);
    if (service.readiness.isDraining) headers.set("connection", "close");
    if (refusal !== undefined || isLogged) logRequest(exchange, status, refusal);
    if (exchange.span !== undefined) describeSpan(exchange, route?.path, status, refusal);
    if (refusal !== undefined || isListed) noteRequest(exchange, status, refusal, endedMs);
    return response;
  }

  function noteRequest(
    exchange: Exchange,
    status: number,
    refusal: Refusal | undefined,
    endedMs: number,
  ): void {
    const { request, startedAtMs, token, sentId } = exchange;
    const slot = service.recent.claim(status);
    slot.atMs = Date.now();
    slot.endedMs = endedMs;
    slot.durationMs = endedMs - startedAtMs;
    slot.status = status;
    slot.method = request.method;
    slot.path = path;
    slot.id = hasId ? findShownId(request) : undefined;
    slot.reason = refusal?.reason;
    slot.token = token?.name;
    // The client has seen no other.
    slot.requestId = refusal !== undefined || sentId !== null ? exchange.requestId : undefined;
  }

  return async (request: RoutedRequest): Promise<Response> => {
    const startedAtMs = performance.now();
    flushOverdue(startedAtMs);
    const { method } = request;
    const operation = operations.get(method);
    // The reads of a tick run each step together, while its code and data are in the CPU's caches. A body would be
    // buffered meanwhile, uncounted.
    if (method === "GET" && operation?.scopes?.[0] === "plants:read" && !hasBody(request))
      await joinTick();
    const exchange = new Exchange(service, request, startedAtMs);
    if (tracer !== undefined) exchange.span = tracer.startRequest(request.headers, startedAtMs);
    try {
      const host = request.headers.get("host");
      // HTTP/1.0 allows a request without Host. The runtime refuses any other one.
      if (host !== null && !HOST.test(host)) throw new Refusal("malformed_request");
      if (request.url.length > config.urlBytesMax) throw new Refusal("url_too_long");
      if (operation === undefined)
        throw new Refusal(route === undefined ? "path_not_found" : "method_not_allowed");
      // Awaiting a cached token would cost a microtask.
      const authorized = authorize(exchange, operation);
      if (authorized !== undefined) await authorized;
      const input = operation.parse(exchange);
      const isRead = method === "GET" || method === "HEAD" || method === "OPTIONS";
      const { body } = operation;
      if (body !== undefined) {
        const type = requireBodyType(request.headers, body);
        if (body.parse === undefined) input.form = type;
      } else if (!isRead) await ignoreBody(request);
      if (body?.parse !== undefined) {
        const read = readText(exchange);
        const text = typeof read === "string" ? read : await read;
        input.body = body.parse(text, input.path);
        const opened = body.isEchoed === true ? requireSendable(exchange, text.length) : undefined;
        if (opened !== undefined) await opened;
      }
      // A token that was revoked just before, or while the body arrived, must not leave a token or a webhook behind.
      if (operation.kind === "manage" && !isRead)
        await service.authenticator.authenticate(exchange.authorization, 0);
      const result = await operation.run(input, exchange);
      const answered = (operation.answer ?? answerResult)(result, input, exchange);
      return finish(exchange, answered instanceof Promise ? await answered : answered, undefined);
    } catch (error) {
      // A client that left is no failure of ours. Its signal takes memory, so it is looked at last.
      const isAbort = error instanceof Error && error.name === "AbortError";
      const isGone = isAbort && request.signal.aborted;
      const refusal = isGone ? new Refusal("body_incomplete") : toRefusal(error);
      if (refusal instanceof RateLimited) exchange.rate = refusal.state;
      return finish(exchange, answerRefusal(exchange, refusal, allow, operation), refusal);
    }
  };
}

/** Shows no plant, so it needs no token. Ignores its query. */
export const openOperation = (run: Operation["run"], head: Head = {}): Operation => ({
  scopes: undefined,
  kind: "other",
  parse: createHeadParser(head, { ignoresQuery: true }),
  run,
});

const requireBodyType = (headers: Headers, { types, codings }: Body): string =>
  codings === undefined ? requireType(headers, types) : requireMediaType(headers, types);

const hasBody = ({ headers }: Request): boolean =>
  headers.has("content-length") || headers.has("transfer-encoding");

/** Checks the token, its rate and its scope. A promise if the token is not cached. */
function authorize(exchange: Exchange, operation: Operation): Promise<void> | undefined {
  const { request, service } = exchange;
  if (operation.scopes === undefined) return undefined;
  const header = request.headers.get("authorization");
  const found = service.authenticator.authenticate(header);
  if (!(found instanceof Promise)) {
    admitToken(exchange, operation, found);
    return undefined;
  }
  // If `reserve` throws, nothing awaits this promise.
  found.catch(() => undefined);
  // The part of the body that has arrived meanwhile is in memory.
  const bytes = countUnread(exchange);
  if (bytes > 0) exchange.reserve(bytes);
  // Our own tokens have no dot.
  const verified = header?.includes(".") ? service.budget.holdUnverified(bytes, found) : found;
  return verified.then((token) => admitToken(exchange, operation, token));
}

function admitToken(exchange: Exchange, operation: Operation, token: TokenRecord): void {
  const { service } = exchange;
  const { scopes = [], kind } = operation;
  exchange.token = token;
  exchange.rate = service.rates.take(token);
  requireScopes(token, scopes);
  if (kind === "batch") service.rates.requireBatch(token);
}

const POLLED_PATHS: ReadonlySet<string> = new Set(["/activity", "/metrics"]);

const SHOWN_ID = /^(-?\d{1,19}|[0-9a-f]{16})$/;

/** Only if it is an id: a client may send anything in its place, even a token. */
function findShownId({ params }: RoutedRequest): string | undefined {
  const id = params?.["id"];
  return id !== undefined && SHOWN_ID.test(id) ? id : undefined;
}

/** One log line: what, how long, and who. Never a token, a body or a query. */
function logRequest(exchange: Exchange, status: number, refusal: Refusal | undefined): void {
  const { request, startedAtMs, token, service, span } = exchange;
  const { log, config } = service;
  const { headers, method } = request;
  const fields = {
    ...exchange.ids,
    traceId: (span ?? findTraceParent(headers.get("traceparent")))?.traceId,
    method,
    path: pathOf(request.url).slice(0, 200),
    status,
    durationMs: Math.round((performance.now() - startedAtMs) * 1000) / 1000,
    token: token?.name,
    client: findClientAddress(headers, service.addressOf(request), config),
    bytes: findLength(request),
  };
  if (refusal === undefined) return log.debug("request", fields);
  // The message may quote the body, so it is not logged. Our own failures are logged with their cause.
  const failed = { ...fields, reason: refusal.reason };
  if (status < 500) return log.info("request", failed);
  log[status === 500 ? "error" : "warn"]("request", { ...failed, cause: refusal.cause });
}

/** https://opentelemetry.io/docs/specs/semconv/http/http-spans/: no query, and of the headers only the host. */
function describeSpan(
  exchange: Exchange,
  path: string | undefined,
  status: number,
  refusal: Refusal | undefined,
): void {
  const { request, span, service, isStreamed } = exchange;
  const { config } = service;
  const method = methods.find((known) => known === request.method);
  const route = path === undefined ? undefined : config.basePath + path;
  const [, host, port] = HOST.exec(request.headers.get("host") ?? "") ?? [];
  const isError = status >= 500;
  const attributes = {
    "http.request.method": method ?? "_OTHER",
    "http.route": route,
    "url.path":
      route === undefined
        ? redact(pathOf(request.url).slice(0, 200))
        : fillPath(route, findShownId(request)),
    "url.scheme": request.url.startsWith("https:") ? "https" : "http",
    "server.address": host?.slice(0, 255),
    "server.port": port ? Number(port.slice(1)) || undefined : undefined,
    "client.address": findClientAddress(request.headers, service.addressOf(request), config),
    "http.request.body.size": findLength(request),
    "http.response.status_code": status,
    "error.type": isError ? (refusal?.reason ?? String(status)) : undefined,
    "plantstore.reason": refusal?.reason,
  };
  span?.describe([method ?? "HTTP", route].filter(Boolean).join(" "), attributes, isError);
  if (!isStreamed) span?.end();
}

/** RFC 9112, section 3.2: exactly one valid Host. The runtime joins several with commas. */
const HOST = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/;

/** The answer's WWW-Authenticate header names the scope that is missing. */
export function requireScopes(token: TokenRecord | undefined, scopes: readonly Scope[]): void {
  for (const scope of scopes)
    if (!token?.scopes.includes(scope))
      throw new Refusal("insufficient_scope", `The token lacks the scope ${scope}.`, scope);
}

export type MoreHeaders = Readonly<Record<string, string>>;

const API_HEADERS = { "cache-control": "no-store", "x-content-type-options": "nosniff" };
const emptyHeaders = new Headers(API_HEADERS);
/** A template: copying Headers is cheaper than passing the runtime a plain object. */
const jsonHeaders = new Headers({ "content-type": "application/json", ...API_HEADERS });

/** An API answer. Its body is JSON unless a header says otherwise. */
export function answer(
  status: number,
  body: string | Uint8Array | Blob | ReadableStream<Uint8Array> | null,
  more?: MoreHeaders,
): Response {
  const headers = body === null ? emptyHeaders : jsonHeaders;
  const response = new Response(body, { status, headers });
  for (const name in more) response.headers.set(name, more[name] as string);
  return response;
}

/** Larger answers count until the client has read them: the kernel may buffer as little as 4 KiB of one. */
const SMALL_BYTES_MAX = 16_384;
const SLICE_BYTES = 65_536;
/** UTF-8 has at most this many bytes for a character. */
const CHARACTER_BYTES_MAX = 3;

const isSmall = (text: string | Uint8Array): boolean =>
  text.length * CHARACTER_BYTES_MAX <= SMALL_BYTES_MAX ||
  (typeof text === "string" ? Buffer.byteLength(text) : text.length) <= SMALL_BYTES_MAX;

/**
 * A large text counts as held until the client has read it. Sliced, because the runtime does not report the end.
 * `isDue`: it is answered even if memory is short.
 */
export function answerText(
  exchange: Exchange,
  text: string | Uint8Array,
  headers?: MoreHeaders,
  { isDue = false } = {},
): Response {
  if (isSmall(text)) return answer(200, text, headers);
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  if (isDue) exchange.hold(bytes.length);
  else exchange.reserve(bytes.length, ANSWERS_SHARE);
  const slices = async function* (): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += SLICE_BYTES)
      yield bytes.subarray(at, at + SLICE_BYTES);
  };
  return answer(200, toStream(exchange, slices), headers);
}

/**
 * Answers a write that is stored. An echo takes the place of its body in the budget. Without memory for a larger answer,
 * the client cannot know that the write is stored, and retries.
 */
export function answerStored(exchange: Exchange, text: string, headers?: MoreHeaders): Response {
  try {
    return answerText(exchange, text, headers, { isDue: text.length <= exchange.bytesKept });
  } catch (error) {
    throw new Refusal("store_unavailable", undefined, error);
  }
}

export function answerJson(exchange: Exchange, value: unknown, headers?: MoreHeaders): Response {
  const json = JSON.stringify(value);
  requireRoomToAnswer(exchange, json.length);
  return answerText(exchange, json, headers);
}

const answerResult: Answering = (result, _input, exchange) =>
  result instanceof Response ? result : answerJson(exchange, result);

/** Throws a Refusal if the answer is large and others hold half of the budget. */
export function requireRoomToAnswer(exchange: Exchange, characters: number): void {
  if (characters > SMALL_BYTES_MAX) exchange.reserve(exchange.bytesKept, ANSWERS_SHARE);
}

/** For a plant echoed in the answer: refuses a large one before it is stored if the answer could not be sent. */
function requireSendable(exchange: Exchange, characters: number): Promise<void> | undefined {
  if (characters * CHARACTER_BYTES_MAX <= SMALL_BYTES_MAX) return undefined;
  exchange.reserve(exchange.bytesKept, ANSWERS_SHARE);
  return requireOpen(exchange.request);
}

function answerRefusal(exchange: Exchange, refusal: Refusal, allow: string, operation?: Operation) {
  const { code, status } = catalogue[refusal.reason];
  const headers: Record<string, string> = {};
  if (status === 405) headers["allow"] = allow;
  if (status === 503) headers["retry-after"] = "1";
  if (refusal instanceof RateLimited) headers["retry-after"] = String(refusal.retryAfterSeconds);
  if (refusal.reason === "unsupported_encoding")
    headers["accept-encoding"] = operation?.body?.codings ?? "identity";
  if (status === 401 || status === 403)
    headers["www-authenticate"] = challenge(refusal, exchange.service.config.jwtAudience);
  if (status === 415 && operation?.body !== undefined)
    // RFC 5789, section 2.2, for a PATCH.
    headers[exchange.request.method === "PATCH" ? "accept-patch" : "accept-post"] =
      operation.body.types.join(", ");
  const text = JSON.stringify({ error: code, message: refusal.message });
  const { body, closes } = linger(exchange, text);
  if (closes) headers["connection"] = "close";
  return answer(status, body, headers);
}

/** https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ (10) */
function addRateHeaders(headers: Headers, state: RateState): void {
  const { units, windowSeconds, remaining, resetSeconds } = state;
  headers.set("ratelimit-policy", `"token";q=${units};w=${windowSeconds}`);
  headers.set("ratelimit", `"token";r=${remaining};t=${resetSeconds}`);
}

const EXPOSED_HEADERS =
  "ETag, Idempotent-Replayed, Last-Change, Link, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id";
const ALLOWED_HEADERS =
  "Authorization, Content-Encoding, Content-Type, If-Match, If-None-Match, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Prefer, Traceparent, Tracestate, X-Request-Id";

/** Browsers send no credentials to the service on their own, so `*` is as safe as a list. */
function addCorsHeaders({ service, request }: Exchange, headers: Headers, allow: string): void {
  const origins = service.config.corsOrigins;
  const origin = request.headers.get("origin");
  headers.append("vary", "Origin");
  if (origin === null || !(origins.includes("*") || origins.includes(origin))) return;
  headers.set("access-control-allow-origin", origin);
  headers.set("access-control-expose-headers", EXPOSED_HEADERS);
  if (request.method !== "OPTIONS" || !request.headers.has("access-control-request-method")) return;
  headers.set("access-control-allow-methods", allow);
  headers.set("access-control-allow-headers", ALLOWED_HEADERS);
  headers.set("access-control-max-age", "600");
}
