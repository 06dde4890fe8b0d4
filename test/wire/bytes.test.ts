/** Requests byte by byte: which are understood, which are refused, by us or by the runtime, and where each ends. */

import { afterEach, expect, test } from "bun:test";
import type { ErrorName } from "../../src/domain/errors.ts";
import { startShared } from "../support/service.ts";
import {
  chunk,
  chunked,
  connectRaw,
  createHead,
  createRequest,
  CREDENTIALS,
  exchange,
  expectNothingStored,
  expectOwnRefusal,
  expectStored,
  head,
  HOST,
  parseAnswers,
  plantBody,
} from "../support/wire.ts";

const SENT = plantBody(2);
const SIZE = SENT.length.toString(16);
const CONTENT_LENGTH = `Content-Length: ${SENT.length}`;
const CHUNKED = "Transfer-Encoding: chunked";
const CLOSE = "Connection: close";
const [AUTHORIZATION = "", JSON_BODY = ""] = CREDENTIALS;

const post = (target: string, ...lines: readonly string[]): string =>
  head(`POST ${target} HTTP/1.1`, ...lines, CONTENT_LENGTH, CLOSE) + SENT;

const service = await startShared();
afterEach(() => service.database.run("DELETE FROM plants"));

test.each([
  ["the same Content-Length twice", createHead(CLOSE, CONTENT_LENGTH, CONTENT_LENGTH) + SENT],
  ["several chunks", createHead(CLOSE, CHUNKED) + chunk(SENT.slice(0, 5)) + chunked(SENT.slice(5))],
  ["an absolute target", post("http://other.example/plants", HOST, ...CREDENTIALS)],
  ["an empty query", post("/plants?", HOST, ...CREDENTIALS)],
  ["HTTP/1.0, which ends the connection", createRequest(2).replace("HTTP/1.1", "HTTP/1.0")],
  ["no Host, in HTTP/1.0", head("POST /plants HTTP/1.0", ...CREDENTIALS, CONTENT_LENGTH) + SENT],
  ["an IPv6 address for its Host", post("/plants", "Host: [::1]:8080", ...CREDENTIALS)],
])("a create is understood with %s, and stored once", async (_name, bytes) => {
  const answers = await exchange(service.url, bytes);
  expect(answers).toMatchObject([{ status: 200, body: '{"name":"plant 2"}' }]);
  expect(answers[0]?.headers.has("idempotent-replayed")).toBe(false);
  await expectStored(service, [2]);
});

const long = "a".repeat(9_000);
const to = (target: string): string => post(target, HOST, ...CREDENTIALS);
const at = (...hosts: string[]): string =>
  post("/plants", ...hosts.map((host) => `Host:${host}`), ...CREDENTIALS);
const by = (...lines: string[]): string => post("/plants", HOST, JSON_BODY, ...lines);
const other = "Authorization: Bearer other";
test.each<[string, ErrorName, string | Uint8Array]>([
  ["two Hosts", "malformed_request", at(" a", " b")],
  ["the same Host twice", "malformed_request", at(" a", " a")],
  ["an empty Host", "malformed_request", at("")],
  ["a space in its Host", "malformed_request", at(" a b")],
  ["a path in its Host", "malformed_request", at(" a/plants")],
  ["two slashes before its path", "path_not_found", to("//plants")],
  ["a slash after its path", "path_not_found", to("/plants/")],
  ["its path in percent-encoding", "path_not_found", to("/%70lants")],
  ["dots in its path", "path_not_found", to("/x/../plants")],
  ["a NUL in its path", "path_not_found", to("/plants%00")],
  ["a query", "invalid_query", to("/plants?a=b")],
  ["a fragment", "path_not_found", to("/plants#a")],
  ["a path that is not ASCII", "path_not_found", Buffer.from(to("/pl\xe4nts"), "latin1")],
  ["a too long URL", "url_too_long", to(`/plants?${long}`)],
  ["two tokens", "token_invalid", by(AUTHORIZATION, other)],
  ["two tokens, the good one last", "token_invalid", by(other, AUTHORIZATION)],
  ["the same token twice", "token_invalid", by(AUTHORIZATION, AUTHORIZATION)],
  ["two media types", "unsupported_media_type", by(AUTHORIZATION, "Content-Type: text/plain")],
  ["no length", "invalid_json", createHead(CLOSE)],
  ["CONNECT", "path_not_found", head("CONNECT plants.example:80 HTTP/1.1", HOST, CLOSE)],
  ["TRACE", "method_not_allowed", head("TRACE /plants HTTP/1.1", HOST, CLOSE)],
])(
  "a request is refused in JSON, and nothing stored, with %s: %s",
  async (_name, reason, bytes) => {
    const answers = await exchange(service.url, bytes);
    expect(answers).toHaveLength(1);
    expectOwnRefusal(answers[0], reason);
    await expectNothingStored(service);
  },
);

/** Follows every malformed request on its connection: a server that misjudges where that ends executes it. */
const SMUGGLED = createRequest(666, "X-Request-Id: smuggled");

/** What is answered, and why the service refused the requests that it saw in the bytes. */
async function sendMalformed(bytes: string): Promise<[string, unknown[]]> {
  service.logLines.length = 0;
  const answers = await exchange(service.url, bytes + SMUGGLED);
  const shown = answers.map(({ status, headers, body }) => {
    expect(headers.get("connection")).toBe("close");
    return body === "" ? `${status} without a body` : `${status} ${body}`;
  });
  await expectNothingStored(service);
  // The last line is the witness's.
  const lines = service.logLines.slice(0, -1).map((line) => JSON.parse(line) as { reason: string });
  expect(service.logLines.join("")).not.toContain("smuggled");
  return [shown.join(", "), lines.map(({ reason }) => reason)];
}

// The runtime gives these answers before any handler, as docs/api.md lists them: one of each kind, so an upgrade
// that changes them is noticed. `npm run torture -- fuzz` sends thousands of others.
const bodyOf = (...lines: readonly string[]): string => createHead(...lines) + SENT;
test.each([
  ["400", "two framings", createHead(CONTENT_LENGTH, CHUNKED) + chunked(SENT)],
  ["400", "two differing Content-Lengths", bodyOf(CONTENT_LENGTH, "Content-Length: 0")],
  ["505", "HTTP/1.2", head("GET /livez HTTP/1.2", HOST)],
  ["431", "a long head", head(`GET /${"a".repeat(17_000)} HTTP/1.1`, HOST)],
  ["413", "a huge Content-Length", bodyOf(`Content-Length: ${2n ** 53n + 1n}`)],
  ["", "an unknown method", head("BREW /plants HTTP/1.1", HOST)],
])("the runtime refuses by itself, without our JSON: %s, for %s", async (status, _name, bytes) => {
  const answer = status === "" ? "" : `${status} without a body`;
  expect(await sendMalformed(bytes)).toEqual([answer, []]);
});

// HTTP allows trailers. The runtime of today refuses them (oven-sh/bun#32887), and only after it
// has handed over the body as complete: that nothing is stored where it says 400 is ours to see to.
test.each([
  ["a size in words", `many\r\n${SENT}\r\n0\r\n\r\n`],
  ["a size of 2^64 and the right one", `10000000000000000${SIZE}\r\n${SENT}\r\n0\r\n\r\n`],
  ["sizes that end with a bare LF", `${SIZE}\n${SENT}\n0\n\n`],
  ["a chunk that is longer than its size", `1\r\n${SENT}\r\n0\r\n\r\n`],
  ["a good chunk before a bad one", `${chunk(SENT)}x\r\n\r\n0\r\n\r\n`],
  ["a trailer after the last chunk", `${chunk(SENT)}0\r\nX-Trailer: a\r\n\r\n`],
])("chunks that are none end the body early, and nothing is stored: %s", async (name, chunks) => {
  const [answer, reasons] = await sendMalformed(createHead(CHUNKED) + chunks);
  expect(answer).toBe("400 without a body");
  if (!name.includes("trailer")) expect(reasons).toEqual(["body_incomplete"]);
});

test.each([
  ["DELETE /plants/2", "many\r\n"],
  ["DELETE /plants/2", "1\r\na\r\n0\r\nX-Trailer: a\r\n\r\n"],
  ["DELETE /plants?name=plant", "many\r\n"],
])("nor does a removal whose chunks are none remove anything: %s, %j", async (request, chunks) => {
  await exchange(service.url, createRequest(2, CLOSE));
  const bytes = head(`${request} HTTP/1.1`, HOST, AUTHORIZATION, CHUNKED) + chunks;
  expect(await exchange(service.url, bytes)).toMatchObject([{ status: 400, body: "" }]);
  await expectStored(service, [2]);
});

const framings = [
  [`Content-Length: ${SMUGGLED.length}`, SMUGGLED],
  [CHUNKED, chunked(SMUGGLED)],
] as const;

test.each([
  ["POST /plants without a token", 401],
  ["POST /nowhere", 404],
  ["PUT /plants", 405],
  ["GET /livez", 200],
  ["OPTIONS /plants", 204],
])("a body that the service does not read is no request: of %s", async (request, status) => {
  service.logLines.length = 0;
  const [method = "", target = ""] = request.split(" ");
  for (const [framing, body] of framings) {
    const top = head(`${method} ${target} HTTP/1.1`, HOST, framing);
    for (const [first, second] of [
      [top + body, ""],
      [top, body],
    ] as const) {
      const connection = await connectRaw(service.url);
      connection.send(first);
      await connection.receive(status === 204 ? /\r\n\r\n/ : /\r\n\{.*\}/);
      connection.send(second + createRequest(2, CLOSE));
      const answers = parseAnswers(await connection.closed);
      // A refused body of unknown length ends its connection.
      const isLast = answers[0]?.headers.get("connection") === "close";
      expect(isLast).toBe(framing === CHUNKED && status >= 400);
      expect(answers.map((answer) => answer.status)).toEqual(isLast ? [status] : [status, 200]);
    }
  }
  await expectStored(service, [2]);
  expect(service.logLines.join("")).not.toContain("smuggled");
});

// What Bun 1.4 does, and not what RFC 9112, section 9.3.2, asks for: it denies pipelining behind an answer that is
// pending. When this fails after an upgrade, oven-sh/bun#38128 or its like has come: both should then be answered, and
// the documentation no longer has to warn.
test("a request that is pipelined behind a create closes the connection, and the create is safe to retry", async () => {
  service.logLines.length = 0;
  const second = head("GET /livez HTTP/1.1", HOST, "X-Request-Id: second");
  expect(await exchange(service.url, createRequest(2) + second)).toEqual([]);
  await expectStored(service, [2]);
  expect(service.logLines.join("")).not.toContain("second");
  const retried = await exchange(service.url, createRequest(2, CLOSE));
  expect(retried).toMatchObject([{ status: 200 }]);
  expect(retried[0]?.headers.get("idempotent-replayed")).toBe("true");
});
