/** Bytes that are not quite HTTP. Each is refused, stores nothing, and hides no second request. */

import { afterAll, describe, expect, test } from "bun:test";
import { startService } from "../support/service.ts";
import {
  chunk,
  chunked,
  createHead,
  createRequest,
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

const service = await startService();
afterAll(() => service[Symbol.asyncDispose]());

/** Follows every malformed request on its connection: a server that misjudges where that ends executes it. */
const SMUGGLED = createRequest(666, "X-Request-Id: smuggled");

/** What is answered, and why the service refused the requests that it saw in the bytes. */
async function send(bytes: string): Promise<[string, unknown[]]> {
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

// The runtime gives these answers before any handler, as docs/errors.md lists them: one of each kind, so an upgrade
// that changes them is noticed. `npm run torture -- fuzz` sends thousands of others.
describe("the runtime refuses by itself, without our JSON,", () => {
  const bodyOf = (...lines: readonly string[]): string => createHead(...lines) + SENT;
  const chunksOf = (...lines: readonly string[]): string => createHead(...lines) + chunked(SENT);

  test.each([
    ["Content-Length before Transfer-Encoding", chunksOf(CONTENT_LENGTH, CHUNKED), 400],
    ["two differing Content-Lengths", bodyOf(CONTENT_LENGTH, "Content-Length: 0"), 400],
    ["HTTP/1.2", head("GET /livez HTTP/1.2", HOST), 505],
    ["a head of 17,000 bytes", head(`GET /${"a".repeat(17_000)} HTTP/1.1`, HOST), 431],
    ["a Content-Length beyond doubles", bodyOf(`Content-Length: ${2n ** 53n + 1n}`), 413],
  ])("%s", async (_name, bytes, status) => {
    expect(await send(bytes)).toEqual([`${status} without a body`, []]);
  });

  test("an unknown method: closed without a byte", async () => {
    expect(await send(head("BREW /plants HTTP/1.1", HOST))).toEqual(["", []]);
  });
});

describe("chunks that are none end the body early, and nothing is stored:", () => {
  const size = LENGTH.toString(16);
  test.each([
    ["a size in words", `many\r\n${SENT}\r\n0\r\n\r\n`],
    ["a size of 2^64 and the right one", `10000000000000000${size}\r\n${SENT}\r\n0\r\n\r\n`],
    ["sizes that end with a bare LF", `${size}\n${SENT}\n0\n\n`],
    ["a chunk that is longer than its size", `1\r\n${SENT}\r\n0\r\n\r\n`],
    ["a good chunk before a bad one", `${chunk(SENT)}x\r\n\r\n0\r\n\r\n`],
  ])("%s", async (_name, chunks) => {
    expect(await send(createHead(CHUNKED) + chunks)).toEqual([
      "400 without a body",
      ["body_incomplete"],
    ]);
  });

  // HTTP allows trailers. The runtime of today refuses them (oven-sh/bun#32887), and only after it
  // has handed over the body as complete: that nothing is stored where it says 400 is ours to see to.
  test("a trailer after the last chunk", async () => {
    const [answer] = await send(`${createHead(CHUNKED)}${chunk(SENT)}0\r\nX-Trailer: a\r\n\r\n`);
    expect(answer).toBe("400 without a body");
  });
});
