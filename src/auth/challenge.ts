/** The WWW-Authenticate header of a refusal, and where it points clients that need a JWT. */

import type { Refusal } from "../domain/errors.ts";

/** RFC 6750, section 3: no error code if the client sent no token. A refused JWT has its failed check as the cause. */
export function challenge({ reason, message, cause }: Refusal, jwtAudience: string): string {
  const realm = `Bearer realm="plants"${pointToMetadata(jwtAudience)}`;
  if (reason === "token_missing") return realm;
  const isScope = reason === "insufficient_scope";
  const more = isScope ? `, scope="${String(cause)}"` : `, error_description="${message}"`;
  const error = isScope ? "insufficient_scope" : "invalid_token";
  return `${realm}, error="${error}"${typeof cause === "string" ? more : ""}`;
}

export const METADATA_PATH = "/.well-known/oauth-protected-resource";

/** RFC 9728, section 5.1. */
function pointToMetadata(audience: string): string {
  const url = findMetadataUrl(audience);
  return url === undefined ? "" : `, resource_metadata="${url.href}"`;
}

/** Known if the audience is the URL of the service. Its path follows the well-known one: RFC 9728, section 3.1. */
export function findMetadataUrl(audience: string): URL | undefined {
  const url = /^https?:/.test(audience) ? URL.parse(audience) : null;
  if (url === null) return undefined;
  url.pathname = METADATA_PATH + url.pathname.replace(/^\/$/, "");
  return url;
}
