/** One request, from its head to its answer. The only place where every failure is caught. */

import type { Principal } from "../auth/authenticate.ts";
import { Refusal } from "../domain/errors.ts";
import type { Scope } from "../domain/token.ts";
import { flushOverdue } from "../store/batcher.ts";
import { corsHeaders } from "./cors.ts";
import { answerRefusal, toRefusal, toResponse } from "./respond.ts";
import { allowedMethods, describePath } from "./routes.ts";
import type { Answer, Method, Operation, Route, RoutedRequest, Service } from "./service.ts";

export type Handler = (request: RoutedRequest) => Promise<Response>;

/** The handler of a path; without a route, of all the paths that there are not. */
export function createHandler(service: Service, route: Route | undefined): Handler {
  const allow = route === undefined ? "" : allowedMethods(route);
  const { metrics } = service;
  // Of paths that there are not, anyone can make up any number: they are one.
  const countRequest = metrics.counterOf(route === undefined ? "other" : describePath(route));
  return async (request) => {
    const startedAtMs = performance.now();
    flushOverdue(startedAtMs);
    const requestId = chooseRequestId(request.headers.get("x-request-id"));
    let answer: Answer;
    let refusal: Refusal | undefined;
    try {
      answer = await perform(service, route, allow, request, requestId);
    } catch (error) {
      refusal = toRefusal(error);
      answer = answerRefusal(refusal, allow, findOperation(route, request.method)?.scope);
    }
    const durationMs = performance.now() - startedAtMs;
    countRequest(request.method, answer.status);
    if (answer.isCreated) metrics.countCreate(durationMs);
    logRequest(service, request, { requestId, durationMs, status: answer.status, refusal });
    return toResponse(answer, requestId, connectionHeaders(service, request, allow));
  };
}

async function perform(
  service: Service,
  route: Route | undefined,
  allow: string,
  request: RoutedRequest,
  requestId: string,
): Promise<Answer> {
  requireSaneHead(request, service.config.urlBytesMax);
  if (route === undefined) throw new Refusal("path_not_found");
  if (request.method === "OPTIONS") return { status: 204, body: null, headers: { allow } };
  const operation = findOperation(route, request.method);
  if (operation === undefined) throw new Refusal("method_not_allowed");
  if (operation.scope === undefined) return operation.handle(request, service, requestId);
  const found = service.authenticator.authenticate(request.headers.get("authorization"));
  // A token seen lately is judged at once; awaiting it all the same would cost a turn.
  const principal = found instanceof Promise ? await found : found;
  requireScope(principal, operation.scope);
  return operation.handle(request, service, requestId, principal);
}

/** The runtime sends no body in answer to HEAD, so that it is GET in everything else. */
function findOperation(route: Route | undefined, method: string): Operation | undefined {
  return route?.operations[(method === "HEAD" ? "GET" : method) as Method];
}

function requireScope(principal: Principal, scope: Scope | "any"): void {
  if (scope !== "any" && !principal.scopes.includes(scope))
    throw new Refusal("insufficient_scope", `The token lacks the scope ${scope}.`);
}

/** RFC 9112, section 3.2: exactly one Host, and a valid one. The runtime joins several by commas. */
const HOST = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/;

function requireSaneHead(request: Request, urlBytesMax: number): void {
  const host = request.headers.get("host");
  // None at all can only be HTTP/1.0, which allows it: the runtime has refused any other such request.
  if (host !== null && !HOST.test(host)) throw new Refusal("malformed_request");
  if (request.url.length > urlBytesMax) throw new Refusal("url_too_long");
}

const SANE_REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;
const requestIdPrefix = Math.random().toString(36).slice(2, 10);
let requestCount = 0;

function chooseRequestId(incoming: string | null): string {
  if (incoming !== null && SANE_REQUEST_ID.test(incoming)) return incoming;
  return `${requestIdPrefix}-${(++requestCount).toString(36)}`;
}

function connectionHeaders(
  service: Service,
  request: Request,
  allow: string,
): Record<string, string> | undefined {
  const { corsOrigins } = service.config;
  if (corsOrigins.length === 0 && !service.readiness.isDraining) return undefined;
  const cors = corsOrigins.length === 0 ? {} : corsHeaders(request, corsOrigins, allow);
  return service.readiness.isDraining ? { ...cors, connection: "close" } : cors;
}

interface Observed {
  readonly requestId: string;
  readonly durationMs: number;
  readonly status: number;
  readonly refusal: Refusal | undefined;
}

const LOGGED_PATH_CHARACTERS_MAX = 200;

function logRequest(service: Service, request: Request, observed: Observed): void {
  const { refusal, requestId, status } = observed;
  if (refusal === undefined && service.config.logLevel !== "debug") return;
  const fields = {
    requestId,
    method: request.method,
    path: pathOf(request.url).slice(0, LOGGED_PATH_CHARACTERS_MAX),
    status,
    durationMs: Math.round(observed.durationMs * 1000) / 1000,
  };
  if (refusal === undefined) return service.log.debug("request", fields);
  // The message may quote the body, so that the name has to do; our own failures come with their cause.
  const failed = { ...fields, reason: refusal.reason };
  if (status < 500) return service.log.info("request", failed);
  const logFailure = status === 500 ? service.log.error : service.log.warn;
  logFailure("request", { ...failed, cause: refusal.cause });
}

/** Without the query, which may hold anything. An odd Host leaves no origin to take off. */
function pathOf(url: string): string {
  return url.replace(/^[a-z]+:\/\/[^/]*/, "").replace(/[?#].*$/s, "");
}
