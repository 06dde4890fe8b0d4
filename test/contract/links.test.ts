/** The Link header to the next page, and how the usual code of several languages follows it. */

import { afterAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { send, startService, TEST_TOKEN, type TestService } from "../support/service.ts";

const folder = makeTemporaryFolder();
const fill = async (settings: Record<string, string>): Promise<TestService> => {
  const service = await startService(settings);
  await service.store.createPlants(
    Array.from({ length: 5 }, (_, id) => ({ id: BigInt(id), name: "n", tag: `t${id}` })),
  );
  await service.store.adoptTokens(
    ["a", "b"].map((name) =>
      toRecord(mintToken(), { name, scopes: ["plants:read"], createdAtMs: 0 }),
    ),
  );
  return service;
};
const plain = await fill({});
const shop = await fill({ PLANTSTORE_BASE_PATH: "/shop", PLANTSTORE_TRUSTED_PROXIES: "127.0.0.1" });

afterAll(async () => {
  await plain[Symbol.asyncDispose]();
  await shop[Symbol.asyncDispose]();
  folder[Symbol.dispose]();
});

const linkOf = async (
  service: TestService,
  path: string,
  headers: Record<string, string> = {},
): Promise<string | undefined> => {
  const response = await send(service, "GET", `${path}?limit=1`, { headers });
  expect(response.status).toBe(200);
  return /^<([^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
};

const lists = ["/plants", "/tags", "/tags/counts", "/changes", "/tokens"];

describe("the link to the next page", () => {
  test.each(lists)("of %s is a path that begins with the base path", async (path) => {
    expect(await linkOf(plain, path)).toStartWith(`${path}?after=`);
    expect(await linkOf(shop, path)).toStartWith(`/shop${path}?after=`);
    const forwarded = { "x-forwarded-prefix": "/outer" };
    expect(await linkOf(shop, path, forwarded)).toStartWith(`/outer/shop${path}?after=`);
  });

  test.each([
    ["/a/b", "/a/b"],
    ["/a/", "/a"],
    ["/a, /b", "/a/b"],
    ["/a/,/b/", "/a/b"],
    ["/", ""],
    ["a", ""],
    ["//evil.example", ""],
    ["https://evil.example", ""],
    ["/a?b", ""],
    ["/a>; rel=x", ""],
    [`/${"a".repeat(200)}`, ""],
  ])("begins with X-Forwarded-Prefix: %s of a trusted proxy as %j", async (sent, prefix) => {
    const link = await linkOf(shop, "/plants", { "x-forwarded-prefix": sent });
    expect(link).toStartWith(`${prefix}/shop/plants?after=`);
  });

  test("does not begin with what a client says that is no trusted proxy", async () => {
    expect(await linkOf(plain, "/plants", { "x-forwarded-prefix": "/evil" })).toStartWith(
      "/plants?",
    );
    await using other = await fill({ PLANTSTORE_TRUSTED_PROXIES: "10.0.0.0/8" });
    expect(await linkOf(other, "/plants", { "x-forwarded-prefix": "/evil" })).toStartWith(
      "/plants?",
    );
  });
});

/** Each counts the plants of all pages. It is given the URL of the first one and a token. */
const programs: Readonly<Record<string, readonly [file: string, text: string]>> = {
  node: [
    "follow.mjs",
    `let [url, token] = process.argv.slice(2), count = 0;
     while (url) {
       const response = await fetch(url, { headers: { authorization: "Bearer " + token } });
       count += (await response.json()).length;
       const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link"))?.[1];
       url = next && new URL(next, response.url).href;
     }
     console.log(count);`,
  ],
  python3: [
    "follow.py",
    `
import json, re, sys
from urllib.parse import urljoin
from urllib.request import Request, urlopen
url, token, count = sys.argv[1], sys.argv[2], 0
while url:
    with urlopen(Request(url, headers={"Authorization": "Bearer " + token})) as response:
        count += len(json.load(response))
        next = re.search('<([^>]*)>; *rel="next"', response.headers.get("Link") or "")
        url = next and urljoin(response.url, next[1])
print(count)
`,
  ],
  java: [
    "Follow.java",
    `import java.net.URI;
     import java.net.http.*;
     import java.util.regex.*;
     public class Follow {
       public static void main(String[] given) throws Exception {
         var client = HttpClient.newHttpClient();
         int count = 0;
         for (URI url = URI.create(given[0]); url != null;) {
           var request = HttpRequest.newBuilder(url).header("Authorization", "Bearer " + given[1]).build();
           var response = client.send(request, HttpResponse.BodyHandlers.ofString());
           count += response.body().split("\\"id\\"").length - 1;
           var next = Pattern.compile("<([^>]*)>; *rel=\\"next\\"").matcher(response.headers().firstValue("Link").orElse(""));
           url = next.find() ? request.uri().resolve(next.group(1)) : null;
         }
         System.out.println(count);
       }
     }`,
  ],
  ruby: [
    "follow.rb",
    `
require "json"
require "net/http"
url, token, count = URI(ARGV[0]), ARGV[1], 0
while url
  response = Net::HTTP.get_response(url, { "Authorization" => "Bearer " + token })
  count += JSON.parse(response.body).length
  following = response["Link"].to_s[/<([^>]*)>; *rel="next"/, 1]
  url = following && URI.join(url, following)
end
puts count
`,
  ],
  php: [
    "follow.php",
    `<?php
[$_, $url, $token] = $argv;
$count = 0;
$origin = preg_replace('#^(https?://[^/]+).*#', '$1', $url);
while ($url) {
  $context = stream_context_create(["http" => ["header" => "Authorization: Bearer $token"]]);
  $count += count(json_decode(file_get_contents($url, false, $context)));
  $found = preg_match('#^Link: <([^>]*)>; *rel="next"#mi', implode("\\n", $http_response_header), $next);
  $url = $found ? $origin . $next[1] : null;
}
echo $count, "\\n";
`,
  ],
  go: [
    "follow.go",
    `package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
)

func main() {
	next := regexp.MustCompile(\`<([^>]*)>; *rel="next"\`)
	count := 0
	request, _ := http.NewRequest("GET", os.Args[1], nil)
	for request != nil {
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		var plants []any
		json.NewDecoder(response.Body).Decode(&plants)
		response.Body.Close()
		count += len(plants)
		found := next.FindStringSubmatch(response.Header.Get("Link"))
		if found == nil {
			break
		}
		url, _ := request.URL.Parse(found[1])
		request, _ = http.NewRequest("GET", url.String(), nil)
	}
	fmt.Println(count)
}
`,
  ],
};

/** The JVM's own, which is the oldest: RFC 2396, in which a query alone would replace the path. */
test.each(lists)("%s: the next link means the same by RFC 2396 and RFC 3986", async (path) => {
  const next = (await linkOf(shop, path)) ?? "";
  // A path that begins with one slash replaces path and query in both (5.2 in each).
  expect(next).toMatch(/^\/[^/]/);
  expect(new URL(next, `${shop.url}${path}`).href).toBe(new URL(shop.url).origin + next);
});

describe("the usual code of a language reads every page:", () => {
  test.each(Object.keys(programs).filter((program) => Bun.which(program) !== null))(
    "%s",
    async (program) => {
      const [file, text] = programs[program] ?? ["", ""];
      writeFileSync(join(folder.path, file), text);
      const command = program === "go" ? ["go", "run", file] : [program, file];
      for (const service of [plain, shop]) {
        const child = Bun.spawn([...command, `${service.url}/plants?limit=2`, TEST_TOKEN], {
          cwd: folder.path,
          stdout: "pipe",
          stderr: "inherit",
        });
        expect([await child.stdout.text(), await child.exited]).toEqual(["5\n", 0]);
      }
    },
    60_000,
  );
});
