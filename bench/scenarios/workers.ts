/** What more cores bring: the same service with one worker and with several, on all of them. */

import { startOurs } from "../candidates-ours.ts";
import { type Absent, type Candidate, measureTable } from "../measure.ts";
import type { Load } from "../load.ts";
import type { Table } from "../report/results.ts";
import { nameConnections, type Scenario } from "../scenario.ts";
import { CONNECTIONS, CORES, MANY_CONNECTIONS } from "../settings.ts";
import { makeStore } from "../stores.ts";

/** 1, 2, 4 and so on, as far as there are cores; two even where there is one. */
const levels = [1, 2, 4, 8, 16, 32].filter((workers) => workers <= Math.max(2, CORES));
const threads = Math.max(1, Math.floor(CORES / 2));

export const workers: Scenario = {
  name: "workers",
  title: "Create with several workers",
  about:
    "PLANTSTORE_WORKERS, with the service and the load on all cores together: the load takes its share of them.",
  chart: "bars",
  measure: async (stack) => {
    const makers: ((load: Load) => Candidate | Absent)[] = [];
    for (const count of levels) {
      const name = count === 1 ? "1 worker" : `${count} workers`;
      try {
        const env = { PLANTSTORE_WORKERS: String(count) };
        const ours = await startOurs(stack, makeStore(), { isShared: true, env });
        makers.push((load) => ours(load, name));
      } catch (error) {
        const notMeasured = (error as Error).message;
        makers.push(() => ({ name, role: "ours", notMeasured }));
      }
    }
    const tables: Table[] = [];
    for (const connections of [CONNECTIONS, MANY_CONNECTIONS]) {
      const load: Load = { kind: "create", connections, threads, isShared: true };
      tables.push(
        await measureTable({
          name: nameConnections(connections),
          unit: "creates a second",
          candidates: makers.map((make) => make(load)),
        }),
      );
    }
    return { tables, targets: [] };
  },
};
