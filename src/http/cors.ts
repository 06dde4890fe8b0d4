/** Cross-origin requests: off, unless origins are configured. */

const EXPOSED_HEADERS =
  "ETag, Idempotent-Replayed, Link, Retry-After, WWW-Authenticate, X-Request-Id";
const PREFLIGHT_SECONDS = "600";

/** No credentials of the browser's own are involved, so that `*` is as safe as a list. */
export function corsHeaders(
  request: Request,
  origins: readonly string[],
  allow: string,
): Record<string, string> {
  const origin = request.headers.get("origin");
  const headers: Record<string, string> = { vary: "Origin" };
  if (origin === null || !(origins.includes("*") || origins.includes(origin))) return headers;
  headers["access-control-allow-origin"] = origin;
  headers["access-control-expose-headers"] = EXPOSED_HEADERS;
  if (request.method === "OPTIONS" && request.headers.has("access-control-request-method")) {
    headers["access-control-allow-methods"] = allow;
    headers["access-control-allow-headers"] =
      "Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id";
    headers["access-control-max-age"] = PREFLIGHT_SECONDS;
  }
  return headers;
}
