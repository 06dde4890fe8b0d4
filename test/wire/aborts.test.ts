/** Clients that vanish. */

import { describe, expect, mock, test } from "bun:test";
import { Exchange, type Service } from "../../src/http/exchange.ts";
import { linger } from "../../src/http/linger.ts";
import { engine } from "../support/database.ts";
import { limits } from "../support/limits.ts";
import {
  getText,
  grantToken,
  readMetric,
  startService,
  TEST_TOKEN,
  type TestService,
} from "../support/service.ts";
import { checkIntegrity } from "../support/stores.ts";
import {
  batchHead,
  chunk,
  connectRaw,
  createHead,
  createRequest,
  expectNothingStored,
  expectStored,
  plantBody,
} from "../support/wire.ts";
import { until } from "../support/until.ts";

test("a client that is gone before it is refused leaves no rejection that would end the process", async () => {
  const request = new Request("http://127.0.0.1/plants", {
    method: "POST",
    headers: { "content-length": "100" },
    body: "{",
  });
  const bytes = mock(() => Promise.reject(new Error("The connection was closed.")));
  Object.defineProperty(request, "bytes", { value: bytes });
  const note = mock();
  process.on("unhandledRejection", note);
  const service = { readiness: { isDraining: false } } as Service;
  const exchange = new Exchange(service, request, 0);
  expect(linger(exchange, "{}")).toEqual({ body: "{}", closes: false });
  await Bun.sleep(10);
  process.off("unhandledRejection", note);
  expect(bytes).toHaveBeenCalled();
  expect(note).not.toHaveBeenCalled();
});

describe("after 200 clients that vanish", () => {
  const ABORTS = 200;
  const bodyBytesMax = 16_384;
  /** A chunked body counts 256 KiB until it has arrived: enough for all at once. */
  const bodyBytesTotalMax = 2 * ABORTS * 262_144;

  async function vanishAfter(service: TestService, bytes: (id: number) => string): Promise<void> {
    await Promise.all(
      Array.from({ length: ABORTS }, async (_, index) => {
        const connection = await connectRaw(service.url);
        connection.send(bytes(index + 2));
        connection.abort();
        await connection.closed;
      }),
    );
  }

  async function expectWell(service: TestService): Promise<void> {
    expect((await service.create(plantBody(1).padEnd(bodyBytesMax))).status).toBe(200);
    expect(await getText(service, "/metrics")).toContain("\nplantstore_held_bytes 0\n");
    expect(service.logLines.join("")).not.toMatch(/"level":"(warn|error)"/);
    if (engine === "sqlite") expect(checkIntegrity(service.database.path)).toBe("ok");
  }

  const start = (): Promise<TestService> =>
    startService(limits({ bodyBytesMax, bodyBytesTotalMax }));

  const toUnended = (id: number): string =>
    createHead("Transfer-Encoding: chunked") + chunk(plantBody(id));

  test.each([
    ["a declared body", (id: number) => createRequest(id).slice(0, -1)],
    ["a declared body, before its first byte", () => createHead("Content-Length: 50")],
    ["a chunked body, before its last chunk", toUnended],
    ["a chunk", (id: number) => toUnended(id).slice(0, -5)],
  ])("in the middle of %s nothing is stored, and the service is well", async (_name, bytes) => {
    await using service = await start();
    await vanishAfter(service, bytes);
    // The service has noticed them all. The log has no event for it, so this polls.
    await until("all are logged", () => service.logLines.length >= ABORTS);
    expect(service.logLines.map((line) => JSON.parse(line) as object)).toMatchObject(
      Array.from({ length: ABORTS }, () => ({ level: "info", reason: "body_incomplete" })),
    );
    await expectNothingStored(service);
    await expectWell(service);
  });

  test("in the middle of a head nothing has happened", async () => {
    await using service = await start();
    await vanishAfter(service, () => createHead("Content-Length: 50").slice(0, -2));
    await expectNothingStored(service);
    expect(service.logLines).toHaveLength(1);
    await expectWell(service);
  });

  test("after the whole of a create, each is stored completely or not stored, and sending it again settles it", async () => {
    await using service = await start();
    await vanishAfter(service, (id) => createRequest(id));
    const ids = Array.from({ length: ABORTS }, (_, index) => index + 2);
    const retried = await Promise.all(ids.map((id) => service.create(plantBody(id))));
    expect(retried.map(({ status }) => status)).toEqual(ids.map(() => 200));
    await expectStored(service, ids);
    await expectWell(service);
  });
});

test("a client that leaves while its atomic batch waits for the rate is no failure of the service", async () => {
  await using service = await startService();
  const token = await grantToken(service, ["plants:write"], { rate: "10/s" });
  const body = JSON.stringify(Array.from({ length: 40 }, (_, id) => ({ id, name: "a" })));
  const head = createHead(`Content-Length: ${body.length}`).replace(TEST_TOKEN, token);
  const connection = await connectRaw(service.url);
  connection.send(head.replace("/plants ", "/plants/batch?atomic=true ") + body);
  const countRequests = () => readMetric(service, "plantstore_requests_in_flight");
  await until("the batch waits", async () => (await countRequests()) > 1);
  connection.abort();
  const findLine = (): string | undefined =>
    service.logLines.find((line) => line.includes('"path":"/plants/batch"'));
  await until("its end is logged", () => findLine() !== undefined);
  expect(JSON.parse(findLine() as string)).toMatchObject({
    level: "info",
    status: 400,
    reason: "body_incomplete",
  });
});

test("clients that leave while the service holds back their bodies are noticed before what has arrived is worked through", async () => {
  const clients = 10;
  const lines = 2_000_000;
  // A client counts as not reading after half of that.
  await using service = await startService(limits({ idleSecondsMax: 8 }));
  await Promise.all(
    Array.from({ length: clients }, async () => {
      const connection = await connectRaw(service.url);
      connection.send(batchHead() + chunk("1\n".repeat(lines)));
      await connection.receive(/"line":1,/);
      connection.abort();
    }),
  );
  const isCutOff = (line: string): boolean => line.includes('"answer_cut_off"');
  await until("all are cut off", () => service.logLines.filter(isCutOff).length === clients);
  const worked = await readMetric(service, 'plantstore_batch_lines_total{status="400"}');
  expect(worked).toBeGreaterThan(0);
  expect(worked).toBeLessThan((clients * lines) / 100);
  await expectNothingStored(service);
});
