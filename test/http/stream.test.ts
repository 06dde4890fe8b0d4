/** Many plants in and out, past a slow writer and a slow reader, in memory that does not grow with them. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "bun:test";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { openTestDatabase } from "../support/database.ts";
import { lines as makeLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { bearer, startService, TEST_TOKEN, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";
import { batchHead, chunk, getHead, sendDeaf } from "../support/wire.ts";

export const groups = ["sqlite", "serializable"];

const PLANTS = 5_000;
/** With it the plants are far more text than the service may use memory. */
const PADDING = "é".repeat(15_000);
const LINES_PER_PIECE = 100;
/** What the service takes at rest, and room for its buffers. */
const RSS_MB_MAX = 200;

function* makePieces(): Generator<Uint8Array> {
  for (let first = 0; first < PLANTS; first += LINES_PER_PIECE) {
    const ids = Array.from({ length: LINES_PER_PIECE }, (_, index) => first + index);
    const toLine = (id: number) => `{"id":${id},"name":"${id} ${PADDING}","tag":"t${id % 50}"}\n`;
    yield Buffer.from(ids.map(toLine).join(""));
  }
}

/** Reads a body line by line, and keeps none of it. */
async function countLines({ body }: Response, isGood: (line: string) => boolean): Promise<number> {
  const decoder = new TextDecoder();
  let rest = "";
  let count = 0;
  for await (const bytes of body as ReadableStream<Uint8Array>) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (isGood(line)) count++;
  }
  expect(rest).toBe("");
  return count;
}

const readRssMbMax = ({ pid }: ServiceProcess): number =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

// Together, because one of them waits for the most part.
describe.concurrent("a stream", () => {
  test.skipIf(process.platform !== "linux")(
    "more plants than memory are streamed under a fixed memory bound",
    async () => {
      await using database = await openTestDatabase();
      await using service = await spawnService({
        DATABASE_URL: database.url,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        // However slow the machine is.
        ...limits({ idleSecondsMax: 255 }),
      });
      const { url } = service.started;
      const pieces = makePieces();
      const stored = await fetch(`${url}/plants/batch`, {
        method: "POST",
        headers: { ...bearer(), "content-type": "application/x-ndjson" },
        body: new ReadableStream<Uint8Array>({
          pull(controller) {
            const { done, value } = pieces.next();
            if (done) controller.close();
            else controller.enqueue(value);
          },
        }),
      });
      expect(stored.status).toBe(200);
      expect(await countLines(stored, (line) => line.endsWith('"status":200}'))).toBe(PLANTS);
      expect(readRssMbMax(service)).toBeLessThan(RSS_MB_MAX);

      // A reader that reads nothing: the service stops producing, and still answers others.
      const slow = sendDeaf(url, getHead("/plants", "Accept: application/x-ndjson"));
      let next = -1;
      const get = (path: string, accept: string): Promise<Response> =>
        fetch(url + path, { headers: { ...bearer(), accept } });
      const exported = await get("/plants", "application/x-ndjson");
      const inOrder = (line: string): boolean => (JSON.parse(line) as { id: number }).id === ++next;
      expect(await countLines(exported, inOrder)).toBe(PLANTS);
      expect(readRssMbMax(service)).toBeLessThan(RSS_MB_MAX);
      slow.destroy();

      const sheet = await get("/plants?tag=t7", "text/csv");
      expect(await countLines(sheet, (line) => line.endsWith('"t7"\r'))).toBe(PLANTS / 50);
    },
  );

  test("a batch whose client reads no results is read to its end before the cut-off", async () => {
    await using service = await startService(limits({ idleSecondsMax: 6, readSecondsMax: 240 }));
    const deaf = sendDeaf(service.url, batchHead());
    await sendAll(deaf, UNREAD_LINES);
    await until("it is cut off", () => service.logLines.join("").includes('"answer_cut_off"'));
    const cutOff = new Promise((resolve) => deaf.once("close", resolve).once("end", resolve));
    let tail = "";
    deaf.on("data", (bytes: Buffer) => {
      tail = (tail + bytes.toString("latin1")).slice(-7);
    });
    // Until it is resumed, a paused socket does not notice an end without an error.
    deaf.resume();
    await cutOff;
    expect(tail).not.toEndWith("0\r\n\r\n");
  });
});

const UNREAD_COUNT = 200_000;
/** Both they and their results are more than the buffers of the connection hold. */
const UNREAD_LINES = `${"x".repeat(100)}\n`.repeat(UNREAD_COUNT);
/** As much in fewer lines: a summary is short anyway. */
const LONG_COUNT = 10_000;
const LONG_LINES = `${"x".repeat(2_000)}\n`.repeat(LONG_COUNT);

const sendAll = (socket: ReturnType<typeof sendDeaf>, lines: string): Promise<unknown> =>
  new Promise((sent, failed) => {
    socket.once("error", failed).write(`${chunk(lines)}0\r\n\r\n`, sent);
  });

/** What a client receives that sends all of its lines before it reads. */
async function sendThenRead(to: TestService, head: string, lines: string): Promise<string> {
  const socket = sendDeaf(to.url, head);
  await sendAll(socket, lines);
  let received = "";
  for await (const bytes of socket) {
    received += String(bytes);
    if (received.endsWith("\r\n0\r\n\r\n")) break;
  }
  return received;
}

test("a client that sends all lines before it reads gets the summary that it prefers", async () => {
  await using service = await startService();
  const head = batchHead().replace("Content-Type", "Prefer: return=minimal\r\nContent-Type");
  expect(await sendThenRead(service, head, LONG_LINES)).toContain(
    `{"created":0,"replayed":0,"refused":${LONG_COUNT},"complete":true}\n`,
  );
});

test("a client that sends all lines before it reads has them all stored", async () => {
  await using impatient = await startService(limits({ idleSecondsMax: 8, readSecondsMax: 240 }));
  const received = await sendThenRead(impatient, batchHead(), UNREAD_LINES + makeLines(0, 2_000));
  expect((await impatient.readPlants()).length).toBe(2_000);
  // The first results were sent before the service noticed that the client does not read.
  expect(received).toContain('{"line":1,"status":400');
  const last = `{"created":2000,"replayed":0,"refused":${UNREAD_COUNT},"complete":true}\n`;
  expect(received).toEndWith(`${last}\r\n0\r\n\r\n`);
  // The rest is a summary, with as many refused lines as it shows.
  const results = received.match(/"line":\d+/g) ?? [];
  expect(results.length).toBeLessThan(UNREAD_COUNT);
  expect(new Set(results).size).toBe(results.length);
});
