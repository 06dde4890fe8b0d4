/** Requests byte by byte: which are understood, and which are refused in our JSON. */

import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { startService, TEST_TOKEN } from "../support/service.ts";
import {
  chunk,
  chunked,
  createHead,
  createRequest,
  CREDENTIALS,
  exchange,
  expectNothingStored,
  expectOwnRefusal,
  expectStored,
  head,
  HOST,
  plantBody,
} from "../support/wire.ts";

const SENT = plantBody(2);
const SIZE = SENT.length.toString(16);
const CONTENT_LENGTH = `Content-Length: ${SENT.length}`;
const CHUNKED = "Transfer-Encoding: chunked";
const CLOSE = "Connection: close";
const JSON_BODY = "Content-Type: application/json";
const AUTHORIZATION = `Authorization: Bearer ${TEST_TOKEN}`;

const post = (target: string, ...lines: readonly string[]): string =>
  head(`POST ${target} HTTP/1.1`, ...lines, CONTENT_LENGTH, CLOSE) + SENT;

const service = await startService();
afterEach(() => service.database.run("DELETE FROM plants"));
afterAll(() => service[Symbol.asyncDispose]());

describe("a create is understood with", () => {
  test.each([
    ["the same Content-Length twice", createHead(CLOSE, CONTENT_LENGTH, CONTENT_LENGTH) + SENT],
    ["zeros before its length", createHead(CLOSE, `Content-Length: 000${SENT.length}`) + SENT],
    [
      "several chunks",
      createHead(CLOSE, CHUNKED) + chunk(SENT.slice(0, 5)) + chunked(SENT.slice(5)),
    ],
    ["CHUNKED in capitals", createHead(CLOSE, "Transfer-Encoding: CHUNKED") + chunked(SENT)],
    ["zeros before a chunk's size", `${createHead(CLOSE, CHUNKED)}000${chunked(SENT)}`],
    ["a chunk extension", `${createHead(CLOSE, CHUNKED)}${SIZE};a="b;c"\r\n${SENT}\r\n0;d\r\n\r\n`],
    ["header names in any case", createRequest(2, CLOSE).replace(/^[\w-]+(?=:)/gm, swapCase)],
    ["no space after the colons", createRequest(2, CLOSE).replace(/^([\w-]+): /gm, "$1:")],
    [
      "a byte beyond ASCII in a header",
      Buffer.from(createRequest(2, CLOSE, "X-A: \xe9"), "latin1"),
    ],
    ["an absolute target", post("http://other.example/plants", HOST, ...CREDENTIALS)],
    ["an empty query", post("/plants?", HOST, ...CREDENTIALS)],
    ["HTTP/1.0, which ends the connection", createRequest(2).replace("HTTP/1.1", "HTTP/1.0")],
    ["no Host, in HTTP/1.0", head("POST /plants HTTP/1.0", ...CREDENTIALS, CONTENT_LENGTH) + SENT],
    ["a port in its Host", post("/plants", "Host: plants.example:8080", ...CREDENTIALS)],
    ["an IPv6 address for its Host", post("/plants", "Host: [::1]:8080", ...CREDENTIALS)],
  ])("%s, and stored once", async (_name, bytes) => {
    const answers = await exchange(service.url, bytes);
    expect(answers).toMatchObject([{ status: 200, body: '{"name":"plant 2"}' }]);
    expect(answers[0]?.headers.has("idempotent-replayed")).toBe(false);
    await expectStored(service, [2]);
  });

  function swapCase(name: string): string {
    return name.replace(/[a-z]/gi, (letter) =>
      letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
    );
  }
});

describe("a request is refused in JSON, and nothing stored, with", () => {
  const long = "a".repeat(9_000);
  test.each([
    ["two Hosts", "malformed_request", post("/plants", "Host: a", "Host: b", ...CREDENTIALS)],
    [
      "the same Host twice",
      "malformed_request",
      post("/plants", "Host: a", "Host: a", ...CREDENTIALS),
    ],
    ["an empty Host", "malformed_request", post("/plants", "Host:", ...CREDENTIALS)],
    ["an empty Host at no path of ours", "malformed_request", post("/nowhere", "Host:")],
    ["a space in its Host", "malformed_request", post("/plants", "Host: a b", ...CREDENTIALS)],
    ["a path in its Host", "malformed_request", post("/plants", "Host: a/plants", ...CREDENTIALS)],
    ["a user in its Host", "malformed_request", post("/plants", "Host: user@a", ...CREDENTIALS)],
    ["two slashes before its path", "path_not_found", post("//plants", HOST, ...CREDENTIALS)],
    ["a slash after its path", "path_not_found", post("/plants/", HOST, ...CREDENTIALS)],
    ["its path in percent-encoding", "path_not_found", post("/%70lants", HOST, ...CREDENTIALS)],
    ["dots in its path", "path_not_found", post("/x/../plants", HOST, ...CREDENTIALS)],
    ["its path in capitals", "path_not_found", post("/PLANTS", HOST, ...CREDENTIALS)],
    ["a NUL in its path", "path_not_found", post("/plants%00", HOST, ...CREDENTIALS)],
    ["a parameter in its path", "path_not_found", post("/plants;a=b", HOST, ...CREDENTIALS)],
    ["a query", "invalid_query", post("/plants?a=b", HOST, ...CREDENTIALS)],
    ["a fragment", "path_not_found", post("/plants#a", HOST, ...CREDENTIALS)],
    [
      "a path that is not ASCII",
      "path_not_found",
      Buffer.from(post("/pl\xe4nts", HOST, ...CREDENTIALS), "latin1"),
    ],
    ["a too long URL", "url_too_long", post(`/plants?${long}`, HOST, ...CREDENTIALS)],
    ["a too long URL at no path of ours", "url_too_long", post(`/${long}`, HOST, ...CREDENTIALS)],
    [
      "two tokens",
      "token_invalid",
      post("/plants", HOST, JSON_BODY, AUTHORIZATION, "Authorization: Bearer other"),
    ],
    [
      "two tokens, the good one last",
      "token_invalid",
      post("/plants", HOST, JSON_BODY, "Authorization: Bearer other", AUTHORIZATION),
    ],
    [
      "the same token twice",
      "token_invalid",
      post("/plants", HOST, JSON_BODY, AUTHORIZATION, AUTHORIZATION),
    ],
    [
      "two media types",
      "unsupported_media_type",
      post("/plants", HOST, ...CREDENTIALS, "Content-Type: text/plain"),
    ],
    ["no length", "invalid_json", createHead(CLOSE)],
    ["CONNECT", "path_not_found", head("CONNECT plants.example:80 HTTP/1.1", HOST, CLOSE)],
    ["TRACE", "method_not_allowed", head("TRACE /plants HTTP/1.1", HOST, CLOSE)],
  ] as const)("%s: %s", async (_name, reason, bytes) => {
    const answers = await exchange(service.url, bytes);
    expect(answers).toHaveLength(1);
    expectOwnRefusal(answers[0], reason);
    await expectNothingStored(service);
  });
});
