/** Addresses and networks. node:net takes long to load, so it is loaded when one of them has to be judged. */

import type { BlockList } from "node:net";

const loadNet = () => process.getBuiltinModule("node:net");

/** 4, 6, or 0 if it is not an address. */
export const familyOf = (text: string): number => loadNet().isIP(text);

const toType = (address: string): "ipv4" | "ipv6" => (familyOf(address) === 6 ? "ipv6" : "ipv4");

/** Of addresses, and of networks as in 10.0.0.0/8. */
export function createList(networks: readonly string[]): BlockList {
  const list = new (loadNet().BlockList)();
  for (const network of networks) {
    const [address = "", bits] = network.split("/");
    if (bits === undefined) list.addAddress(address, toType(address));
    else list.addSubnet(address, Number(bits), toType(address));
  }
  return list;
}

export const isInList = (list: BlockList, address: string): boolean =>
  list.check(address, toType(address));
