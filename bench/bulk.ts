/** Whole stores in and out, timed from the first byte to the last and checked line by line. */

import type { Sample } from "./load.ts";
import { readCpuSeconds } from "./processes.ts";
import { headers, type Server, WrongAnswer } from "./servers/server.ts";

/** So many plants as lines, from id 0 on. */
export const makeLines = (count: number): string =>
  Array.from(
    { length: count },
    (_, id) => `{"id":${id},"name":"Monstera deliciosa","tag":"tag ${id % 50}"}\n`,
  ).join("");

export const importLines = (server: Server, lines: string, count: number): Promise<Sample> =>
  timed(server, count, async () => {
    const response = await fetch(`${server.url}/plants/batch`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/x-ndjson" },
      body: lines,
    });
    const results = await response.text();
    return results.match(/"status":200\}/g)?.length ?? 0;
  });

export const exportLines = (server: Server, count: number): Promise<Sample> =>
  timed(server, count, async () => {
    const response = await fetch(`${server.url}/plants`, {
      headers: { ...headers, accept: "application/x-ndjson" },
    });
    let lines = 0;
    for await (const chunk of response.body as ReadableStream<Uint8Array>)
      for (const byte of chunk) if (byte === 10) lines++;
    return lines;
  });

async function timed(
  server: Server,
  expected: number,
  act: () => Promise<number>,
): Promise<Sample> {
  const cpuBefore = readCpuSeconds(server.pids);
  const startedMs = performance.now();
  const good = await act();
  const seconds = (performance.now() - startedMs) / 1000;
  if (good !== expected) throw new WrongAnswer(`${good} plants of ${expected} went through`);
  return {
    value: expected / seconds,
    rssMb: server.rssMb(),
    cpuUs: ((readCpuSeconds(server.pids) - cpuBefore) * 1e6) / expected,
  };
}
