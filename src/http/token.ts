/** GET /token: what the sender's own token is, and what it may do. */

import type { Principal } from "../auth/authenticate.ts";
import type { Answer, RoutedRequest, Service } from "./service.ts";

export function answerToken(
  _request: RoutedRequest,
  _service: Service,
  _requestId: string,
  { name, prefix, scopes, expiresAtMs }: Principal,
): Answer {
  const expires = expiresAtMs === undefined ? undefined : new Date(expiresAtMs).toISOString();
  return { status: 200, body: JSON.stringify({ name, prefix, scopes, expires }) };
}
