/** Several threads on one port, in front of one store: whichever of them answers, it is one service. */

import { afterAll, describe, expect, test } from "bun:test";
import { limits } from "../support/limits.ts";
import { send, type Sent, startService } from "../support/service.ts";

// Elsewhere than on Linux there is one.
const THREADS = process.platform === "linux" ? 3 : 1;
const service = await startService({
  PLANTSTORE_WORKERS: String(THREADS),
  ...limits({ sampleSeconds: 0.2 }),
});

afterAll(() => service[Symbol.asyncDispose]());

/** The system chooses a thread for each connection, so each request gets one of its own. */
const ask = (method: string, path: string, sent: Sent = {}): Promise<Response> =>
  send(service, method, path, {
    ...sent,
    headers: { ...sent.headers, connection: "close", "x-request-id": "?" },
  });

const create = (id: number, name: string): Promise<Response> =>
  ask("POST", "/plants", { body: JSON.stringify({ id, name }) });

/** The service replaces an id that is not sane by one of its own, which begins with a prefix of the thread. */
const threadOf = (response: Response): string =>
  (response.headers.get("x-request-id") ?? "").replace(/-.*/, "");

/** Asks until every thread has answered; the system may take its time to get round. */
async function askAll(method: string, path: string, sent?: Sent): Promise<Map<string, Response>> {
  const answers = new Map<string, Response>();
  for (let count = 0; answers.size < THREADS && count < 1_000; count++) {
    const response = await ask(method, path, sent);
    answers.set(threadOf(response), response);
  }
  expect(answers.size).toBe(THREADS);
  return answers;
}

async function bodiesOf(answers: Map<string, Response>): Promise<unknown[]> {
  return Promise.all([...answers.values()].map((response) => response.json()));
}

describe("whichever thread is asked", () => {
  test("a plant is there as soon as it is acknowledged, and gone as soon as that is", async () => {
    for (let id = 1; id <= 20; id++) {
      expect((await create(id, "fern")).status).toBe(200);
      expect((await ask("GET", `/plants/${id}`)).status).toBe(200);
      expect((await create(id, "fern")).headers.get("idempotent-replayed")).toBe("true");
      expect((await ask("DELETE", `/plants/${id}`)).status).toBe(204);
      expect((await ask("GET", `/plants/${id}`)).status).toBe(404);
    }
  });

  test("it shows the same plants, pages, tags and search results", async () => {
    await ask("POST", "/plants", { body: '{"id":100,"name":"Monstera","tag":"tropical"}' });
    for (const path of [
      "/plants/100",
      "/plants?limit=5",
      "/plants?tag=tropical",
      "/plants?name=monst",
      "/tags",
      "/tags/counts",
    ]) {
      const [first, ...others] = await bodiesOf(await askAll("GET", path));
      expect(JSON.stringify(first)).toContain("tropical");
      for (const other of others) expect(other).toEqual(first);
    }
  });

  test("one of many different plants under one id is stored, and the others are refused", async () => {
    for (let id = 200; id < 210; id++) {
      const responses = await Promise.all(
        Array.from({ length: 24 }, (_, index) => create(id, `fern ${index}`)),
      );
      const stored = responses.flatMap(({ status }, index) => (status === 200 ? [index] : []));
      expect(responses.filter(({ status }) => status === 409)).toHaveLength(23);
      const { name } = (await (await ask("GET", `/plants/${id}`)).json()) as { name: string };
      expect(stored.map((index) => `fern ${index}`)).toEqual([name]);
    }
  });

  test("of many who change what they have seen, one does", async () => {
    await create(300, "seen");
    const etag = (await ask("GET", "/plants/300")).headers.get("etag") ?? "";
    const changes = Array.from({ length: 24 }, (_, index) =>
      ask("PUT", "/plants/300", {
        body: JSON.stringify({ name: `changed ${index}` }),
        headers: { "if-match": etag },
      }),
    );
    const statuses = (await Promise.all(changes)).map(({ status }) => status);
    expect(statuses.toSorted((one, other) => one - other)).toEqual([
      200,
      ...Array.from({ length: 23 }, () => 412),
    ]);
  });

  test("a refusal has its code, its message and its headers", async () => {
    await create(400, "fern");
    const response = await create(400, "bracken");
    expect([response.status, await response.json()]).toEqual([
      409,
      { error: 3001, message: "A different plant has the id 400; nothing was changed." },
    ]);
    expect((await ask("DELETE", "/plants/401")).status).toBe(404);
  });

  test("a batch is judged line by line", async () => {
    const response = await ask("POST", "/plants/batch", {
      body: '{"id":500,"name":"a"}\n{"id":500,"name":"b"}\n{}\n{"id":500,"name":"a"}\n',
      headers: { "content-type": "application/x-ndjson" },
    });
    const lines = (await response.text()).trim().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as { status: number }).status)).toEqual([
      200, 409, 400, 200,
    ]);
  });

  test("it knows what all of them have counted", async () => {
    const count = async (): Promise<number> => {
      const text = await (await ask("GET", "/metrics")).text();
      const line = /^plantstore_requests_total\{method="GET",path="\/livez",status="200"\} (\d+)$/m;
      return Number(line.exec(text)?.[1] ?? 0);
    };
    await askAll("GET", "/livez");
    const before = await count();
    await Promise.all(Array.from({ length: 60 }, () => ask("GET", "/livez")));
    for (let asked = 0; asked < 6; asked++) expect(await count()).toBe(before + 60);
  });

  test("it tells of the same activity", async () => {
    while ((await ask("GET", "/activity").then((r) => r.text())).includes('"samples":[]'))
      await Bun.sleep(50);
    const [first, ...others] = (await bodiesOf(await askAll("GET", "/activity"))) as {
      samples: { atMs: number }[];
    }[];
    for (const { samples } of others) expect(samples[0]).toEqual(first?.samples[0]);
  });

  test("a token that one of them made can be used and revoked at any", async () => {
    const body = '{"name":"till","scopes":["plants:read"]}';
    const made = await ask("POST", "/tokens", { body });
    const { id, token } = (await made.json()) as { id: string; token: string };
    const headers = { authorization: `Bearer ${token}` };
    for (const response of (await askAll("GET", "/token", { headers })).values())
      expect(await response.json()).toMatchObject({ name: "till" });
    expect((await ask("POST", "/tokens", { body })).status).toBe(409);
    expect((await ask("DELETE", `/tokens/${id}`)).status).toBe(204);
    expect(await (await ask("GET", "/tokens")).json()).toMatchObject([{ id, name: "till" }]);
  });

  test("it logs and shows what it refuses", async () => {
    const refused = [...(await askAll("GET", "/nothing")).values()];
    const ids = refused.map((response) => response.headers.get("x-request-id"));
    const isLogged = (id: string | null): boolean =>
      service.logLines.some((line) => line.includes(`"requestId":"${id}"`));
    while (!ids.every(isLogged)) await Bun.sleep(10);
    const { failures } = (await (await ask("GET", "/activity")).json()) as {
      failures: { requestId: string }[];
    };
    expect(failures.map(({ requestId }) => requestId)).toEqual(expect.arrayContaining(ids));
  });
});

test("threads that are stopping are not ready in their metrics", async () => {
  const stopping = await startService({
    PLANTSTORE_WORKERS: String(THREADS),
    PLANTSTORE_DRAIN_DELAY_SECONDS: "1",
  });
  const readMetrics = async () => (await send(stopping, "GET", "/metrics")).text();
  expect((await send(stopping, "GET", "/readyz")).status).toBe(200);
  expect(await readMetrics()).toContain("\nplantstore_ready 1\n");
  const stopped = stopping[Symbol.asyncDispose]();
  expect(await readMetrics()).toContain("\nplantstore_ready 0\n");
  await stopped;
});
