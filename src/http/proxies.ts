/** What trusted proxies say of a request: the address of the client, and the path prefix that they removed. */

import { familyOf, isBasePath, isIn } from "../address.ts";

/** The last address that is not a trusted proxy's: each proxy appends one, and a client can send any. */
export function findClientAddress(
  headers: Headers,
  peer: string | undefined,
  { trustedProxies }: { readonly trustedProxies: readonly string[] },
): string | undefined {
  let address = peer;
  if (trustedProxies.length === 0 || address === undefined) return address;
  const chain = listForwarded(headers);
  while (isIn(trustedProxies, address)) {
    const before = chain.pop();
    if (before === undefined || familyOf(before) === 0) return address;
    address = before;
  }
  return address;
}

/** The path prefix that proxies have stripped, the outermost first. Headers of other clients are ignored. */
export function findForwardedPrefix(
  headers: Headers,
  findPeer: () => string | undefined,
  { trustedProxies }: { readonly trustedProxies: readonly string[] },
): string {
  const sent = trustedProxies.length === 0 ? null : headers.get("x-forwarded-prefix");
  if (sent === null || sent.length > 200) return "";
  const prefix = sent.replaceAll(/\/? *, */g, "").replace(/\/$/, "");
  const peer = findPeer();
  return isBasePath(prefix) && peer !== undefined && isIn(trustedProxies, peer) ? prefix : "";
}

/** `Forwarded` (RFC 7239), or else `X-Forwarded-For`. */
function listForwarded(headers: Headers): string[] {
  const forwarded = headers.get("forwarded");
  // Parsing a crafted one would take a second. No real chain of proxies is as long.
  if (forwarded !== null && forwarded.length > 1_000) return [];
  const addresses =
    forwarded === null
      ? (headers.get("x-forwarded-for") ?? "").split(",")
      : (forwarded.match(HOP) ?? []).map((hop) => /(?:^|;)\s*for="?([^;"]*)/i.exec(hop)?.[1] ?? "");
  // IPv6 may be in brackets, and either may have a port.
  return addresses.map((text) => text.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, "$1$3"));
}

/** A comma inside quotes does not end a hop. */
const HOP = /(?:"(?:[^"\\]|\\.)*"|[^,"])+/g;
