/** Whose address counts behind proxies, and which networks an address is in. */

import { expect, test } from "bun:test";
import { familyOf, isHost, isIn } from "../src/address.ts";
import { findClientAddress } from "../src/http/proxies.ts";

test("an address is in a network, or is one of the addresses", () => {
  const networks = ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1"];
  const inside = ["10.255.0.1", "192.0.2.1", "2001:db8:ffff::1", "::1"];
  const outside = ["11.0.0.1", "192.0.2.2", "2001:db9::1", "::2", ""];
  expect([...inside, ...outside].filter((address) => isIn(networks, address))).toEqual(inside);
  expect(["::1", "10.0.0.1", "10.0.0", "x"].map(familyOf)).toEqual([6, 4, 0, 0]);
});

test("a host is a name or an address, without a port, a zone or a path", () => {
  const hosts = ["::1", "fe80::1", "0.0.0.0", "localhost", "plants.lan.", "my_host-2", "a.b1"];
  const others = ["", "fe80::1%eth0", "[::1]", "::1:x", "1.2.3", "1.2.3.256", "-a", "a..b", "a/b"];
  expect([...hosts, ...others, `${"a".repeat(64)}.b`].filter(isHost)).toEqual(hosts);
});

const trusted = ["10.0.0.0/8", "::1"];
const find = (sent: Record<string, string>, peer = "10.0.0.1", trustedProxies = trusted) =>
  findClientAddress(new Headers(sent), peer || undefined, { trustedProxies });

test.each<[string, string, string | undefined, string[]]>([
  ["no proxy is trusted", "10.0.0.1", "10.0.0.1", []],
  ["the peer is unknown", "", undefined, trusted],
  ["the peer is a proxy", "10.0.0.1", "192.0.2.7", trusted],
  ["the peer is a proxy of IPv6", "::1", "192.0.2.7", trusted],
  ["the peer is no proxy", "192.0.2.9", "192.0.2.9", trusted],
])("if %s, the client of %j is %p", (_name, peer, expected, proxies) =>
  expect(find({ "x-forwarded-for": "6.6.6.6, 192.0.2.7" }, peer, proxies)).toBe(expected),
);

test("a Forwarded header of more than 1,000 characters says nothing, and hides the older one", () => {
  const hop = (length: number): string => `for=192.0.2.7;by="${"x".repeat(length - 19)}"`;
  expect(find({ forwarded: hop(1_000), "x-forwarded-for": "6.6.6.6" })).toBe("192.0.2.7");
  expect(find({ forwarded: hop(1_001), "x-forwarded-for": "6.6.6.6" })).toBe("10.0.0.1");
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
  ["forwarded", 'for="[2001:db8::17]"', "2001:db8::17"],
  ["forwarded", 'proto=https;For="[2001:db8::17]:4711"', "2001:db8::17"],
  ["forwarded", "for=6.6.6.6, by=x", "10.0.0.1"],
  // A quoted comma, and a quote in quotes, end no hop.
  ["forwarded", 'for=192.0.2.7;by="a\\", for=7.7.7.7"', "192.0.2.7"],
  ["forwarded", "for=6.6.6.6, for=_hidden, for=10.1.2.3", "10.1.2.3"],
])("%s: %s is the client %s", (name, value, expected) => {
  const sent = { [name]: value };
  expect([find(sent), find(sent, "6.6.6.7")]).toEqual([expected, "6.6.6.7"]);
});
