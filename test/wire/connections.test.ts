/** Several requests on one connection: where each ends, and which are answered. */

import { describe, expect, test } from "bun:test";
import { startService } from "../support/service.ts";
import {
  chunked,
  connectRaw,
  createRequest,
  exchange,
  expectStored,
  head,
  HOST,
  parseAnswers,
  receive,
} from "../support/wire.ts";

const CHUNKED = "Transfer-Encoding: chunked";
const CLOSE = "Connection: close";

describe("a body that the service does not read is no request:", () => {
  const smuggled = createRequest(666, "X-Request-Id: smuggled");
  const framings = [
    [`Content-Length: ${smuggled.length}`, smuggled],
    [CHUNKED, chunked(smuggled)],
  ] as const;

  test.each([
    ["POST /plants without a token", 401],
    ["POST /nowhere", 404],
    ["PUT /plants", 405],
    ["GET /livez", 200],
    ["OPTIONS /plants", 204],
  ])("of %s", async (request, status) => {
    await using service = await startService();
    const [method = "", target = ""] = request.split(" ");
    for (const [framing, body] of framings) {
      const top = head(`${method} ${target} HTTP/1.1`, HOST, framing);
      for (const [first, second] of [
        [top + body, ""],
        [top, body],
      ] as const) {
        const connection = await connectRaw(service.url);
        connection.send(first);
        await receive(connection, status === 204 ? /\r\n\r\n/ : /\r\n\{.*\}/);
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
});

describe("on one connection,", () => {
  // What Bun 1.4 does, and not what RFC 9112, section 9.3.2, asks for: it denies pipelining behind
  // an answer that is pending. When this fails after an upgrade, oven-sh/bun#38128 or its like has
  // come: both creates should then be answered, and the documentation no longer has to warn.
  test.each([
    ["a create", createRequest(3, "X-Request-Id: second")],
    ["a request that needs no store", head("GET /livez HTTP/1.1", HOST, "X-Request-Id: second")],
  ])(
    "the runtime of today closes without an answer where %s is pipelined behind a create; the first is stored, and a retry safe",
    async (_name, second) => {
      await using service = await startService();
      expect(await exchange(service.url, createRequest(2) + second)).toEqual([]);
      await expectStored(service, [2]);
      expect(service.logLines.join("")).not.toContain("second");
      const retried = await exchange(service.url, createRequest(2, CLOSE));
      expect(retried).toMatchObject([{ status: 200 }]);
      expect(retried[0]?.headers.get("idempotent-replayed")).toBe("true");
    },
  );

  test("requests pipelined behind answers that need no store are answered in order", async () => {
    await using service = await startService();
    const ask = (id: string): string => head("GET /livez HTTP/1.1", HOST, `X-Request-Id: ${id}`);
    const bytes = ask("first") + ask("second") + createRequest(2, "X-Request-Id: third", CLOSE);
    const answers = await exchange(service.url, bytes);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(answers.map(({ headers }) => headers.get("x-request-id"))).toEqual([
      "first",
      "second",
      "third",
    ]);
    await expectStored(service, [2]);
  });
});
