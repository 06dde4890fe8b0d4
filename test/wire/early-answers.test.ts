/** An answer that is sent before the body has arrived reaches clients that keep sending. */

import { describe, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { limits } from "../support/limits.ts";
import { bearer, startService } from "../support/service.ts";
import {
  batchHead,
  chunk,
  connectRaw,
  createHead,
  head,
  HOST,
  parseAnswers,
  sendDeaf,
  takeAnswer,
} from "../support/wire.ts";

const CHUNKED = "Transfer-Encoding: chunked";
const BODY_BYTES_MAX = 1_048_576;
const SENT_BYTES = 3_000_000;
const PAUSE_MS = 40;
/** A client that gets no time of the processor for half a second counts as one that has stopped sending. */
const TRIES = 5;

const drainSecondsMax = 0.1;
const readToken = mintToken();

/** Each client has a service of its own: what one leaves unfinished does not count for another. */
const targets = {
  ordinary: async () => {
    const service = await startService(limits({ drainSecondsMax }));
    const grant = { name: "reader", scopes: ["plants:read"] as const, createdAtMs: Date.now() };
    await service.store.createToken(toRecord(readToken, grant));
    return service;
  },
  /** Has no room for a further body. */
  full: async () => {
    const service = await startService({
      PLANTSTORE_BODY_BYTES_TOTAL_MAX: String(BODY_BYTES_MAX),
      ...limits({ drainSecondsMax, readSecondsMax: 240, idleSecondsMax: 255 }),
    });
    const holder = await connectRaw(service.url);
    holder.send(createHead(`Content-Length: ${BODY_BYTES_MAX}`));
    await fetch(`${service.url}/livez`);
    return service;
  },
  /** Does not wait for a body as long as these clients send. */
  hasty: () =>
    startService(limits({ bodyBytesMax: 2 * SENT_BYTES, drainSecondsMax, readSecondsMax: 1 })),
};

interface Case {
  readonly reason: ErrorName;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number;
  readonly isChunked: boolean;
  /** Between the pieces of the body. Node's fetch then uses chunks. */
  readonly pauseMs: number;
  readonly version: "1.0" | "1.1";
}

/** Sends all cases at once, and returns what became of each: status and code, or a failure. */
type Client = (url: string, cases: readonly Case[]) => Promise<string[]>;

const PIECE_BYTES = 65_536;

const sendThenRead: Client = (url, cases) => {
  const sendOne = async ({ path, headers, bytes, isChunked, pauseMs, version }: Case) => {
    const length = isChunked ? CHUNKED : `Content-Length: ${bytes}`;
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    const socket = sendDeaf(url, head(`POST ${path} HTTP/${version}`, HOST, ...lines, length));
    for (let left = bytes; left > 0; left -= PIECE_BYTES) {
      const piece = "x".repeat(Math.min(left, PIECE_BYTES));
      await new Promise((sent) => socket.write(isChunked ? chunk(piece) : piece, sent));
      await Bun.sleep(pauseMs);
    }
    if (isChunked) socket.write("0\r\n\r\n");
    let received = "";
    for await (const part of socket)
      if (takeAnswer((received += String(part))) !== undefined) break;
    const { status, body } = takeAnswer(received, { hasEnded: true })?.answer ?? {};
    return `${status} ${JSON.parse(body ?? "{}").error}`;
  };
  return Promise.all(cases.map((one) => sendOne(one).catch(String)));
};

const fetchInNode: Client = async (url, cases) => {
  const program = `const cases = ${JSON.stringify(cases)};
  async function send({ path, headers, bytes, isChunked, pauseMs }) {
    const whole = Buffer.alloc(bytes, 120);
    const body = isChunked || pauseMs > 0 ? new ReadableStream({
      async start(controller) {
        for (let at = 0; at < bytes; at += ${PIECE_BYTES}) {
          controller.enqueue(whole.subarray(at, at + ${PIECE_BYTES}));
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
        controller.close();
      },
    }) : whole;
    const response = await fetch(${JSON.stringify(url)} + path, { method: "POST", headers, body, duplex: "half" });
    const { error } = await response.json();
    return response.status + " " + error;
  }
  const sent = cases.map((one) => send(one).catch((error) => String(error.cause?.code ?? error)));
  Promise.all(sent).then((results) => console.log(JSON.stringify(results)));`;
  const child = Bun.spawn(["node", "-e", program], { stdout: "pipe", stderr: "inherit" });
  return JSON.parse(await child.stdout.text()) as string[];
};

const JSON_TYPE = { "content-type": "application/json" };
const NDJSON_TYPE = { "content-type": "application/x-ndjson" };
const plain = { ...bearer(), ...JSON_TYPE };
const lines = { ...bearer(), ...NDJSON_TYPE };

const refused: [reason: ErrorName, path: string, headers: Record<string, string>][] = [
  ["body_too_large", "/plants", plain],
  ["token_missing", "/plants", JSON_TYPE],
  ["insufficient_scope", "/plants", { ...plain, ...bearer(readToken) }],
  ["path_not_found", "/nowhere", plain],
  ["method_not_allowed", "/plants/1", plain],
  ["unsupported_media_type", "/plants", { ...plain, "content-type": "text/plain" }],
  ["token_missing", "/plants/batch", NDJSON_TYPE],
  ["insufficient_scope", "/plants/batch", { ...lines, ...bearer(readToken) }],
  ["unsupported_media_type", "/plants/batch", { ...lines, "content-type": "text/plain" }],
];

const inBothForms = (table: typeof refused, more: Partial<Case> = {}): Case[] => {
  const usual = { bytes: SENT_BYTES, pauseMs: 0, version: "1.1" } as const;
  const cases: Case[] = [];
  for (const [reason, path, headers] of table)
    for (const isChunked of [false, true])
      cases.push({ reason, path, headers, isChunked, ...usual, ...more });
  return cases;
};
const full: typeof refused = [
  ["overloaded", "/plants", plain],
  ["overloaded", "/plants/batch", lines],
];
type Groups = { readonly [target in keyof typeof targets]?: readonly Case[] };
const groups: Groups = {
  ordinary: inBothForms(refused),
  full: inBothForms(full, { bytes: BODY_BYTES_MAX }),
  hasty: inBothForms([["body_too_slow", "/plants", plain]], { pauseMs: PAUSE_MS }),
};

/** The groups of a client together, because each waits for most of its time. */
async function expectAnswers(send: Client, sent: Groups): Promise<void> {
  await Promise.all(
    Object.entries(sent).map(async ([name, cases]) => {
      await using service = await targets[name as keyof Groups]();
      let left = cases;
      let results: string[] = [];
      const dueOf = ({ reason }: Case): string =>
        `${catalogue[reason].status} ${catalogue[reason].code}`;
      for (let tries = 0; tries < TRIES && left.length > 0; tries++) {
        results = await send(service.url, left);
        left = left.filter((one, index) => results[index] !== dueOf(one));
      }
      expect([name, left, left.length > 0 && results]).toEqual([name, [], false]);
    }),
  );
}

test("every early answer, the 503 without room and the 408 reach a client that reads when it has sent all", async () => {
  await expectAnswers(sendThenRead, groups);
});

test("over HTTP/1.0 without a Connection header every early answer reaches such a client too", async () => {
  const cases = inBothForms(refused, { version: "1.0" }).filter(({ isChunked }) => !isChunked);
  await expectAnswers(sendThenRead, { ordinary: cases });
});

test.skipIf(Bun.which("node") === null)("they reach the fetch of Node.js", async () => {
  await expectAnswers(fetchInNode, groups);
});

test("the last result of a batch that is interrupted reaches a client that keeps sending and closes", async () => {
  await using hasty = await targets.hasty();
  const connection = await connectRaw(hasty.url);
  connection.send(batchHead("Connection: close") + chunk('{"id":1,"name":"a"}\n'));
  const slow = await connection.receive(/"line":2,"status":408/);
  expect(slow).toContain('{"line":1,"status":200}');
  for (let piece = 0; piece < 30; piece++) connection.send(chunk("x".repeat(50_000)));
  connection.send("0\r\n\r\n");
  expect(parseAnswers(await connection.closed)).toMatchObject([{ status: 200 }]);
});

describe("what the service discards is bounded:", () => {
  const wrongType = createHead(CHUNKED).replace("application/json", "text/plain");

  test("a client that stops sending is not waited for", async () => {
    await using service = await targets.ordinary();
    const connection = await connectRaw(service.url);
    const startedAtMs = performance.now();
    connection.send(wrongType + chunk("x"));
    expect(parseAnswers(await connection.closed)).toMatchObject([{ status: 415 }]);
    expect(performance.now() - startedAtMs).toBeGreaterThan(400);
  });

  test("a client that never stops is cut off after 64 MiB", async () => {
    await using service = await targets.ordinary();
    const socket = sendDeaf(service.url, wrongType).resume();
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const piece = chunk("x".repeat(1_000_000));
    const send = (): void => {
      while (socket.writable && socket.write(piece));
    };
    socket.on("drain", send);
    send();
    await closed;
    expect(socket.bytesWritten).toBeWithin(67_108_864, 100_000_000);
  });
});
