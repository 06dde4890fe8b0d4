/** POST /plants/batch: each line judged alone, in order, as it comes. */

import { describe, expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { heldUp } from "../support/database.ts";
import { expectError } from "../support/expect.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import {
  getText,
  send,
  sendLines,
  startService,
  startShared,
  type TestService,
} from "../support/service.ts";
import { batchHead, chunk, connectRaw } from "../support/wire.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";

const service = await startShared(limits({ bodyBytesMax: 2048, readSecondsMax: 1 }));

interface Result {
  readonly line: number;
  readonly status: number;
  readonly error?: number;
  readonly message?: string;
}

async function sendBatch(body: string | Uint8Array, to = service): Promise<Result[]> {
  const response = await sendLines(to, body);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("application/x-ndjson");
  const text = await response.text();
  return text === "" ? [] : (parseLines(text) as Result[]);
}

const countPlants = async (of: TestService): Promise<number> => (await of.readPlants()).length;

describe("a batch", () => {
  test("answers one result a line, in order, each judged alone", async () => {
    const { invalid_json, invalid_plant, invalid_utf8, body_too_large, id_taken } = catalogue;
    const largest = '{"id":9223372036854775807,"name":"max"}';
    const lines = [
      '{"id":1,"name":"a","tag":"t"}',
      "not json",
      '{"id":1,"name":"a","tag":"t"}',
      '{"id":1,"name":"b"}',
      '{"id":1.5}',
      `${largest}\r`,
      `{"id":2,"name":"${"x".repeat(3000)}"}`,
      '{"id":3,"name":"\xff"}',
      '{"id":4,"name":"last"}',
    ];
    const results = await sendBatch(Buffer.from(`${lines.join("\n")}\n`, "latin1"));
    expect(results).toMatchObject([
      { line: 1, status: 200 },
      { line: 2, status: 400, error: invalid_json.code },
      { line: 3, status: 200, replayed: true },
      { line: 4, status: 409, error: id_taken.code },
      { line: 5, status: 400, error: invalid_plant.code },
      { line: 6, status: 200 },
      { line: 7, status: 413, error: body_too_large.code },
      { line: 8, status: 400, error: invalid_utf8.code },
      { line: 9, status: 200 },
    ]);
    expect(Object.keys(results[0] ?? {})).toEqual(["line", "status"]);
    expect(results[4]?.message).toBe(
      "id: expected an integer from -9223372036854775808 to 9223372036854775807, got 1.5; name: expected a string, got nothing",
    );
    expect(await getText(service, "/plants/9223372036854775807")).toBe(largest);
  });

  test("counts empty lines and answers nothing for them", async () => {
    expect(await sendBatch('\n\n{"id":10,"name":"a"}\n  \r\n{"id":11,"name":"a"}')).toEqual([
      { line: 3, status: 200 },
      { line: 5, status: 200 },
    ]);
    expect(await sendBatch("")).toEqual([]);
    expect(await sendBatch("\n")).toEqual([]);
  });

  const ask = (type: string, more = {}): Promise<Response> =>
    sendLines(service, "", { "content-type": type, ...more });

  test.each(["application/ndjson", "application/jsonl", "Application/X-NDJSON; charset=utf-8"])(
    "accepts the media type %s",
    async (type) => {
      expect((await ask(type)).status).toBe(200);
    },
  );

  test("refuses another media type with those that it accepts", async () => {
    const says = ["application/x-ndjson", "application/json"];
    const plain = await ask("text/plain");
    expect(plain.headers.get("accept-post")).toBe(
      "application/x-ndjson, application/ndjson, application/jsonl, application/json",
    );
    await expectError(plain, "unsupported_media_type", ...says);
  });

  test("refuses another encoding with those that it accepts", async () => {
    const encoded = await ask("application/x-ndjson", { "content-encoding": "br" });
    expect(encoded.headers.get("accept-encoding")).toBe("gzip, identity");
    await expectError(encoded, "unsupported_encoding");
  });
});

// A half line that happens to be JSON is still a half line.
test.each(['{"id":2,"name":"ha', '{"id":2,"name":"half"}'])(
  "a batch that breaks off after %s leaves only whole lines",
  async (half) => {
    await using small = await startService();
    const connection = await connectRaw(small.url);
    connection.send(batchHead() + chunk(`{"id":1,"name":"whole"}\n${half}`));
    await connection.receive(/"line":1/);
    connection.abort();
    await until("it is logged", () => small.logLines.join("").includes("batch_broken_off"));
    expect(await countPlants(small)).toBe(1);
  },
);

describe("a batch with Prefer: return=minimal", () => {
  const sendPreferring = (prefer: string, body: string): Promise<Response> =>
    sendLines(service, body, { prefer });
  const { invalid_json, id_taken, body_too_slow } = catalogue;

  test("answers the refused lines and the counts", async () => {
    const lines = ['{"id":70,"name":"a"}', "", "x", '{"id":70,"name":"a"}', '{"id":70,"name":"b"}'];
    const response = await sendPreferring("respond-async, Return = minimal", lines.join("\n"));
    expect(response.headers.get("preference-applied")).toBe("return=minimal");
    expect(parseLines(await response.text())).toEqual([
      { line: 3, status: 400, error: invalid_json.code, message: expect.any(String) },
      { line: 5, status: 409, error: id_taken.code, message: expect.any(String) },
      { created: 1, replayed: 1, refused: 2, complete: true },
    ]);
    const none = await (await sendPreferring('return="minimal"', "")).text();
    expect(none).toBe('{"created":0,"replayed":0,"refused":0,"complete":true}\n');
  });

  test("shows the first 1,000 refused lines", async () => {
    const response = await sendPreferring("return=minimal", "x\n".repeat(1_500));
    expect(parseLines(await response.text())).toMatchObject([
      ...Array.from({ length: 1_000 }, (_, index) => ({ line: index + 1 })),
      { refused: 1_500, complete: true },
    ]);
  });

  test.each([
    "return=representation",
    "return=representation, return=minimal",
    "minimal",
    "wait=5",
    'note="a, return=minimal"',
  ])("%s: every result", async (prefer) => {
    const response = await sendPreferring(prefer, "x\n");
    expect(response.headers.has("preference-applied")).toBe(false);
    expect(parseLines(await response.text())).toMatchObject([{ line: 1, status: 400 }]);
  });

  const minimalHead = batchHead().replace("Content-Type", "Prefer: return=minimal\r\nContent-Type");

  test("that stops sending is not complete", async () => {
    const connection = await connectRaw(service.url);
    connection.send(minimalHead + chunk('{"id":71,"name":"a"}\n{"id":72'));
    const received = await connection.receive(/"complete".*\n/);
    expect(received).toContain(`{"line":2,"status":408,"error":${body_too_slow.code}`);
    expect(received).toContain('{"created":1,"replayed":0,"refused":0,"complete":false}');
    connection.abort();
  });
});

test("lines that never reach the store, however many, leave others their turn", async () => {
  const batch = sendBatch("x\n".repeat(60_000));
  let answered = 0;
  while ((await Promise.race([batch, fetch(`${service.url}/livez`)])) instanceof Response)
    answered++;
  expect(await batch).toHaveLength(60_000);
  // On a busy machine each answer takes several turns. Without turns there is none.
  expect(answered).toBeGreaterThan(5);
});

test("lines get 503 for as long as the store cannot be written", async () => {
  await using small = await startService(limits({ queueSecondsMax: 1 }));
  await using held = await small.database.holdWrites();
  const results = await sendBatch(makeLines(0, 300), small);
  expect(results.every(({ status }) => status === 503)).toBe(true);
  // On a busy machine the commit may have begun by then.
  const reasons = [catalogue[heldUp].code, catalogue.store_unavailable.code];
  for (const { error } of results) expect(reasons).toContain(error as (typeof reasons)[number]);
  const logged = small.logLines
    .filter((line) => line.includes("batch_lines_failed"))
    .map((line) => JSON.parse(line) as { requestId: string; count: number });
  for (const { requestId } of logged) expect(requestId).toMatch(/-/);
  expect(logged.length).toBeLessThan(5);
  expect(logged.reduce((sum, { count }) => sum + count, 0)).toBe(300);
  await held.release();
  await until("lines are stored again", async () => {
    const [result] = await sendBatch(makeLines(0, 1), small);
    return result?.status === 200;
  });
});

test("a full queue holds batches up without failing or reordering a line", async () => {
  const patience = { queueSecondsMax: 200, idleSecondsMax: 255 };
  await using small = await startService(
    limits({ queueLengthMax: 64, commitLengthMax: 16, ...patience }),
  );
  const pairs = (first: number): string =>
    makeLines(first, 300).replaceAll(/.*\n/g, (line) => line + line.replace('"p"', '"other"'));
  const batches = await Promise.all(
    [0, 1_000, 2_000].map((first) => sendBatch(pairs(first), small)),
  );
  const due = Array.from({ length: 600 }, (_, index) => (index % 2 === 0 ? 200 : 409));
  for (const results of batches) expect(results.map(({ status }) => status)).toEqual(due);
});

describe("a batch as an array", () => {
  const sendArray = (body: string, to = service): Promise<Response> =>
    send(to, "POST", "/plants/batch", { body });

  test("answers an array of the same results, numbered by element, with exact ids", async () => {
    const response = await sendArray(
      '[{"id":9223372036854775806,"name":"a"},\n\n {"id":9223372036854775806,"name":"b"}, {"id":9223372036854775806,"name":"a"},[],{}]',
    );
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    const { id_taken, invalid_plant } = catalogue;
    expect(await response.json()).toEqual([
      { line: 1, status: 200 },
      { line: 2, status: 409, error: id_taken.code, message: expect.stringContaining("806") },
      { line: 3, status: 200, replayed: true },
      { line: 4, status: 400, error: invalid_plant.code, message: expect.any(String) },
      { line: 5, status: 400, error: invalid_plant.code, message: expect.any(String) },
    ]);
  });

  test("may have no element, or more than one block", async () => {
    expect(await (await sendArray(" [ ] ")).json()).toEqual([]);
    await using large = await startService();
    const plants = Array.from({ length: 2_000 }, (_, id) => ({ id, name: "n" }));
    expect(await (await sendArray(JSON.stringify(plants), large)).json()).toEqual(
      plants.map((_, index) => ({ line: index + 1, status: 200 })),
    );
    expect(await countPlants(large)).toBe(2_000);
  });

  test.each([
    ["", "invalid_json"],
    ['[{"id":60,"name":"a"}', "invalid_json"],
    ['[{"id":60,"name":"a"},]', "invalid_json"],
    ['[{"id":60,"name":"a"}] x', "invalid_json"],
    ['{"id":60,"name":"a"}', "invalid_plant"],
    ["1", "invalid_plant"],
    [`[${" ".repeat(2_048)}]`, "body_too_large"],
  ] as const)("that is %p is refused as a whole: %s", async (body, reason) => {
    await expectError(await sendArray(body), reason);
    expect((await send(service, "GET", "/plants/60")).status).toBe(404);
  });
});
