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
