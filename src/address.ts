/** Hosts, IP addresses and networks. node:net loads slowly, so it is loaded on first use. */

import type { BlockList } from "node:net";

const loadNet = () => process.getBuiltinModule("node:net");

/** 4, 6, or 0 if it is not an address. */
export const familyOf = (text: string): number => loadNet().isIP(text);

const toType = (address: string): "ipv4" | "ipv6" => (familyOf(address) === 6 ? "ipv6" : "ipv4");

const lists = new WeakMap<readonly string[], BlockList>();

/** Whether the address is one of these, or in one of these networks, as in 10.0.0.0/8. */
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

const IPV4 = /^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(?!$)|$)){4}$/;
/** RFC 1123, section 2.1, and underscores, which some networks use. */
const LABEL = /^(?!-)[A-Za-z0-9_-]{1,63}(?<!-)$/;

/** A host name or an IP address. A name whose last label is a number would be taken for an IPv4 address. */
export function isHost(text: string): boolean {
  if (text.includes(":")) return !text.includes("%") && familyOf(text) === 6;
  const labels = text.replace(/\.$/, "").split(".");
  if (/^\d+$/.test(labels.at(-1) ?? "")) return IPV4.test(text);
  return text.length <= 253 && labels.every((label) => LABEL.test(label));
}

/** https, or http to this machine. */
export function isSecureUrl(text: unknown): text is string {
  const url = typeof text === "string" ? URL.parse(text) : null;
  const isLoopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url?.hostname ?? "");
  return url?.protocol === "https:" || (url?.protocol === "http:" && isLoopback);
}

/** Without "." and "..", which would resolve to another path. */
export const isBasePath = (text: string): boolean =>
  /^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)*$/.test(text);
