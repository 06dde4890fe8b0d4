/** An answer that is sent before the body has arrived reaches clients that keep sending. */

import type { Socket } from "bun";
import { afterAll, describe, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { clients, type EarlyCase, runClient } from "../support/early-clients.ts";
import { nginxPath, startNginx } from "../support/nginx.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { chunk, connectRaw, createHead, parseAnswers } from "../support/wire.ts";

const BODY_BYTES_MAX = 1_048_576;
const TRIES = 4;

const service = await startService({
  PLANTSTORE_BODY_BYTES_MAX: String(BODY_BYTES_MAX),
  PLANTSTORE_DRAIN_SECONDS_MAX: "1",
});
afterAll(() => service[Symbol.asyncDispose]());

const readToken = mintToken();
await service.store.createToken(
  toRecord(readToken, { name: "reader", scopes: ["plants:read"], createdAtMs: Date.now() }),
);

const JSON_TYPE = { "content-type": "application/json" };
const NDJSON_TYPE = { "content-type": "application/x-ndjson" };
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const good = bearer(TEST_TOKEN);

const refused: [reason: ErrorName, path: string, headers: Record<string, string>][] = [
  ["body_too_large", "/plants", { ...good, ...JSON_TYPE }],
  ["token_missing", "/plants", JSON_TYPE],
  ["insufficient_scope", "/plants", { ...bearer(readToken), ...JSON_TYPE }],
  ["path_not_found", "/nowhere", { ...good, ...JSON_TYPE }],
  ["method_not_allowed", "/plants/1", { ...good, ...JSON_TYPE }],
  ["unsupported_media_type", "/plants", { ...good, "content-type": "text/plain" }],
  ["token_missing", "/plants/batch", NDJSON_TYPE],
  ["insufficient_scope", "/plants/batch", { ...bearer(readToken), ...NDJSON_TYPE }],
  ["unsupported_media_type", "/plants/batch", { ...good, "content-type": "text/plain" }],
];
const reasons = refused.flatMap(([reason]) => [reason, reason]);
const cases = refused.flatMap(([, path, headers]): EarlyCase[] =>
  [false, true].map((isChunked) => ({ path, headers, bytes: 3_000_000, isChunked })),
);
const answersOf = (names: readonly ErrorName[]): string[][] =>
  Array.from({ length: TRIES }, () =>
    names.map((name) => `${catalogue[name].status} ${catalogue[name].code}`),
  );

const routes: [name: string, settings: readonly string[] | undefined][] = [
  ["directly", undefined],
  ["through nginx as it is configured by default", []],
  [
    "through nginx over HTTP/1.1, without buffers",
    ["proxy_http_version 1.1;", 'proxy_set_header Connection "";', "proxy_request_buffering off;"],
  ],
];

describe.each(routes)("%s", (_name, settings) => {
  describe.skipIf(settings !== undefined && nginxPath === null)("every early answer", () => {
    test.each(Object.keys(clients))(
      "reaches %s",
      async (client) => {
        const program = clients[client];
        if (program === undefined || Bun.which(client === "node" ? "node" : "python3") === null)
          return;
        await using nginx =
          settings === undefined ? undefined : await startNginx(service.url, settings);
        const results = await runClient(program, nginx?.url ?? service.url, cases, TRIES);
        expect(results).toEqual(answersOf(reasons));
      },
      60_000,
    );
  });
});

test.each(Object.keys(clients))(
  "a full memory for bodies: the 503 reaches %s",
  async (client) => {
    const program = clients[client];
    if (program === undefined) return;
    await using full = await startService({
      PLANTSTORE_BODY_BYTES_MAX: String(BODY_BYTES_MAX),
      PLANTSTORE_BODY_BYTES_TOTAL_MAX: String(BODY_BYTES_MAX),
      PLANTSTORE_DRAIN_SECONDS_MAX: "1",
    });
    const holder = await connectRaw(full.url);
    holder.send(createHead(`Content-Length: ${BODY_BYTES_MAX}`));
    await fetch(`${full.url}/livez`);
    const busy = [false, true].map((isChunked) => ({
      path: "/plants",
      headers: { ...good, ...JSON_TYPE },
      bytes: BODY_BYTES_MAX,
      isChunked,
    }));
    const results = await runClient(program, full.url, busy, TRIES);
    expect(results).toEqual(answersOf(["overloaded", "overloaded"]));
    holder.abort();
  },
  30_000,
);

describe("what the service discards is bounded:", () => {
  const CHUNKED = "Transfer-Encoding: chunked";

  test("a client that stops sending is not waited for", async () => {
    const connection = await connectRaw(service.url);
    const startedAtMs = performance.now();
    connection.send(createHead(CHUNKED).replace("application/json", "text/plain") + chunk("x"));
    expect(parseAnswers(await connection.closed)).toMatchObject([{ status: 415 }]);
    expect(performance.now() - startedAtMs).toBeWithin(400, 5_000);
  });

  test("a client that never stops is cut off after 64 MiB", async () => {
    const piece = Buffer.from(chunk("x".repeat(1_000_000)));
    let rest: Uint8Array = Buffer.from(
      createHead(CHUNKED).replace("application/json", "text/plain"),
    );
    let sent = 0;
    const send = (socket: Socket): void => {
      for (let written = socket.write(rest); written > 0; written = socket.write(rest)) {
        sent += written;
        rest = rest.length === written ? piece : rest.subarray(written);
      }
    };
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const { hostname, port } = new URL(service.url);
    await Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        open: send,
        data: () => undefined,
        drain: send,
        close: () => resolve(),
        error: () => resolve(),
      },
    });
    await closed;
    expect(sent).toBeWithin(67_108_864, 100_000_000);
  }, 20_000);
});
