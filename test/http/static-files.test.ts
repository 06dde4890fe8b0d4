/** Pages for browsers: what is served under which name, how it is kept, and that no name leads elsewhere. */

import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expectError } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { startIssuer } from "../support/issuer.ts";
import { limits } from "../support/limits.ts";
import { getText, startService, startShared } from "../support/service.ts";
import { until } from "../support/until.ts";
import { exchange, getHead } from "../support/wire.ts";

export const groups = ["sqlite"];

const SCRIPT = "console-0a1b2c3d.js";
const INDEX = "<!doctype html><title>Plants</title>";
const CODE = "// a script\n".repeat(100);

const folder = makeTemporaryFolder();
writeFileSync(join(folder.path, "secret.txt"), "secret");
const consoleFolder = join(folder.path, "console");
mkdirSync(join(consoleFolder, "folder"), { recursive: true });
const other = { "console-0a1b2c3d.css": "body{}", "icon.svg": "<svg/>" };
const files: Record<string, string> = { "index.html": INDEX, [SCRIPT]: CODE, ...other };
for (const [name, content] of Object.entries(files)) {
  const path = join(consoleFolder, name);
  writeFileSync(path, content);
  if (!(name in other)) writeFileSync(`${path}.gz`, Bun.gzipSync(Buffer.from(content)));
}

const service = await startShared({}, { consoleFolder });
afterAll(() => folder[Symbol.dispose]());

/** As they come: neither redirected nor decompressed. */
const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(service.url + path, {
    redirect: "manual",
    decompress: false,
    headers: { "accept-encoding": "identity", ...headers },
  });

describe("a page", () => {
  test("is at the root, without a token, and may load nothing from elsewhere", async () => {
    const response = await get("/");
    expect([response.status, await response.text()]).toEqual([200, INDEX]);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "text/html;charset=utf-8",
      "cache-control": "no-cache",
      vary: "Accept-Encoding",
      "content-security-policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
        "worker-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-resource-policy": "same-origin",
    });
    const queried = await get("/?a=1&a=2&limit=x&%FF");
    expect([queried.status, await queried.text()]).toEqual([200, INDEX]);
  });

  test("of a console with an issuer may connect to that issuer alone", async () => {
    using signingFolder = makeTemporaryFolder();
    const page = '<!doctype html><html\nlang="en"><title>Plants</title>';
    const path = join(signingFolder.path, "index.html");
    writeFileSync(path, page);
    writeFileSync(`${path}.gz`, Bun.gzipSync(Buffer.from(page)));
    const settings = {
      PLANTSTORE_JWT_ISSUER: "http://127.0.0.1:9/shop&co",
      PLANTSTORE_JWT_AUDIENCE: "plants",
      PLANTSTORE_JWT_CLIENT_ID: "<console>",
    };
    await using signing = await startService(settings, { consoleFolder: signingFolder.path });
    const etags = new Set<string | null>();
    for (const encoding of ["identity", "gzip"]) {
      const answer = await fetch(`${signing.url}/`, { headers: { "accept-encoding": encoding } });
      expect(await answer.text()).toBe(
        '<!doctype html><html data-issuer="http://127.0.0.1:9/shop&amp;co" data-audience="plants" ' +
          'data-client-id="&lt;console&gt;" data-limits="{&quot;bodyBytesMax&quot;:1048576}" lang="en"><title>Plants</title>',
      );
      const policy = answer.headers.get("content-security-policy");
      expect(policy).toContain("connect-src 'self' http://127.0.0.1:9; ");
      etags.add(answer.headers.get("etag"));
    }
    expect(etags.size).toBe(2);
  });

  test("of a console whose issuer has its token endpoint elsewhere may connect there too, once that is known", async () => {
    await using issuer = await startIssuer();
    const discovery = issuer.documents.discovery as object;
    const named = Promise.withResolvers<object>();
    issuer.documents.discovery = named.promise;
    const settings = { ...issuer.settings, PLANTSTORE_JWT_CLIENT_ID: "console" };
    const often = limits({ jwtRefreshSeconds: 0, jwtCoolDownSeconds: 0.02 });
    await using signing = await startService({ ...settings, ...often }, { consoleFolder });
    // The page waits for the first fetch.
    const loading = fetch(`${signing.url}/`);
    named.resolve({ ...discovery, token_endpoint: "https://tokens.example/oauth?a=;b" });
    const page = await loading;
    const policyOf = (answer: Response) => answer.headers.get("content-security-policy") ?? "";
    expect(policyOf(page)).toContain(`connect-src 'self' https://tokens.example ${issuer.url}; `);
    const headers = { "if-none-match": page.headers.get("etag") ?? "" };
    expect((await fetch(`${signing.url}/`, { headers })).status).toBe(304);
    // A browser that has the page with another policy gets the new one.
    issuer.documents.discovery = { ...discovery, token_endpoint: `${issuer.url}/token` };
    await until("the page has the new policy", async () => {
      const again = await fetch(`${signing.url}/`, { headers });
      return again.status === 200 && policyOf(again).includes(`connect-src 'self' ${issuer.url}; `);
    });
  });

  test.each(["http://192.0.2.1/token", "no URL", 7, undefined])(
    "of a console with the token endpoint %p may connect to the issuer alone",
    async (endpoint) => {
      await using issuer = await startIssuer();
      Object.assign(issuer.documents.discovery as object, { token_endpoint: endpoint });
      const settings = { ...issuer.settings, PLANTSTORE_JWT_CLIENT_ID: "console" };
      await using signing = await startService(settings, { consoleFolder });
      const policy = (await fetch(`${signing.url}/`)).headers.get("content-security-policy");
      expect(policy).toContain(`connect-src 'self' ${issuer.url}; `);
    },
  );

  test("that a browser has is sent again only if it has changed or comes in another form", async () => {
    const etag = (await get("/")).headers.get("etag") ?? "";
    expect(etag).toMatch(/^"[^"]+"$/);
    const known = await get("/", { "if-none-match": etag });
    expect([known.status, await known.text(), known.headers.get("etag")]).toEqual([304, "", etag]);
    expect((await get("/", { "if-none-match": '"other"' })).status).toBe(200);
    const gzip = { "accept-encoding": "gzip", "if-none-match": etag };
    expect((await get("/", gzip)).status).toBe(200);
  });

  test("has files under their names, which are kept for ever where a hash is in them", async () => {
    const forever = "public, max-age=31536000, immutable";
    for (const [name, type, kept] of [
      [SCRIPT, "text/javascript;charset=utf-8", forever],
      ["console-0a1b2c3d.css", "text/css;charset=utf-8", forever],
      ["icon.svg", "image/svg+xml", "no-cache"],
    ] as const) {
      const response = await get(`/console/${name}`);
      expect([response.status, await response.text()]).toEqual([200, files[name] ?? ""]);
      expect(Object.fromEntries(response.headers)).toMatchObject({
        "content-type": type,
        "cache-control": kept,
        "content-security-policy": expect.stringContaining("script-src 'self'"),
      });
      const headers = { "if-none-match": response.headers.get("etag") ?? "" };
      expect((await get(`/console/${name}`, headers)).status).toBe(304);
    }
    const counted = '{method="GET",path="/console/{file}",status="304"}';
    expect(await getText(service, "/metrics")).toContain(counted);
  });
});

describe("compression", () => {
  test.each(["GZIP", "x-gzip", "br, gzip", "gzip;q=0.5", "deflate, *", "gzip ; q=1, *;q=0"])(
    "is taken where Accept-Encoding is %j",
    async (accepted) => {
      for (const [path, content] of Object.entries({ "/": INDEX, [`/console/${SCRIPT}`]: CODE })) {
        const response = await get(path, { "accept-encoding": accepted });
        expect(response.headers.get("content-encoding")).toBe("gzip");
        expect(Buffer.from(Bun.gunzipSync(await response.arrayBuffer())).toString()).toBe(content);
      }
    },
  );

  test.each(["", "identity", "br", "gzip;q=0", "*;q=0", "*, gzip;q=0.0", "gzippy"])(
    "is not where it is %j",
    async (accepted) => {
      const response = await get("/", { "accept-encoding": accepted });
      expect(response.headers.has("content-encoding")).toBe(false);
      expect(await response.text()).toBe(INDEX);
    },
  );

  test("is not of a file that has no compressed form", async () => {
    const { headers } = await get("/console/icon.svg", { "accept-encoding": "gzip" });
    expect(headers.has("content-encoding")).toBe(false);
  });
});

describe("a name", () => {
  test.each([
    ..."/console /console/ /index.html".split(" "),
    ...`folder ${SCRIPT}.gz ${SCRIPT}/ /${SCRIPT} INDEX.HTML ..%2fsecret.txt ..%5csecret.txt ${SCRIPT}%00 __proto__`
      .split(" ")
      .map((name) => `/console/${name}`),
  ])("%s leads nowhere", async (path) => {
    await expectError(await get(path), "path_not_found");
  });

  test.each(
    "/console/../secret.txt /console/%2e%2e/secret.txt /../secret.txt //secret.txt".split(" "),
  )("%s leads nowhere, as no client library would send it", async (path) => {
    const [answer] = await exchange(service.url, getHead(path, "Connection: close"));
    expect(answer?.status).toBe(404);
    expect(answer?.body).not.toContain("secret");
  });
});

describe("without a console", () => {
  test("the root is a path that does not exist", async () => {
    const nowhere = join(folder.path, "nowhere");
    await using bare = await startService({}, { consoleFolder: nowhere });
    for (const path of ["/", `/console/${SCRIPT}`])
      await expectError(await fetch(bare.url + path), "path_not_found");
    expect((await bare.create('{"id":1,"name":"a"}')).status).toBe(200);
  });

  test("that was taken away since the start, it is served as it was", async () => {
    const copy = join(folder.path, "copy");
    mkdirSync(copy);
    for (const name of ["index.html", SCRIPT]) writeFileSync(join(copy, name), "x");
    await using built = await startService({}, { consoleFolder: copy });
    rmSync(copy, { recursive: true });
    for (const path of ["/", `/console/${SCRIPT}`])
      expect(await (await fetch(built.url + path)).text()).toBe("x");
  });
});

test("under a base path, the path without its slash leads to the page", async () => {
  const settings = { PLANTSTORE_BASE_PATH: "/shop", PLANTSTORE_TRUSTED_PROXIES: "127.0.0.1" };
  await using shop = await startService(settings, { consoleFolder });
  for (const [sent, location] of [
    ["", "/shop/"],
    ["/outer", "/outer/shop/"],
  ] as const) {
    const headers = { "x-forwarded-prefix": sent };
    const redirect = await fetch(shop.url, { redirect: "manual", headers });
    expect([redirect.status, redirect.headers.get("location")]).toEqual([308, location]);
  }
  expect(await (await fetch(shop.url)).text()).toBe(INDEX);
  expect(await (await fetch(`${shop.url}/console/${SCRIPT}`)).text()).toBe(CODE);
  expect((await fetch(new URL("/", shop.url))).status).toBe(404);
});
