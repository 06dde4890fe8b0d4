/** The HTTP client that the console and the command line share. */

import { describe, expect, test } from "bun:test";
import { Client } from "../../client/client.ts";
import { errorNames, isTransient } from "../../client/errors.ts";
import { catalogue } from "../../src/domain/errors.ts";
import { rejectionOf } from "../support/expect.ts";

describe("the client", () => {
  test.each([
    "",
    "nonsense",
    "ftp://a",
    "http://",
    "http://me:secret@a",
    "http://a?b",
    "http://a#b",
  ])("refuses the address %j at once", (url) =>
    expect(() => new Client(url, "x")).toThrow(TypeError),
  );

  test("knows every error of the service, and which of them pass", () => {
    const entries = Object.entries(catalogue);
    expect(errorNames as object).toEqual(
      Object.fromEntries(entries.map(([name, { code }]) => [code, name])),
    );
    for (const [, { status, code, retry: mayPass }] of entries)
      expect([code, isTransient(status, code)]).toEqual([code, mayPass]);
  });

  test("get refuses a 304 where no etag was sent", async () => {
    using other = Bun.serve({ port: 0, fetch: () => new Response(null, { status: 304 }) });
    const client = new Client(other.url.href, "x");
    expect(await rejectionOf(client.get(1n))).toMatchObject({ status: 304 });
    expect(await client.get(1n, { ifNoneMatch: '"x"' })).toBeUndefined();
  });

  const plant = { id: 1n, name: "a" };
  const tagged = { headers: { etag: '"x"' } };
  const pages = ["{}", "[1]", '[{"id":1}]', "[{"];
  test.each([
    ["create", (client: Client) => client.create(plant), []],
    ["get", (client: Client) => client.get(1n), [['{"id":1,"name":"a"}'], ["{}", tagged]]],
    ["listPage", (client: Client) => client.listPage(), pages.map((page) => [page] as const)],
    ["replace", (client: Client) => client.replace(plant), [['{"name":"a"}'], ["{}", tagged]]],
    ["remove", (client: Client) => client.remove(1n), []],
  ] as const)("%s takes no other answer of 2xx for success", async (_, use, others) => {
    let answer: readonly [string, ResponseInit?] = [""];
    using other = Bun.serve({ port: 0, fetch: () => new Response(...answer) });
    const client = new Client(other.url.href, "x");
    const page = { headers: { "content-type": "text/html", etag: "*" } };
    for (answer of [[""], ["null"], ["<html>Please sign in</html>", page], ...others] as const) {
      const failure = await rejectionOf(use(client));
      expect((failure as Error).message).toBe(
        `${other.url.origin} does not answer as a plant store does.`,
      );
    }
  });
});
