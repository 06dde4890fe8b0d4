/** What is told of a request: metrics, log, span and recent requests. None of them stands in its way. */

import type { Refusal } from "../domain/errors.ts";
import { findTraceParent } from "../domain/trace.ts";
import { redact } from "../observe/log.ts";
import { methods, OTHER_PATH } from "../observe/metrics.ts";
import { fillPath } from "../observe/recent-requests.ts";
import { findLength } from "./body.ts";
import type { Exchange, RoutedRequest, Service } from "./exchange.ts";
import { findClientAddress } from "./proxies.ts";
import { pathOf } from "./query.ts";

/** RFC 9112, section 3.2: exactly one valid Host. The runtime joins several with commas. */
export const HOST = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/;

/** Watches the requests of a route, or of all unknown paths: metrics, log, span and recent requests. */
export function createObserver(
  { config, metrics, recent }: Service,
  path: string | undefined,
  methodsServed: readonly string[],
  isOpen: boolean,
) {
  const shownPath = path ?? OTHER_PATH;
  const countRequest = metrics.counterOf(shownPath, methodsServed);
  const isLogged = config.logLevel === "debug";
  const hasId = shownPath.includes("{id}");
  /** Probes, monitoring and files would evict the requests of clients. */
  const isListed = !POLLED_PATHS.has(shownPath) && !isOpen;

  function noteRequest(
    exchange: Exchange,
    status: number,
    refusal: Refusal | undefined,
    endedMs: number,
  ): void {
    const { request, startedAtMs, token, sentId } = exchange;
    recent.note({
      atMs: Date.now(),
      endedMs,
      durationMs: endedMs - startedAtMs,
      status,
      method: request.method,
      path: shownPath,
      id: hasId ? findShownId(request) : undefined,
      reason: refusal?.reason,
      token: token?.name,
      // The client has seen no other.
      requestId: refusal !== undefined || sentId !== null ? exchange.requestId : undefined,
    });
  }

  return (exchange: Exchange, status: number, refusal: Refusal | undefined): void => {
    const endedMs = performance.now();
    countRequest(exchange.request.method, status, endedMs - exchange.startedAtMs);
    if (refusal !== undefined || isLogged) logRequest(exchange, status, refusal);
    if (exchange.span !== undefined) describeSpan(exchange, path, status, refusal);
    if (refusal !== undefined || isListed) noteRequest(exchange, status, refusal, endedMs);
  };
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
