/** From an answer or a failure to the response on the wire. */

import { catalogue, type ErrorName, Refusal } from "../domain/errors.ts";
import type { Answer, Operation } from "./service.ts";

/** On every answer. An API has nothing to run, frame, sniff, cache or refer to. */
const COMMON_HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};
/** Copied by the runtime for each answer: cheaper than handing it the same names and values again. */
const emptyHeaders = new Headers(COMMON_HEADERS);
const jsonHeaders = new Headers({ "content-type": "application/json", ...COMMON_HEADERS });

const RETRY_AFTER_SECONDS = "1";

/** The connection cannot be used again after these: part of the request may still be on its way. */
const ENDS_CONNECTION: ReadonlySet<ErrorName> = new Set([
  "body_too_large",
  "body_too_slow",
  "body_incomplete",
]);

export function toResponse(
  answer: Answer,
  requestId: string,
  more: Readonly<Record<string, string>> | undefined,
): Response {
  const response = new Response(answer.body, {
    status: answer.status,
    headers: answer.body === null ? emptyHeaders : jsonHeaders,
  });
  response.headers.set("x-request-id", requestId);
  for (const name in answer.headers) response.headers.set(name, answer.headers[name] ?? "");
  // What an answer varies by adds up.
  for (const name in more)
    if (name === "vary") response.headers.append(name, more[name] ?? "");
    else response.headers.set(name, more[name] ?? "");
  return response;
}

/** What is not a Refusal is our defect, and its message stays with us. */
export function toRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal("internal", undefined, error);
}

export function answerRefusal(refusal: Refusal, allow: string, scope: Operation["scope"]): Answer {
  const { code, status } = catalogue[refusal.reason];
  const headers: Record<string, string> = {};
  if (status === 405) headers["allow"] = allow;
  if (status === 503) headers["retry-after"] = RETRY_AFTER_SECONDS;
  if (refusal.reason === "unsupported_encoding") headers["accept-encoding"] = "identity";
  if (status === 401 || status === 403) headers["www-authenticate"] = challenge(refusal, scope);
  if (ENDS_CONNECTION.has(refusal.reason)) headers["connection"] = "close";
  return { status, body: JSON.stringify({ error: code, message: refusal.message }), headers };
}

/** RFC 6750, section 3: no error code where no token was sent. */
function challenge(refusal: Refusal, scope: Operation["scope"]): string {
  const realm = 'Bearer realm="plants"';
  if (refusal.reason === "token_missing") return realm;
  if (refusal.reason === "insufficient_scope")
    return `${realm}, error="insufficient_scope", scope="${scope}"`;
  return `${realm}, error="invalid_token"`;
}
