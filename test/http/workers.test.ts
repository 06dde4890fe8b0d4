/** Several threads on one port, in front of one store: whichever of them answers, it is one service. */

import { describe, expect, test } from "bun:test";
import { limits } from "../support/limits.ts";
import { getText, send, startService, startShared } from "../support/service.ts";

// Elsewhere than on Linux there is one.
const THREADS = process.platform === "linux" ? 3 : 1;
const PLANTSTORE_WORKERS = String(THREADS);
const service = await startShared({ PLANTSTORE_WORKERS, ...limits({ sampleSeconds: 0.2 }) });

/** The system chooses a thread for each connection, so each request gets one of its own. */
const get = (path: string): Promise<Response> =>
  send(service, "GET", path, { headers: { connection: "close", "x-request-id": "?" } });

/** The service replaces an id that is not sane by one of its own, which begins with a prefix of the thread. */
const idOf = ({ headers }: Response): string => headers.get("x-request-id") ?? "";

/** Asks until every thread has answered; the system may take its time to get round. */
async function getOfAll(path: string): Promise<Response[]> {
  const answers = new Map<string, Response>();
  for (let count = 0; answers.size < THREADS && count < 1_000; count++) {
    const response = await get(path);
    answers.set(idOf(response).replace(/-.*/, ""), response);
  }
  expect(answers.size).toBe(THREADS);
  return [...answers.values()];
}

interface Activity {
  readonly samples: readonly object[];
  readonly requests: readonly { readonly requestId: string; readonly atMs: number }[];
}
const readActivity = async (response: Response) => (await response.json()) as Activity;

describe("whichever thread is asked", () => {
  test("it knows what all of them have counted", async () => {
    const count = async (): Promise<number> => {
      const text = await (await get("/metrics")).text();
      const line = /^plantstore_requests_total\{method="GET",path="\/livez",status="200"\} (\d+)$/m;
      return Number(line.exec(text)?.[1] ?? 0);
    };
    await getOfAll("/livez");
    const before = await count();
    await Promise.all(Array.from({ length: 60 }, () => get("/livez")));
    for (let asked = 0; asked < 6; asked++) expect(await count()).toBe(before + 60);
  });

  test("it tells of the same activity", async () => {
    const isEmpty = async () => (await readActivity(await get("/activity"))).samples.length === 0;
    while (await isEmpty()) await Bun.sleep(50);
    const shown = await Promise.all((await getOfAll("/activity")).map(readActivity));
    for (const { samples } of shown) expect(samples[0]).toEqual(shown[0]?.samples[0] as object);
  });

  test("it shows the requests of all threads, the newest first", async () => {
    const ids = (await getOfAll("/tags")).map(idOf);
    for (const shown of await Promise.all(
      (await getOfAll("/activity?path=/tags&limit=1000")).map(readActivity),
    )) {
      expect(shown.requests.map(({ requestId }) => requestId)).toEqual(expect.arrayContaining(ids));
      const times = shown.requests.map(({ atMs }) => atMs);
      expect(times).toEqual(times.toSorted((one, other) => other - one));
    }
  });

  test("it logs and shows what it refuses", async () => {
    const ids = (await getOfAll("/nothing")).map(idOf);
    const isLogged = (id: string): boolean =>
      service.logLines.some((line) => line.includes(`"requestId":"${id}"`));
    while (!ids.every(isLogged)) await Bun.sleep(10);
    const { requests } = await readActivity(await get("/activity?status=failed&limit=1000"));
    expect(requests.map(({ requestId }) => requestId)).toEqual(expect.arrayContaining(ids));
  });
});

test("a figure that cannot be read is a 500 of every thread until it can be read", async () => {
  let isBroken = true;
  const countDroppedLines = (): number => {
    if (isBroken) throw new Error("unreadable");
    return 0;
  };
  await using broken = await startService({ PLANTSTORE_WORKERS }, { facts: { countDroppedLines } });
  const ask = async (): Promise<number> =>
    (await send(broken, "GET", "/metrics", { headers: { connection: "close" } })).status;
  const askOften = (): Promise<number[]> => Promise.all(Array.from({ length: 40 }, ask));
  expect(new Set(await askOften())).toEqual(new Set([500]));
  isBroken = false;
  expect(new Set(await askOften())).toEqual(new Set([200]));
  const causes = broken.logLines.filter((line) => line.includes("unreadable"));
  expect(causes.length).toBe(40);
});

test("threads that are stopping are not ready in their metrics", async () => {
  const slowly = { PLANTSTORE_WORKERS, PLANTSTORE_DRAIN_DELAY_SECONDS: "1" };
  const stopping = await startService(slowly);
  const readMetrics = () => getText(stopping, "/metrics");
  expect((await send(stopping, "GET", "/readyz")).status).toBe(200);
  expect(await readMetrics()).toContain("\nplantstore_ready 1\n");
  const stopped = stopping[Symbol.asyncDispose]();
  expect(await readMetrics()).toContain("\nplantstore_ready 0\n");
  await stopped;
});
