/** One request, from its head to its answer. Every failure is caught here. */

import { RateLimited } from "../auth/rate-limit.ts";
import { Refusal, toRefusal } from "../domain/errors.ts";
import type { Scope, TokenRecord } from "../domain/token.ts";
import { methods } from "../observe/metrics.ts";
import { flushOverdue, joinTick } from "../tick.ts";
import {
  addCorsHeaders,
  addRateHeaders,
  answer,
  answerJson,
  answerRefusal,
  requireSendable,
} from "./answer.ts";
import { countUnread, ignoreBody, readText, requireMediaType, requireType } from "./body.ts";
import { Exchange, type Input, type RoutedRequest, type Service } from "./exchange.ts";
import { createObserver, HOST } from "./observer.ts";
import { createHeadParser, type Head } from "./query.ts";

export interface Operation extends Pick<Head, "headers"> {
  /** The scopes that a token needs, all of them; none: any valid token. Undefined: open to all, as it shows no plant. */
  readonly scopes: readonly Scope[] | undefined;
  readonly kind: Kind;
  /** It tells of the whole store, so it refuses confined tokens. */
  readonly isWhole: boolean;
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

/** Those that requests may have, besides the fields of their operations. */
const SENT_HEADERS =
  "Authorization, Content-Encoding, Content-Type, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Traceparent, Tracestate, X-Request-Id";

export function listSentHeaders(routes: readonly Route[]): string {
  const fields = routes.flatMap(({ operations }) =>
    Object.values(operations).flatMap(({ headers = {} }) => Object.keys(headers)),
  );
  return [SENT_HEADERS, ...new Set(fields)].join(", ");
}

/** The handler of a route or, without one, of all unknown paths. */
export function createHandler(service: Service, route: Route | undefined) {
  const { config, tracer } = service;
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
  const isOpen = operations.values().every(({ scopes }) => scopes === undefined);
  const served = Object.keys(route?.operations ?? {});
  const observe = createObserver(service, route?.path, served, isOpen);

  function finish(exchange: Exchange, response: Response, refusal: Refusal | undefined): Response {
    const { request } = exchange;
    if (exchange.bytesKept > 0 && !exchange.isStreamed) exchange.hold(0);
    // Also before a stream, which nobody reads in answer to HEAD.
    if (exchange.isPatient) service.limitIdle(request, config.idleSecondsMax);
    // The runtime makes `response.headers` on demand, and most answers set none.
    if (refusal !== undefined || exchange.sentId !== null)
      response.headers.set("x-request-id", exchange.requestId);
    if (exchange.rate !== undefined) addRateHeaders(response.headers, exchange.rate);
    // The runtime omits it in answers to HEAD.
    if (request.method === "HEAD") response.headers.set("date", new Date().toUTCString());
    if (config.corsOrigins.length > 0) addCorsHeaders(exchange, response.headers, allow);
    if (service.readiness.isDraining) response.headers.set("connection", "close");
    observe(exchange, response.status, refusal);
    return response;
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
      exchange.isStored ||= operation.kind === "create" || operation.kind === "write";
      const answered = (operation.answer ?? answerResult)(result, input, exchange);
      return finish(exchange, answered instanceof Promise ? await answered : answered, undefined);
    } catch (error) {
      // A client that left is no failure of ours. Its signal takes memory, so it is looked at last.
      const isAbort = error instanceof Error && error.name === "AbortError";
      const isGone = isAbort && request.signal.aborted;
      const refusal = isGone ? new Refusal("body_incomplete") : toRefusal(error);
      if (refusal instanceof RateLimited) exchange.rate = refusal.state;
      return finish(exchange, answerRefusal(exchange, refusal, allow, operation?.body), refusal);
    }
  };
}

/** Shows no plant, so it needs no token. Ignores its query. */
export const openOperation = (run: Operation["run"], head: Head = {}): Operation => ({
  scopes: undefined,
  kind: "other",
  isWhole: false,
  headers: head.headers,
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
  if (operation.isWhole && token.tags !== undefined) throw new Refusal("token_confined");
  if (kind === "batch") service.rates.requireBatch(token);
}

/** The answer's WWW-Authenticate header names the scope that is missing. */
export function requireScopes(token: TokenRecord | undefined, scopes: readonly Scope[]): void {
  for (const scope of scopes)
    if (!token?.scopes.includes(scope))
      throw new Refusal("insufficient_scope", `The token lacks the scope ${scope}.`, scope);
}

const answerResult: Answering = (result, _input, exchange) =>
  result instanceof Response ? result : answerJson(exchange, result);
