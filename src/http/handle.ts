/** One request, from its head to its answer. Every failure is caught here. */

import { findClientAddress } from "../domain/address.ts";
import type { Authenticator } from "../auth/token.ts";
import type { Config } from "../config.ts";
import { type createRateLimiter, RateLimited, type RateState } from "../auth/rate-limit.ts";
import { catalogue, Refusal, toRefusal } from "../domain/errors.ts";
import type { ServedStore } from "../domain/store.ts";
import type { Scope, TokenRecord } from "../domain/token.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Reports } from "../observe/reporter.ts";
import { flushOverdue } from "../tick.ts";
import { type Budget, countUnread, findLength, linger, type Rest } from "./body.ts";
import type { Feed } from "./feed.ts";
import { parseQuery, pathOf } from "./query.ts";

export interface Service {
  readonly config: Config;
  readonly store: ServedStore;
  readonly authenticator: Authenticator;
  readonly rates: ReturnType<typeof createRateLimiter>;
  readonly budget: Budget;
  /** Of lines of batches that are with the store. */
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

/** A request with the open parts of its route's path. */
type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

export class Exchange {
  readonly service: Service;
  readonly request: RoutedRequest;
  readonly startedAtMs: number;
  readonly sentId: string | null;
  /** What it holds in memory of its body, and of what its answer is made from. */
  bytesKept = 0;
  /** What it holds of a streamed answer that has left for the client. */
  private bytesLeaving = 0;
  /** Then it holds memory until the stream ends, and otherwise until it is answered. */
  isStreamed = false;
  /** What is left of a body that is not read to its end. */
  rest: Rest | undefined;
  /** The record of its token, if that was good. */
  token: TokenRecord | undefined;
  /** What is left of the token's rate, if that is little. */
  rate: RateState | undefined;
  private id: string | undefined;

  constructor(service: Service, request: RoutedRequest, startedAtMs: number) {
    this.service = service;
    this.request = request;
    this.startedAtMs = startedAtMs;
    this.sentId = request.headers.get("x-request-id");
  }

  /** Keeps this much from now on. Throws a Refusal if there is no room beside others, or if they hold that share. */
  reserve(bytesKept: number, share = 1): void {
    const { budget } = this.service;
    const others = budget.bytesHeld - this.bytesKept - this.bytesLeaving;
    const bytes = bytesKept + this.bytesLeaving;
    if (!budget.hasRoom(bytes, others, share)) {
      budget.noteDropped(bytes);
      throw new Refusal("overloaded");
    }
    this.hold(bytesKept);
  }

  /** The same for what is in memory already. */
  hold(bytesKept: number, bytesLeaving = this.bytesLeaving): void {
    const { budget } = this.service;
    const grown = bytesKept + bytesLeaving - this.bytesKept - this.bytesLeaving;
    budget.bytesHeld += grown;
    if (grown < 0) budget.noteDropped(-grown);
    this.bytesKept = bytesKept;
    this.bytesLeaving = bytesLeaving;
  }

  /** Names the request in the log: the client's id if it is sane, else one of ours. */
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

export interface Operation {
  /** What a token needs; with `any` it only has to be valid. Undefined: open to all, because it shows no plant. */
  readonly scope: Scope | "any" | undefined;
  readonly handle: (exchange: Exchange) => Response | Promise<Response>;
  /** The operation reads the query itself. Without it, with a token, any parameter is refused. */
  readonly hasQuery?: boolean;
  /** The media types that a POST takes, for the answer to another. */
  readonly bodyTypes?: readonly string[] | undefined;
}

const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] as const;
export type Method = Exclude<(typeof methods)[number], "HEAD" | "OPTIONS">;

export interface Route {
  /** With its open parts in braces, as in the description. */
  readonly path: string;
  readonly operations: Readonly<Partial<Record<Method, Operation>>>;
}

type Handler = (request: RoutedRequest) => Promise<Response>;

/** The handler of a route; without one, of all unknown paths. */
export function createHandler(service: Service, route: Route | undefined): Handler {
  const { config, metrics } = service;
  const operations = new Map<string, Operation>(Object.entries(route?.operations ?? {}));
  const GET = operations.get("GET");
  // The runtime sends no body in answer to HEAD.
  if (GET !== undefined) operations.set("HEAD", GET);
  const handle = () => answer(204, null, { allow });
  if (route !== undefined) operations.set("OPTIONS", { scope: undefined, handle });
  const allow = methods.filter((method) => operations.has(method)).join(", ");
  // Unknown paths share one counter; otherwise a client could create unlimited time series.
  const countRequest =
    route === undefined
      ? metrics.counterOf("other", [])
      : metrics.counterOf(route.path, Object.keys(route.operations));
  const isLogged = config.logLevel === "debug";

  /** The head is sound, and there is an operation. */
  function admit({ request }: Exchange, operation: Operation | undefined): Operation {
    requireSaneHead(request, config.urlBytesMax);
    if (operation !== undefined) return operation;
    throw new Refusal(route === undefined ? "path_not_found" : "method_not_allowed");
  }

  function finish(exchange: Exchange, response: Response, refusal: Refusal | undefined): Response {
    const { request, startedAtMs } = exchange;
    const { headers, status } = response;
    if (exchange.bytesKept > 0 && !exchange.isStreamed) exchange.hold(0);
    countRequest(request.method, status, performance.now() - startedAtMs);
    if (refusal !== undefined || exchange.sentId !== null)
      headers.set("x-request-id", exchange.requestId);
    if (exchange.rate !== undefined) addRateHeaders(headers, exchange.rate);
    // The runtime leaves it out of answers to HEAD.
    if (request.method === "HEAD") headers.set("date", new Date().toUTCString());
    if (config.corsOrigins.length > 0) addCorsHeaders(exchange, headers, allow);
    if (service.readiness.isDraining) headers.set("connection", "close");
    if (refusal !== undefined || isLogged) logRequest(exchange, status, refusal);
    if (refusal !== undefined) noteFailure(exchange, status, refusal, route);
    return response;
  }

  return async (request) => {
    const startedAtMs = performance.now();
    flushOverdue(startedAtMs);
    const exchange = new Exchange(service, request, startedAtMs);
    const found = operations.get(request.method);
    try {
      const operation = admit(exchange, found);
      // Awaiting a token that was checked lately would cost a microtask.
      const authorized = authorize(exchange, operation);
      if (authorized !== undefined) await authorized;
      return finish(exchange, await operation.handle(exchange), undefined);
    } catch (error) {
      const refusal = toRefusal(error);
      if (refusal instanceof RateLimited) exchange.rate = refusal.state;
      return finish(exchange, answerRefusal(exchange, refusal, allow, found), refusal);
    }
  };
}

/** The token is good, within its rate, and has the scope. A promise if the store has to be asked. */
function authorize(exchange: Exchange, operation: Operation): Promise<void> | undefined {
  const { request, service } = exchange;
  if (operation.scope === undefined) return undefined;
  const found = service.authenticator.authenticate(request.headers.get("authorization"));
  if (!(found instanceof Promise)) {
    admitToken(exchange, operation, found);
    return undefined;
  }
  // If there is no room, the request does not wait for it.
  found.catch(() => undefined);
  // What the client has sent of a body meanwhile is in memory.
  exchange.reserve(countUnread(exchange));
  return found.then((token) => admitToken(exchange, operation, token));
}

function admitToken(exchange: Exchange, operation: Operation, token: TokenRecord): void {
  const { request, service } = exchange;
  const { scope, hasQuery } = operation;
  exchange.token = token;
  exchange.rate = service.rates.take(token);
  if (scope !== undefined && scope !== "any" && !token.scopes.includes(scope))
    throw new LacksScope(scope);
  if (hasQuery !== true && request.url.includes("?")) parseQuery(request.url, {});
}

function noteFailure(
  { request, requestId, token, service }: Exchange,
  status: number,
  { reason }: Refusal,
  route: Route | undefined,
): void {
  const path = showPath(route, request);
  const { method } = request;
  const atMs = Date.now();
  service.reports.noteFailure({
    atMs,
    status,
    reason,
    method,
    path,
    token: token?.name,
    requestId,
  });
}

/** With an id if it is one: a client may send anything, even a token, in its place. */
const showPath = (route: Route | undefined, { params }: RoutedRequest): string =>
  route === undefined
    ? "other"
    : route.path.replace("{id}", (open) =>
        /^(-?\d{1,19}|[0-9a-f]{16})$/.test(params?.["id"] ?? "") ? (params?.["id"] ?? "") : open,
      );

const PATH_CHARACTERS_MAX = 200;
/** https://www.w3.org/TR/trace-context/#traceparent-header */
const TRACEPARENT = /^[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

/** One line: what, how long, and who. Never a token, a body or a query. */
function logRequest(exchange: Exchange, status: number, refusal: Refusal | undefined): void {
  const { request, requestId, startedAtMs, token, service } = exchange;
  const { log, config } = service;
  const { headers } = request;
  const fields = {
    requestId,
    traceId: TRACEPARENT.exec(headers.get("traceparent") ?? "")?.[1],
    method: request.method,
    path: pathOf(request.url).slice(0, PATH_CHARACTERS_MAX),
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
  const logFailure = status === 500 ? log.error : log.warn;
  logFailure("request", { ...failed, cause: refusal.cause });
}

/** RFC 9112, section 3.2: exactly one Host, and a valid one. The runtime joins several by commas. */
const HOST = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/;

function requireSaneHead(request: Request, urlBytesMax: number): void {
  const host = request.headers.get("host");
  // HTTP/1.0 allows a request without Host. The runtime refuses any other.
  if (host !== null && !HOST.test(host)) throw new Refusal("malformed_request");
  if (request.url.length > urlBytesMax) throw new Refusal("url_too_long");
}

export class LacksScope extends Refusal {
  readonly scope: Scope;

  constructor(scope: Scope) {
    super("insufficient_scope", `The token lacks the scope ${scope}.`);
    this.scope = scope;
  }
}

type ExtraHeaders = Readonly<Record<string, string>>;

const API_HEADERS = { "cache-control": "no-store", "x-content-type-options": "nosniff" };
const emptyHeaders = new Headers(API_HEADERS);
/** A template: copying it is cheaper than passing the runtime a plain object. */
const jsonHeaders = new Headers({ "content-type": "application/json", ...API_HEADERS });

/** An answer of the interface. A body is JSON, unless a header says otherwise. */
export function answer(
  status: number,
  body: string | Uint8Array | ReadableStream<Uint8Array> | null,
  more?: ExtraHeaders,
): Response {
  const response = new Response(body, {
    status,
    headers: body === null ? emptyHeaders : jsonHeaders,
  });
  for (const name in more) response.headers.set(name, more[name] as string);
  return response;
}

const RETRY_AFTER_SECONDS = "1";

function answerRefusal(
  exchange: Exchange,
  refusal: Refusal,
  allow: string,
  operation: Operation | undefined,
): Response {
  const { code, status } = catalogue[refusal.reason];
  const headers: Record<string, string> = {};
  if (status === 405) headers["allow"] = allow;
  if (status === 503) headers["retry-after"] = RETRY_AFTER_SECONDS;
  if (refusal instanceof RateLimited) headers["retry-after"] = String(refusal.retryAfterSeconds);
  if (refusal.reason === "unsupported_encoding") headers["accept-encoding"] = "identity";
  if (status === 401 || status === 403) headers["www-authenticate"] = challenge(refusal);
  if (status === 415 && operation?.bodyTypes !== undefined)
    headers["accept-post"] = operation.bodyTypes.join(", ");
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

/** RFC 6750, section 3: no error code if the client sent no token. */
function challenge(refusal: Refusal): string {
  const realm = 'Bearer realm="plants"';
  if (refusal.reason === "token_missing") return realm;
  if (refusal instanceof LacksScope)
    return `${realm}, error="insufficient_scope", scope="${refusal.scope}"`;
  if (refusal.reason === "insufficient_scope") return `${realm}, error="insufficient_scope"`;
  return `${realm}, error="invalid_token"`;
}

const EXPOSED_HEADERS =
  "ETag, Idempotent-Replayed, Last-Change, Link, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id";
const PREFLIGHT_SECONDS = "600";

/** The service takes no credentials that a browser sends by itself, so `*` is as safe as a list. */
function addCorsHeaders({ service, request }: Exchange, headers: Headers, allow: string): void {
  const origins = service.config.corsOrigins;
  const origin = request.headers.get("origin");
  headers.append("vary", "Origin");
  if (origin === null || !(origins.includes("*") || origins.includes(origin))) return;
  headers.set("access-control-allow-origin", origin);
  headers.set("access-control-expose-headers", EXPOSED_HEADERS);
  if (request.method !== "OPTIONS" || !request.headers.has("access-control-request-method")) return;
  headers.set("access-control-allow-methods", allow);
  headers.set(
    "access-control-allow-headers",
    "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, Prefer, X-Request-Id",
  );
  headers.set("access-control-max-age", PREFLIGHT_SECONDS);
}
