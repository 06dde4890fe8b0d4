/** One line of the log for a request: what, how long, and who. Never a token, a body or a query. */

import type { BlockList } from "node:net";
import { createList, familyOf, isInList } from "../auth/address.ts";
import type { Config } from "../config.ts";
import type { Refusal } from "../domain/errors.ts";
import type { Log } from "../observe/log.ts";

interface Logged {
  readonly request: Request;
  readonly requestId: string;
  readonly startedAtMs: number;
  readonly tokenName: string | undefined;
  readonly service: {
    readonly config: Config;
    readonly log: Log;
    readonly addressOf: (request: Request) => string | undefined;
  };
}

const PATH_CHARACTERS_MAX = 200;
/** https://www.w3.org/TR/trace-context/#traceparent-header */
const TRACEPARENT = /^[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

export function logRequest(exchange: Logged, status: number, refusal: Refusal | undefined): void {
  const { request, requestId, startedAtMs, tokenName, service } = exchange;
  const { log, config } = service;
  const { headers } = request;
  const length = headers.get("content-length");
  const fields = {
    requestId,
    traceId: TRACEPARENT.exec(headers.get("traceparent") ?? "")?.[1],
    method: request.method,
    path: pathOf(request.url).slice(0, PATH_CHARACTERS_MAX),
    status,
    durationMs: Math.round((performance.now() - startedAtMs) * 1000) / 1000,
    token: tokenName,
    client: findClientAddress(headers, service.addressOf(request), config),
    bytes: length === null ? undefined : Number.parseInt(length, 10),
  };
  if (refusal === undefined) return (config.logRequests ? log.info : log.debug)("request", fields);
  // The message may quote the body, so it is not logged. Our own failures are logged with their cause.
  const failed = { ...fields, reason: refusal.reason };
  if (status < 500) return log.info("request", failed);
  const logFailure = status === 500 ? log.error : log.warn;
  logFailure("request", { ...failed, cause: refusal.cause });
}

/** Without the query, which may hold anything. With an odd Host the URL has no origin. */
function pathOf(url: string): string {
  return url.replace(/^[a-z]+:\/\/[^/]*/, "").replace(/[?#].*$/s, "");
}

/**
 * Each proxy adds the address that it was called from at the end. A client can send such a header too, so only what
 * trusted proxies have added counts: the last address that is not one of theirs.
 */
export function findClientAddress(
  headers: Headers,
  peer: string | undefined,
  { trustedProxies }: Pick<Config, "trustedProxies">,
): string | undefined {
  let address = peer;
  if (trustedProxies.length === 0 || address === undefined) return address;
  const trusted = listOf(trustedProxies);
  const chain = listForwarded(headers);
  while (isInList(trusted, address)) {
    const before = chain.pop();
    if (before === undefined || familyOf(before) === 0) return address;
    address = before;
  }
  return address;
}

/** RFC 7239, or what came before it. */
function listForwarded(headers: Headers): string[] {
  const forwarded = headers.get("forwarded");
  const addresses =
    forwarded === null
      ? (headers.get("x-forwarded-for") ?? "").split(",")
      : splitHops(forwarded).map((hop) => /(?:^|;)\s*for="?([^;"]*)/i.exec(hop)?.[1] ?? "");
  // IPv6 may be in brackets, and either may have a port.
  return addresses.map((text) => text.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, "$1$3"));
}

/** A comma inside quotes does not end a hop. */
const splitHops = (forwarded: string): string[] =>
  forwarded.match(/(?:"(?:[^"\\]|\\.)*"|[^,"])+/g) ?? [];

const lists = new WeakMap<readonly string[], BlockList>();

function listOf(networks: readonly string[]): BlockList {
  const list = lists.get(networks) ?? createList(networks);
  lists.set(networks, list);
  return list;
}
