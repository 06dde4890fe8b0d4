/** Answers, and the memory that they hold until their clients have read them. */

import { challenge } from "../auth/challenge.ts";
import { RateLimited, type RateState } from "../auth/rate-limit.ts";
import { catalogue, Refusal } from "../domain/errors.ts";
import { requireOpen } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange } from "./exchange.ts";
import { linger } from "./linger.ts";
import { toStream } from "./stream.ts";

export type MoreHeaders = Readonly<Record<string, string>>;

const API_HEADERS = { "cache-control": "no-store", "x-content-type-options": "nosniff" };
const emptyHeaders = new Headers(API_HEADERS);
/** A template: copying Headers is cheaper than passing the runtime a plain object. */
const jsonHeaders = new Headers({ "content-type": "application/json", ...API_HEADERS });

/** An API answer without a body, with a shared one, or with a stream, which counts what it sends. */
export const answer = (
  status: number,
  body: Blob | ReadableStream<Uint8Array> | null,
  more?: MoreHeaders,
): Response => respond(status, body, more);

/** Its body is JSON unless a header says otherwise. */
function respond(
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
 * A large text counts as held until the client has read it. Sliced, because the runtime does not report the end. After a
 * write is stored, an echo takes the place of its body in the budget; without memory for a larger answer, the client
 * cannot know that the write is stored, and retries.
 */
export function answerText(
  exchange: Exchange,
  text: string | Uint8Array,
  headers?: MoreHeaders,
  status = 200,
): Response {
  if (isSmall(text)) return respond(status, text, headers);
  const { isStored, bytesKept } = exchange;
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  if (isStored && text.length <= bytesKept) exchange.hold(bytes.length);
  else
    try {
      exchange.reserve(bytes.length, ANSWERS_SHARE);
    } catch (error) {
      throw isStored ? new Refusal("store_unavailable", undefined, error) : error;
    }
  const slices = async function* (): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += SLICE_BYTES)
      yield bytes.subarray(at, at + SLICE_BYTES);
  };
  return respond(status, toStream(exchange, slices), headers);
}

export function answerJson(
  exchange: Exchange,
  value: unknown,
  headers?: MoreHeaders,
  status = 200,
): Response {
  const json = JSON.stringify(value);
  requireRoomToAnswer(exchange, json.length);
  return answerText(exchange, json, headers, status);
}

/** Throws a Refusal if the answer is large and others hold half of the budget. */
export function requireRoomToAnswer(exchange: Exchange, characters: number): void {
  if (characters > SMALL_BYTES_MAX) exchange.reserve(exchange.bytesKept, ANSWERS_SHARE);
}

/** For a plant echoed in the answer: refuses a large one before it is stored if the answer could not be sent. */
export function requireSendable(exchange: Exchange, characters: number): Promise<void> | undefined {
  if (characters * CHARACTER_BYTES_MAX <= SMALL_BYTES_MAX) return undefined;
  exchange.reserve(exchange.bytesKept, ANSWERS_SHARE);
  return requireOpen(exchange.request);
}

/** Linked Data Platform, section 7.1, and RFC 5789, section 2.2. Neither is for a PUT: it would name a method that the path lacks. */
const ACCEPT_HEADERS: ReadonlyMap<string, string> = new Map([
  ["POST", "accept-post"],
  ["PATCH", "accept-patch"],
]);

/** The answer to a request that was refused, or failed. */
export function answerRefusal(
  exchange: Exchange,
  refusal: Refusal,
  allow: string,
  accepted?: { readonly types: readonly string[]; readonly codings?: string },
): Response {
  const { code, status } = catalogue[refusal.reason];
  const headers: Record<string, string> = {};
  if (status === 405) headers["allow"] = allow;
  if (status === 503) headers["retry-after"] = "1";
  if (refusal instanceof RateLimited) headers["retry-after"] = String(refusal.retryAfterSeconds);
  if (refusal.reason === "unsupported_encoding")
    headers["accept-encoding"] = accepted?.codings ?? "identity";
  if (status === 401 || status === 403)
    headers["www-authenticate"] = challenge(refusal, exchange.service.config.jwtAudience);
  const accept = ACCEPT_HEADERS.get(exchange.request.method);
  if (status === 415 && accept !== undefined && accepted !== undefined)
    headers[accept] = accepted.types.join(", ");
  const text = JSON.stringify({ error: code, message: refusal.message });
  const { body, closes } = linger(exchange, text);
  if (closes) headers["connection"] = "close";
  return respond(status, body, headers);
}

/** https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ (10) */
export function addRateHeaders(headers: Headers, state: RateState): void {
  const { units, windowSeconds, remaining, resetSeconds } = state;
  headers.set("ratelimit-policy", `"token";q=${units};w=${windowSeconds}`);
  headers.set("ratelimit", `"token";r=${remaining};t=${resetSeconds}`);
}

/** The headers of answers, for the description and for pages of other origins. */
export const answerHeaders = {
  "X-Request-Id":
    "Names this request in the service's log. Sent with every failure, and with a success if the request has one.",
  Link: 'The next page, as `<…>; rel="next"` (RFC 8288). The last page has none.',
  "Last-Change": "The number of the newest change.",
  "Idempotent-Replayed": "`true` if the plant was in the store already.",
  "Preference-Applied":
    "The preference that was followed: `return=minimal` or `respond-async` (RFC 7240).",
  ETag: "A strong entity tag of the plant.",
  "WWW-Authenticate": "RFC 6750.",
  "Retry-After": "Seconds.",
  RateLimit:
    'What the token has left, as in `"token";r=7;t=1`: units, and seconds until all are available again (IETF draft).',
  "RateLimit-Policy":
    'What the token may use, as in `"token";q=100;w=1`: units in a window of seconds (IETF draft).',
  "Accept-Post": "The media types that a POST accepts (W3C Linked Data Platform).",
  "Accept-Patch": "The media types that a PATCH accepts (RFC 5789).",
  "Accept-Encoding": "`identity` if the body was refused for its content encoding (RFC 9110).",
};

const EXPOSED_HEADERS = Object.keys(answerHeaders).join(", ");

/** Browsers send no credentials to the service on their own, so `*` is as safe as a list. */
export function addCorsHeaders(
  { service, request }: Exchange,
  headers: Headers,
  allow: string,
): void {
  const origins = service.config.corsOrigins;
  const origin = request.headers.get("origin");
  headers.append("vary", "Origin");
  if (origin === null || !(origins.includes("*") || origins.includes(origin))) return;
  headers.set("access-control-allow-origin", origin);
  headers.set("access-control-expose-headers", EXPOSED_HEADERS);
  if (request.method !== "OPTIONS" || !request.headers.has("access-control-request-method")) return;
  headers.set("access-control-allow-methods", allow);
  headers.set("access-control-allow-headers", service.sentHeaders);
  headers.set("access-control-max-age", "600");
}
