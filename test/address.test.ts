/** Whose address counts behind proxies, and which networks an address is in. */

import { expect, test } from "bun:test";
import { familyOf, findClientAddress, isIn } from "../src/domain/address.ts";

test("an address is in a network, or is one of the addresses", () => {
  const networks = ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1"];
  const inside = ["10.255.0.1", "192.0.2.1", "2001:db8:ffff::1", "::1"];
  const outside = ["11.0.0.1", "192.0.2.2", "2001:db9::1", "::2", ""];
  expect([...inside, ...outside].filter((address) => isIn(networks, address))).toEqual(inside);
  expect(["::1", "10.0.0.1", "10.0.0", "x"].map(familyOf)).toEqual([6, 4, 0, 0]);
});

const trusted = ["10.0.0.0/8", "::1"];

test.each<[string, string, string | undefined, string[]]>([
  ["no proxy is trusted", "10.0.0.1", "10.0.0.1", []],
  ["the peer is unknown", "", undefined, trusted],
  ["the peer is a proxy", "10.0.0.1", "192.0.2.7", trusted],
  ["the peer is a proxy of IPv6", "::1", "192.0.2.7", trusted],
  ["the peer is no proxy", "192.0.2.9", "192.0.2.9", trusted],
])("if %s, the client of %j is %p", (_name, peer, expected, trustedProxies) => {
  const headers = new Headers({ "x-forwarded-for": "6.6.6.6, 192.0.2.7" });
  expect(findClientAddress(headers, peer || undefined, { trustedProxies })).toBe(expected);
});

test("a Forwarded header of more than 1,000 characters says nothing, and hides the older one", () => {
  const find = (forwarded: string): string | undefined => {
    const headers = new Headers({ forwarded, "x-forwarded-for": "6.6.6.6" });
    return findClientAddress(headers, "10.0.0.1", { trustedProxies: trusted });
  };
  const hop = "for=192.0.2.7";
  expect(find(`${hop};by="${"x".repeat(1_000 - hop.length - 6)}"`)).toBe("192.0.2.7");
  expect(find(`${hop};by="${"x".repeat(1_001 - hop.length - 6)}"`)).toBe("10.0.0.1");
  expect(find('for="[2001:db8::17]"')).toBe("2001:db8::17");
  expect(find(`for=6.6.6.6, by=x`)).toBe("10.0.0.1");
  // A quoted comma, and a quote in quotes, end no hop.
  expect(find(`${hop};by="a\\", for=7.7.7.7"`)).toBe("192.0.2.7");
});

test.each([
  ["x-forwarded-for", "192.0.2.7", "192.0.2.7"],
  ["x-forwarded-for", "6.6.6.6, 192.0.2.7", "192.0.2.7"],
  ["x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.1.2.3", "192.0.2.7"],
  ["x-forwarded-for", "192.0.2.7:4711", "192.0.2.7"],
  ["x-forwarded-for", "10.1.2.3", "10.1.2.3"],
  ["x-forwarded-for", "", "10.0.0.1"],
  ["x-forwarded-for", "6.6.6.6, <script>", "10.0.0.1"],
  ["forwarded", "for=192.0.2.7;proto=https", "192.0.2.7"],
  ["forwarded", 'proto=https;For="[2001:db8::17]:4711"', "2001:db8::17"],
  ["forwarded", 'for=192.0.2.7;by="x, for=7.7.7.7"', "192.0.2.7"],
  ["forwarded", "for=6.6.6.6, for=_hidden, for=10.1.2.3", "10.1.2.3"],
])("%s: %s is the client %s", (name, value, expected) => {
  const find = (peer: string): string | undefined =>
    findClientAddress(new Headers({ [name]: value }), peer, { trustedProxies: trusted });
  expect([find("10.0.0.1"), find("6.6.6.7")]).toEqual([expected, "6.6.6.7"]);
});
