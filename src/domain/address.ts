/** Addresses and networks, and what proxies say of a request. node:net takes long to load, so it is loaded when one of them has to be judged. */

import type { BlockList } from "node:net";

const loadNet = () => process.getBuiltinModule("node:net");

/** 4, 6, or 0 if it is not an address. */
export const familyOf = (text: string): number => loadNet().isIP(text);

const toType = (address: string): "ipv4" | "ipv6" => (familyOf(address) === 6 ? "ipv6" : "ipv4");

const lists = new WeakMap<readonly string[], BlockList>();

/** Whether it is one of these addresses, or in one of these networks, as in 10.0.0.0/8. */
export function isIn(networks: readonly string[], address: string): boolean {
  const list = lists.get(networks) ?? createList(networks);
  lists.set(networks, list);
  return list.check(address, toType(address));
}

function createList(networks: readonly string[]): BlockList {
  const list = new (loadNet().BlockList)();
  for (const network of networks) {
    const [address = "", bits] = network.split("/");
    if (bits === undefined) list.addAddress(address, toType(address));
    else list.addSubnet(address, Number(bits), toType(address));
  }
  return list;
}

/** The last address that is not of a trusted proxy: each proxy adds one at the end, and a client can send any. */
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

/** Without "." and "..", which lead elsewhere. */
export const isBasePath = (text: string): boolean =>
  /^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)*$/.test(text);

/** What proxies have taken away from the path, the outermost first. A client that is no proxy is not believed. */
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

/** RFC 7239, or what came before it. */
function listForwarded(headers: Headers): string[] {
  const forwarded = headers.get("forwarded");
  // To split a crafted one would take a second. No chain of proxies writes as much.
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
