/** The built client in a page: every operation, with batches in blocks because browsers do not stream over HTTP/1.1. */

import { expect, test } from "bun:test";
import { join } from "node:path";
import { buildClient } from "../../scripts/build-client.ts";
import { describeInBrowser, openPage } from "../support/browser.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";

const PAGE =
  "<!doctype html><html lang='en'><title>Plants</title><link rel='icon' href='data:,'><main><h1>Plants</h1></main>";

describeInBrowser("the client in a page", () => {
  test("runs every operation", async () => {
    using folder = makeTemporaryFolder();
    await buildClient(folder.path);
    const scenario = join(import.meta.dir, "../support/client-scenario.ts");
    await Bun.build({ entrypoints: [scenario], outdir: folder.path, naming: "scenario.js" });
    await using service = await startService();
    // On one origin with the service, as behind a proxy.
    using server = Bun.serve({
      port: 0,
      routes: {
        "/": new Response(PAGE, { headers: { "content-type": "text/html" } }),
        "/client.js": () => new Response(Bun.file(join(folder.path, "client.js"))),
        "/scenario.js": () => new Response(Bun.file(join(folder.path, "scenario.js"))),
      },
      fetch: (request) => {
        const { pathname, search } = new URL(request.url);
        // As it is: the header of a coding would stay without it.
        return fetch(new Request(service.url + pathname + search, request), {
          decompress: false,
        } as RequestInit);
      },
    });
    const { page, announceFailure } = await openPage({ url: server.url.href });
    // What the scenario is refused is logged by the browser as failed requests.
    announceFailure("/plants", 409, 401);
    announceFailure("/tokens", 409);
    announceFailure("/jobs?batch=none", 404);
    for (const path of ["/webhooks/shop.invalid", "/plants/-1"]) announceFailure(path, 404);
    announceFailure("/changes?after=1767225600000001&limit=1000", 410);
    announceFailure("/plants/9007199254740993", 412, 404);
    announceFailure("/plants/8", 412);
    announceFailure("/plants?batch=remove", 400);
    const differences = await page.evaluate(
      async ([url, token]) => {
        const client: unknown = await import(`${url}client.js`);
        const { useClient } = (await import(`${url}scenario.js`)) as {
          useClient: (...args: unknown[]) => Promise<string[]>;
        };
        return useClient(client, url, token);
      },
      [server.url.href, TEST_TOKEN] as const,
    );
    expect(differences).toEqual([]);
  });
});
