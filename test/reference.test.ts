/** The parts of the API reference that need no browser: samples of code that run as they stand. */

import { afterAll, describe, expect, test } from "bun:test";
import { type Description, listOperations, type Operation } from "../reference/description.ts";
import {
  exampleRequest,
  exampleValues,
  languages,
  type SnippetRequest,
} from "../reference/samples.ts";
import { resolveConfig } from "../src/config.ts";
import { describeApi } from "../src/http/description.ts";
import { runSync } from "./support/processes.ts";

const request = (body?: string): SnippetRequest => ({
  method: body === undefined ? "GET" : "POST",
  url: "http://127.0.0.1:8080/plants?name=a'b&tag=%22c%22",
  headers: [["Authorization", `Bearer it's "secret" $HOME \\`]],
  body,
});

/** What shells, templates and literals trip over. */
const bodies = [
  '{"id":9007199254740993,"name":"Monstera"}',
  `{"id": 1,\n  "name": "It's \`50 %\` \${HOME} $HOME \\\\ \\" \\u00e9"\n}`,
  "@/etc/passwd",
  "-1",
  '"""\n""',
  "one\r\ntwo\r\n",
  "\ufeff\n\u2028 ünïcödé 🌱",
  "",
];

/** Tells what it got; a GET gets one event, and then silence. */
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  fetch: async (incoming) => {
    if (incoming.method === "GET")
      return new Response(
        new ReadableStream({ start: (sender) => sender.enqueue("id: 1\nevent: created\n\n") }),
      );
    return Response.json({
      url: new URL(incoming.url).search,
      authorization: incoming.headers.get("authorization"),
      body: Buffer.from(await incoming.arrayBuffer()).toString("base64"),
    });
  },
});
afterAll(() => server.stop(true));

test("every operation of the description is listed, except HEAD", () => {
  const { paths, components } = describeApi(resolveConfig({}, {}).config) as Description;
  const listed = listOperations(paths, components).map(({ operationId }) => operationId);
  const described = Object.values(paths)
    .flatMap((operations) => Object.values(operations as Record<string, Partial<Operation>>))
    .flatMap(({ operationId = "" }) => (/^$|Head$/.test(operationId) ? [] : operationId));
  expect(new Set(listed)).toEqual(new Set(described));
});

test.each(bodies)(
  "a sample in JavaScript sends %j as it is, to the URL, with the header",
  async (body) => {
    const url = new URL(`plants?name=a'b&tag=%22c%22`, server.url);
    const code = languages.JavaScript({ ...request(body), url: url.href });
    const child = Bun.spawn([process.execPath, "-e", code], { stderr: "inherit" });
    const printed = await new Response(child.stdout).text();
    expect(printed).toStartWith("200 ");
    expect(JSON.parse(printed.slice(4))).toEqual({
      url: url.search,
      authorization: `Bearer it's "secret" $HOME \\`,
      body: Buffer.from(body).toString("base64"),
    });
  },
);

const hasRequests =
  Bun.which("python3") !== null &&
  runSync(["python3", "-c", "import requests"], { stderr: "ignore" }).success;
for (const [name, command] of [
  ["JavaScript", [process.execPath, "-e"]],
  ["Python", ["python3", "-c"]],
] as const)
  test.skipIf(name === "Python" && !hasRequests)(
    `a sample that follows changes prints an event before the answer ends: ${name}`,
    async () => {
      const code = languages[name]({ ...request(), url: server.url.href, isStream: true });
      const child = Bun.spawn([...command, code], { stderr: "inherit" });
      let printed = "";
      for await (const chunk of child.stdout) {
        printed += Buffer.from(chunk).toString();
        if (printed.includes("event: created\n")) break;
      }
      child.kill();
      expect(printed).toStartWith("200\nid: 1\nevent: created\n");
    },
  );

test.each([
  ["curl", "curl -N "],
  ["Python", "stream=True"],
  ["Go", "io.Copy(os.Stdout"],
] as const)("a sample that follows changes for %s has %s", (name, sign) =>
  expect(languages[name]({ ...request(), isStream: true })).toContain(sign),
);

/** What curl would be called with. */
function runInShell(code: string): string[] {
  const { stdout } = runSync(["sh", "-c", `curl() { printf '%s\\0' "$@"; }\n${code}`]);
  return stdout.toString().split("\0").slice(0, -1);
}

describe("a sample for the shell", () => {
  test.each(bodies)("gives curl %j as one word", (body) => {
    const { url, headers } = request();
    const header = headers.map((pair) => pair.join(": ")).join();
    const words = [url, "-H", header, "--data-raw", body];
    expect(runInShell(languages.curl(request(body)))).toEqual(words);
  });

  test("names the method where curl would choose another", () => {
    const [flag, method] = runInShell(languages.curl({ ...request(), method: "DELETE" }));
    expect([flag, method]).toEqual(["-X", "DELETE"]);
    expect(languages.curl(request())).not.toContain("-X");
  });
});

test("a sample in Go is a whole program, with texts as its literals have them", () => {
  const code = languages.Go(request('{"id":1}'));
  expect(code).toStartWith("package main\n\nimport (\n");
  expect(code).toEndWith("\tfmt.Println(response.StatusCode, string(answer))\n}");
  for (const line of [
    'body := strings.NewReader("{\\"id\\":1}")',
    `request, err := http.NewRequest("POST", "http://127.0.0.1:8080/plants?name=a'b&tag=%22c%22", body)`,
    `request.Header.Set("Authorization", "Bearer it's \\"secret\\" $HOME \\\\")`,
  ])
    expect(code).toContain(`\t${line}\n`);
});

describe("an example", () => {
  const exemplify = (operation: Operation, token = ""): SnippetRequest =>
    exampleRequest(operation, "http://h/shop", token, exampleValues(operation));
  const operation = {
    method: "post",
    path: "/plants",
    requestBody: { content: { "application/json": { examples: { one: { value: { id: 1 } } } } } },
  };

  test("has the token that was pasted, in the header and never in the URL", () => {
    for (const write of Object.values(languages)) {
      const code = write(exemplify(operation, "pst_secret"));
      expect(code.match(/pst_secret/g)).toHaveLength(1);
      expect(code).toMatch(/Authorization.*Bearer pst_secret/);
    }
  });

  test("has the parameters that have an example, and no token where none is needed", () => {
    const parameters = [
      { name: "id", in: "path", example: "a b" },
      { name: "limit", in: "query", example: 20 },
      { name: "tag", in: "query" },
      { name: "If-Match", in: "header" },
    ];
    expect(exemplify({ method: "get", path: "/plants/{id}", parameters, security: [] })).toEqual({
      method: "GET",
      url: "http://h/shop/plants/a%20b?limit=20",
      headers: [],
      body: undefined,
    });
  });
});
