/** Bytes that are not quite HTTP. Each is refused, stores nothing, and hides no second request. */

import { describe, expect, test } from "bun:test";
import { startService } from "../support/service.ts";
import {
  chunk,
  chunked,
  createHead,
  createRequest,
  CREDENTIALS,
  exchange,
  expectNothingStored,
  head,
  HOST,
  plantBody,
} from "../support/wire.ts";

const SENT = plantBody(2);
const LENGTH = SENT.length;
const CONTENT_LENGTH = `Content-Length: ${LENGTH}`;
const CHUNKED = "Transfer-Encoding: chunked";
const POST = "POST /plants HTTP/1.1";

/** Follows every malformed request on its connection: a server that misjudges where that ends executes it. */
const SMUGGLED = createRequest(666, "X-Request-Id: smuggled");

/** What is answered, and the log lines of the requests that the service saw in the bytes. */
async function send(bytes: string | Uint8Array): Promise<[string, string[]]> {
  await using service = await startService();
  const sent = Buffer.concat([Buffer.from(bytes), Buffer.from(SMUGGLED)]);
  const answers = await exchange(service.url, sent);
  const shown = answers.map(({ status, headers, body }) => {
    expect(headers.get("connection")).toBe("close");
    return body === "" ? `${status} without a body` : `${status} ${body}`;
  });
  await expectNothingStored(service);
  expect(service.logLines.filter((line) => line.includes("smuggled"))).toEqual([]);
  // The last line is the witness's.
  return [shown.join(", "), service.logLines.slice(0, -1)];
}

// These answers are the runtime's own. They come before any handler, their empty bodies cannot be
// changed, and docs/errors.md lists them.
describe("the runtime refuses by itself, without our JSON,", () => {
  const bodyOf = (...lines: readonly string[]): string => createHead(...lines) + SENT;
  const chunksOf = (...lines: readonly string[]): string => createHead(...lines) + chunked(SENT);

  test.each([
    ["Content-Length before Transfer-Encoding", chunksOf(CONTENT_LENGTH, CHUNKED)],
    ["Transfer-Encoding before Content-Length", chunksOf(CHUNKED, CONTENT_LENGTH)],
    ["a Content-Length that ends where chunks go on", chunksOf("Content-Length: 4", CHUNKED)],
    ["two differing Content-Lengths", bodyOf(CONTENT_LENGTH, "Content-Length: 0")],
    [
      "two differing Content-Lengths, the right one last",
      bodyOf("Content-Length: 0", CONTENT_LENGTH),
    ],
    [
      "a list of equal lengths in one Content-Length",
      bodyOf(`Content-Length: ${LENGTH}, ${LENGTH}`),
    ],
    ["a negative Content-Length", bodyOf("Content-Length: -1")],
    ["a Content-Length with a sign", bodyOf(`Content-Length: +${LENGTH}`)],
    ["a Content-Length in words", bodyOf("Content-Length: many")],
    ["a hexadecimal Content-Length", bodyOf("Content-Length: 0x20")],
    ["a Content-Length with a fraction", bodyOf(`Content-Length: ${LENGTH}.0`)],
    ["a Content-Length with a tail", bodyOf(`Content-Length: ${LENGTH}x`)],
    ["a Content-Length of two numbers", bodyOf(`Content-Length: 0 ${LENGTH}`)],
    ["an empty Content-Length", bodyOf("Content-Length:")],
    [
      "a Content-Length of 2^64 and the right one",
      bodyOf(`Content-Length: ${2n ** 64n + BigInt(LENGTH)}`),
    ],
    ["a Content-Length of 2^63", bodyOf(`Content-Length: ${2n ** 63n}`)],
    ["Transfer-Encoding: chunked, identity", chunksOf("Transfer-Encoding: chunked, identity")],
    ["Transfer-Encoding: identity, chunked", chunksOf("Transfer-Encoding: identity, chunked")],
    ["Transfer-Encoding: gzip, chunked", chunksOf("Transfer-Encoding: gzip, chunked")],
    ["Transfer-Encoding: chunked, chunked", chunksOf("Transfer-Encoding: chunked, chunked")],
    ["Transfer-Encoding: identity", chunksOf("Transfer-Encoding: identity")],
    ["Transfer-Encoding: xchunked", chunksOf("Transfer-Encoding: xchunked")],
    ['Transfer-Encoding: "chunked"', chunksOf('Transfer-Encoding: "chunked"')],
    ["Transfer-Encoding after a vertical tab", chunksOf("Transfer-Encoding: \vchunked")],
    ["an empty Transfer-Encoding", chunksOf("Transfer-Encoding:")],
    ["two Transfer-Encodings", chunksOf(CHUNKED, CHUNKED)],
    ["two Transfer-Encodings, one of them unknown", chunksOf(CHUNKED, "Transfer-Encoding: x")],
    [
      "chunks in HTTP/1.0",
      head("POST /plants HTTP/1.0", HOST, ...CREDENTIALS, CHUNKED) + chunked(SENT),
    ],
    ["a folded header", bodyOf("X-Folded: a", " b", CONTENT_LENGTH)],
    [
      "a Transfer-Encoding that hides in a fold",
      bodyOf(CONTENT_LENGTH, "X-Folded: a", ` ${CHUNKED}`),
    ],
    [
      "a first header that begins with a space",
      head(POST, ` ${HOST}`, ...CREDENTIALS, CONTENT_LENGTH) + SENT,
    ],
    ["a space before the colon of Content-Length", bodyOf(`Content-Length : ${LENGTH}`)],
    [
      "a space before the colon of Transfer-Encoding",
      bodyOf("Transfer-Encoding : chunked", CONTENT_LENGTH),
    ],
    ["a tab before the colon", bodyOf(`Content-Length\t: ${LENGTH}`)],
    ["a header line that ends with a bare LF", bodyOf(`X-Bare: a\n${CONTENT_LENGTH}`)],
    [
      "a header line that ends with a bare CR",
      bodyOf(`X-Bare: a\rContent-Length: 0`, CONTENT_LENGTH),
    ],
    ["a NUL in a header's value", bodyOf("X-Nul: a\0b", CONTENT_LENGTH)],
    ["a NUL in a header's name", bodyOf("X-\0Nul: a", CONTENT_LENGTH)],
    ["a control character in a header's value", bodyOf("X-Control: a\u0001b", CONTENT_LENGTH)],
    ["a header without a colon", bodyOf("Nonsense", CONTENT_LENGTH)],
    ["a header without a name", bodyOf(": a", CONTENT_LENGTH)],
    ["HTTP/1.1 without Host", head(POST, ...CREDENTIALS, CONTENT_LENGTH) + SENT],
    [
      "a target that is not a path",
      head("POST plants HTTP/1.1", HOST, ...CREDENTIALS, CONTENT_LENGTH) + SENT,
    ],
    ["OPTIONS *", head("OPTIONS * HTTP/1.1", HOST)],
    [
      "two spaces before the target",
      head("POST  /plants HTTP/1.1", HOST, ...CREDENTIALS, CONTENT_LENGTH) + SENT,
    ],
    ["an empty line before the request", `\r\n${createRequest(2)}`],
    ["a request line without a method", head(" /plants HTTP/1.1", HOST)],
    ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    [
      "a TLS handshake",
      Buffer.from(`160301002f0100002b0303${"07".repeat(32)}000002130101000000`, "hex"),
    ],
  ])("%s: 400", async (_name, bytes) => {
    expect(await send(bytes)).toEqual(["400 without a body", []]);
  });

  test.each([
    ["bare LFs for all line ends", createRequest(2).replaceAll("\r\n", "\n")],
    ["HTTP/0.9", "GET /livez\r\n"],
    ["HTTP/1.2", head("GET /livez HTTP/1.2", HOST)],
    ["HTTP/2.0", head("GET /livez HTTP/2.0", HOST)],
    ["http/1.1 in lower case", head("GET /livez http/1.1", HOST)],
    [
      "a target with a space",
      head("POST /plants x HTTP/1.1", HOST, ...CREDENTIALS, CONTENT_LENGTH) + SENT,
    ],
    [
      "tabs in the request line",
      head("POST\t/plants\tHTTP/1.1", HOST, ...CREDENTIALS, CONTENT_LENGTH) + SENT,
    ],
  ])("%s: 505", async (_name, bytes) => {
    expect(await send(bytes)).toEqual(["505 without a body", []]);
  });

  test.each([
    ["an unknown method", head("BREW /plants HTTP/1.1", HOST)],
    ["a method in lower case", createRequest(2).replace("POST", "post")],
  ])("%s: closed without a byte", async (_name, bytes) => {
    expect(await send(bytes)).toEqual(["", []]);
  });

  test("a Content-Length that a double cannot hold: 413", async () => {
    const bytes = bodyOf(`Content-Length: ${2n ** 53n + 1n}`);
    expect(await send(bytes)).toEqual(["413 without a body", []]);
  });

  const oversize = (bytes: number): string => {
    const lines = ["GET /livez HTTP/1.1", HOST, "Connection: close", "X-Large: "];
    return head(...lines.slice(0, -1), `X-Large: ${"a".repeat(bytes - head(...lines).length)}`);
  };
  const numerous = (headers: number): string =>
    head(
      "GET /livez HTTP/1.1",
      HOST,
      "Connection: close",
      ...Array.from({ length: headers - 2 }, (_, index) => `X-${index}: a`),
    );

  test.each([
    ["a head of one byte more than allowed", oversize(16_385)],
    ["a target longer than a head may be", head(`GET /${"a".repeat(17_000)} HTTP/1.1`, HOST)],
    ["199 headers", numerous(199)],
  ])("%s: 431", async (_name, bytes) => {
    expect(await send(bytes)).toEqual(["431 without a body", []]);
  });

  test.each([
    ["a head of as many bytes as allowed", oversize(16_384)],
    ["198 headers", numerous(198)],
  ])("but not %s", async (_name, bytes) => {
    await using service = await startService();
    expect(await exchange(service.url, bytes)).toMatchObject([{ status: 200 }]);
  });
});

describe("chunks that are none are refused by the runtime, which tells the handler that the body ended early:", () => {
  const size = LENGTH.toString(16);
  test.each([
    ["a size in words", `many\r\n${SENT}\r\n0\r\n\r\n`],
    ["no size", `\r\n${SENT}\r\n0\r\n\r\n`],
    ["a negative size", `-1\r\n${SENT}\r\n0\r\n\r\n`],
    ["a size with 0x", `0x${size}\r\n${SENT}\r\n0\r\n\r\n`],
    ["a size before a space", `${size} \r\n${SENT}\r\n0\r\n\r\n`],
    ["a size of 2^64 and the right one", `10000000000000000${size}\r\n${SENT}\r\n0\r\n\r\n`],
    ["a size of 2^64 - 1", `ffffffffffffffff\r\n${SENT}\r\n0\r\n\r\n`],
    ["sizes that end with a bare LF", `${size}\n${SENT}\n0\n\n`],
    ["a bare LF in a chunk's extension", `${size};a\nb\r\n${SENT}\r\n0\r\n\r\n`],
    ["a chunk that is longer than its size", `1\r\n${SENT}\r\n0\r\n\r\n`],
    ["a chunk without its line end", `${size}\r\n${SENT}0\r\n\r\n`],
    ["a good chunk before a bad one", `${chunk(SENT)}x\r\n\r\n0\r\n\r\n`],
  ])("%s", async (_name, chunks) => {
    const [answer, lines] = await send(createHead(CHUNKED) + chunks);
    expect(answer).toBe("400 without a body");
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { level: "info", reason: "body_incomplete" },
    ]);
  });

  // HTTP allows trailers. The runtime of today refuses them (oven-sh/bun#32887), and only after it
  // has handed over the body as complete: that nothing is stored where it says 400 is ours to see to.
  test.each([
    ["a trailer", "X-Trailer: a"],
    ["a trailer that names a length", "Content-Length: 5"],
  ])("%s after the last chunk", async (_name, trailer) => {
    const [answer] = await send(`${createHead(CHUNKED)}${chunk(SENT)}0\r\n${trailer}\r\n\r\n`);
    expect(answer).toBe("400 without a body");
  });

  test("an extension of 100,000 bytes, which is a 413", async () => {
    const [answer] = await send(`${createHead(CHUNKED)}1;${"a".repeat(100_000)}\r\n`);
    expect(answer).toBe("413 without a body");
  });
});
