/** The client in a page: every operation, with batches in blocks because browsers do not stream over HTTP/1.1. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { describeInBrowser, openPage } from "../support/browser.ts";
import { clientScript, installClient } from "../support/client-package.ts";
import { expectedReport } from "../support/client-scenario.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";

describeInBrowser("the client in a page", () => {
  let folder: Awaited<ReturnType<typeof installClient>>;
  beforeAll(async () => {
    folder = await installClient();
    const scenario = join(import.meta.dir, "../support/client-scenario.ts");
    await Bun.build({ entrypoints: [scenario], outdir: folder.path, naming: "scenario.js" });
  });
  afterAll(() => folder[Symbol.dispose]());

  test("runs every operation", async () => {
    await using service = await startService();
    const page =
      "<!doctype html><html lang='en'><title>Plants</title><link rel='icon' href='data:,'><main><h1>Plants</h1></main>";
    // On one origin with the service, as behind a proxy.
    using server = Bun.serve({
      port: 0,
      routes: {
        "/": new Response(page, { headers: { "content-type": "text/html" } }),
        "/client.js": () => new Response(Bun.file(clientScript(folder))),
        "/scenario.js": () => new Response(Bun.file(join(folder.path, "scenario.js"))),
      },
      fetch: (request) => {
        const { pathname, search } = new URL(request.url);
        return fetch(new Request(service.url + pathname + search, request));
      },
    });
    await using view = await openPage({ url: server.url.href });
    // What the scenario is refused is logged by the browser as failed requests.
    for (const [path, status] of [
      ["/plants", 409],
      ["/tokens", 409],
      ["/webhooks/shop.invalid", 404],
      ["/plants/-1", 404],
      ["/changes?after=1&limit=1000", 410],
      ["/plants/9007199254740993", 412],
      ["/plants/9007199254740993", 404],
      ["/plants", 401],
    ] as const)
      view.announceFailure(path, status);
    const report = await view.page.evaluate(
      async ([url, token]) => {
        const at = (name: string): string => `${url}${name}`;
        const client: unknown = await import(at("client.js"));
        const { useClient } = (await import(at("scenario.js"))) as {
          useClient: (...args: unknown[]) => Promise<string>;
        };
        return useClient(client, url, token);
      },
      [server.url.href, TEST_TOKEN] as const,
    );
    expect(JSON.parse(report)).toEqual(expectedReport);
  });
});
