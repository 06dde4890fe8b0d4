/** The HTTP client that the console and the command line share. */

import { describe, expect, test } from "bun:test";
import { Client } from "../client/client.ts";
import { errorNames, isTransient } from "../client/errors.ts";
import { catalogue } from "../src/domain/errors.ts";
import type { Plant } from "../src/domain/plant.ts";
import { rejectionOf } from "./support/expect.ts";

const plants: Plant[] = [
  { id: -(2n ** 63n), name: '{"id":1', tag: "" },
  { id: 1n, name: "a", tag: undefined },
  { id: 2n ** 53n + 1n, name: "\u2028\n", tag: "x" },
];

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

  test("an abort lets a batch under way be answered, and counts what it stored", async () => {
    const controller = new AbortController();
    const answer = Promise.withResolvers<undefined>();
    using slow = Bun.serve({
      port: 0,
      fetch: async () => {
        controller.abort(new Error("cancelled"));
        await answer.promise;
        const headers = { "content-type": "application/x-ndjson" };
        return new Response('{"line":1,"status":200}\n', { headers });
      },
    });
    const settled: number[] = [];
    const client = new Client(slow.url.href, "x");
    const sent = client.createBatch(plants, (index) => settled.push(index), {
      signal: controller.signal,
    });
    setTimeout(answer.resolve, 50);
    expect(((await rejectionOf(sent)) as Error).message).toBe("cancelled");
    expect(settled).toEqual([0]);
  });

  test("an abort before the batch begins sends nothing, and leaves no timer behind", async () => {
    let requests = 0;
    using server = Bun.serve({
      port: 0,
      fetch: () => {
        requests++;
        return new Response();
      },
    });
    const script = `
      import { Client } from "${import.meta.dir}/../client/client.ts";
      const client = new Client("${server.url.href}", "x");
      const signal = AbortSignal.abort(new Error("cancelled"));
      const plants = [{ id: 1n, name: "a", tag: undefined }];
      await client.createBatch(plants, () => {}, { signal }).catch(({ message }) => console.log(message));`;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    expect(await new Response(child.stdout).text()).toBe("cancelled\n");
    expect(await child.exited).toBe(0);
    expect(requests).toBe(0);
  });

  test.each(["{}", "[1]", '[{"id":1}]', '[{"name":"a","id":1}]', "[{"])(
    "a page of %s is not the answer of a plant store",
    async (page) => {
      using other = Bun.serve({ port: 0, fetch: () => new Response(page) });
      const failure = await rejectionOf(new Client(other.url.href, "x").listPage({}));
      expect((failure as Error).message).toBe(
        `${other.url.origin} does not answer as a plant store does.`,
      );
    },
  );

  test("get does not take 304 for an answer where no etag was sent", async () => {
    using other = Bun.serve({ port: 0, fetch: () => new Response(null, { status: 304 }) });
    const client = new Client(other.url.href, "x");
    expect(await rejectionOf(client.get(1n))).toMatchObject({ status: 304 });
    expect(await client.get(1n, { ifNoneMatch: '"x"' })).toBeUndefined();
  });

  const plant = { id: 1n, name: "a" };
  const tagged = { headers: { etag: '"x"' } };
  test.each([
    ["create", (client: Client) => client.create(plant), []],
    ["get", (client: Client) => client.get(1n), [['{"id":1,"name":"a"}'], ["{}", tagged]]],
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
