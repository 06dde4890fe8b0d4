/** How soon a server answers after it was started. */

import { OURS } from "../candidates-ours.ts";
import { type Absent, type Candidate, measureTable } from "../measure.ts";
import { serveNginx } from "../servers/nginx.ts";
import { serveLimit, servePlants } from "../servers/ours.ts";
import { peers } from "../servers/peers.ts";
import type { Role } from "../report/results.ts";
import type { Scenario } from "../scenario.ts";
import type { Server } from "../servers/server.ts";
import { median } from "../report/statistics.ts";
import { LEVEL_ROUNDS } from "../settings.ts";
import { makeStore } from "../stores.ts";

/** Tried once before, so that one that cannot start is told as such. */
async function startCandidate(
  name: string,
  role: Role,
  start: () => Promise<Server>,
): Promise<Candidate | Absent> {
  const measure: Candidate["measure"] = async (seconds) => {
    const untilMs = performance.now() + seconds * 1000;
    const times: number[] = [];
    let rssMb: number;
    do {
      const server = await start();
      times.push(server.startMs);
      rssMb = server.rssMb();
      await server.stop();
    } while (performance.now() < untilMs);
    return { value: median(times), rssMb };
  };
  try {
    await measure(0);
    return { name, role, measure };
  } catch (error) {
    return { name, role, notMeasured: (error as Error).message };
  }
}

export const start: Scenario = {
  name: "start",
  title: "Start",
  about:
    "From the start of the process to the first right answer to a create, on an empty store; a round is the median of as many starts as fit into it.",
  chart: "bars",
  measure: async () => {
    const candidates = [
      await startCandidate(OURS, "ours", () => servePlants(makeStore())),
      ...(await startPeers()),
      await startCandidate("bare runtime, checking nothing", "limit", () => serveLimit("bare")),
      await startCandidate("nginx, a fixed answer", "limit", serveNginx),
    ];
    const table = await measureTable({
      name: "on one core",
      unit: "ms to the first answer",
      isLowerBetter: true,
      hasWarmUp: false,
      rounds: LEVEL_ROUNDS,
      candidates,
    });
    return { tables: [table], targets: [] };
  },
};

async function startPeers(): Promise<(Candidate | Absent)[]> {
  const candidates: (Candidate | Absent)[] = [];
  for (const peer of peers)
    candidates.push(
      await startCandidate(peer.name, "peer", async () => (await peer.start(0)).server),
    );
  return candidates;
}
