/** The Link header to the next page. */

import { describe, expect, test } from "bun:test";
import { grantToken, send, startShared, type TestService } from "../support/service.ts";

export const groups = ["sqlite"];

const fill = async (settings: Record<string, string>): Promise<TestService> => {
  const service = await startShared(settings);
  await service.store.createPlants(
    Array.from({ length: 5 }, (_, id) => ({ id: BigInt(id), name: "n", tag: `t${id}` })),
  );
  for (let tokens = 0; tokens < 2; tokens++) await grantToken(service);
  return service;
};
const plain = await fill({});
const shop = await fill({ PLANTSTORE_BASE_PATH: "/shop", PLANTSTORE_TRUSTED_PROXIES: "127.0.0.1" });
const other = await fill({ PLANTSTORE_TRUSTED_PROXIES: "10.0.0.0/8" });

const linkOf = async (service: TestService, path: string, prefix?: string) => {
  const headers = prefix === undefined ? {} : { "x-forwarded-prefix": prefix };
  const response = await send(service, "GET", `${path}?limit=1`, { headers });
  expect(response.status).toBe(200);
  return /^<([^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
};

const lists = ["/plants", "/tags", "/tags/counts", "/changes", "/tokens"];

/** A path that begins with one slash: it means the same by RFC 3986 and RFC 2396, where a query alone replaces the path. */
describe("the link to the next page", () => {
  test.each(lists)("of %s is a path that begins with the base path", async (path) => {
    expect(await linkOf(plain, path)).toStartWith(`${path}?after=`);
    expect(await linkOf(shop, path)).toStartWith(`/shop${path}?after=`);
    expect(await linkOf(shop, path, "/outer")).toStartWith(`/outer/shop${path}?after=`);
  });

  test.each([
    ["/a/b", "/a/b"],
    ["/a, /b", "/a/b"],
    ["/a/,/b/", "/a/b"],
    ["a", ""],
    ["//evil.example", ""],
    ["/..", ""],
    ["/.well-known", "/.well-known"],
    ["/a>; rel=x", ""],
    [`/${"a".repeat(200)}`, ""],
  ])("begins with X-Forwarded-Prefix: %s of a trusted proxy as %j", async (sent, prefix) => {
    expect(await linkOf(shop, "/plants", sent)).toStartWith(`${prefix}/shop/plants?after=`);
  });

  test("does not begin with what a client says that is no trusted proxy", async () => {
    for (const service of [plain, other])
      expect(await linkOf(service, "/plants", "/evil")).toStartWith("/plants?");
  });
});
