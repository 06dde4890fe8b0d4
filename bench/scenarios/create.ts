/** Durable creates, from one connection to many, beside what others use and what limits us. */

import { limitCandidate, peerCandidate, startOptional, startPeers } from "../candidates.ts";
import { OURS, startOurs, startStoringNothing, STORING_NOTHING } from "../candidates-ours.ts";
import type { Load } from "../load.ts";
import { type Candidate, measureTable } from "../measure.ts";
import { serveNginx } from "../servers/nginx.ts";
import { serveLimit } from "../servers/ours.ts";
import type { Row, Table, Target } from "../report/results.ts";
import { formatNumber } from "../report/table.ts";
import { runLoop } from "../run-loop.ts";
import { nameConnections, type Scenario } from "../scenario.ts";
import { CONNECTION_LEVELS, CONNECTIONS, LEVEL_ROUNDS, ROUNDS } from "../settings.ts";
import { atLeast, atMost, bestPeer, medianOf, rowOf, valueOf } from "../report/statistics.ts";
import { makeStore } from "../stores.ts";

const RSS_MB_MAX = 64;
const TIMES_BEST_PEER = 7;
const BARE = "bare runtime, checking nothing";

export const create: Scenario = {
  name: "create",
  title: "Create a plant",
  about:
    "POST /plants, ascending ids, into a store that was empty. The peers commit each plant by itself, as people write it.",
  chart: "lines",
  measure: async (stack) => {
    const ours = await startOurs(stack, makeStore());
    const storingNothing = await startStoringNothing(stack);
    const bare = await startOptional(stack, () => serveLimit("bare"));
    const nginx = await startOptional(stack, serveNginx);
    const peers = await startPeers(stack);
    const measureLevel = (connections: number): Promise<Table> => {
      const load: Load = { kind: "create", connections };
      const hasTargets = connections === CONNECTIONS;
      return measureTable({
        name: nameConnections(connections),
        unit: "creates a second",
        rounds: hasTargets ? ROUNDS : LEVEL_ROUNDS,
        candidates: [
          ours(load),
          ...peers.map((peer) => peerCandidate(peer, load)),
          storingNothing(load),
          limitCandidate(BARE, bare, load),
          limitCandidate("nginx, a fixed answer", nginx, load),
          ...(hasTargets ? [sqliteAlone] : []),
        ],
      });
    };
    // The level that has the targets comes first: nothing has grown yet.
    const first = await measureLevel(CONNECTIONS);
    const tables: Table[] = [];
    for (const level of CONNECTION_LEVELS)
      tables.push(level === CONNECTIONS ? first : await measureLevel(level));
    return { tables, targets: targetsOf(first) };
  },
};

const sqliteAlone: Candidate = {
  name: "SQLite alone, one row a commit",
  role: "limit",
  durability: "WAL, synchronous=FULL",
  measure: async (seconds) => ({
    value: await runLoop("insert-singly", makeStore(), String(seconds)),
  }),
};

function targetsOf(table: Table): Target[] {
  const ours = rowOf(table, OURS);
  const rounds = ours?.rounds ?? [];
  const best = bestPeer(table);
  const [p50Ms = Number.NaN, p99Ms = Number.NaN] = [
    medianOf(rounds, "p50Ms"),
    medianOf(rounds, "p99Ms"),
  ];
  return [
    atLeast(
      "durable / storing nothing",
      valueOf(ours) / valueOf(rowOf(table, STORING_NOTHING)),
      0.9,
    ),
    {
      ...atLeast(
        `plantstore / best peer (${best?.name ?? "none"})`,
        valueOf(ours) / valueOf(best),
        TIMES_BEST_PEER,
      ),
      reason: explainPeer(table, ours, best),
    },
    atMost("p99 / p50", p99Ms / p50Ms, 3),
    atMost(
      "memory in any round, MB",
      Math.max(...rounds.map(({ rssMb = Number.NaN }) => rssMb)),
      RSS_MB_MAX,
    ),
  ];
}

const formatCpu = (row: Row | undefined): string =>
  formatNumber(medianOf(row?.rounds ?? [], "cpuUs") ?? Number.NaN);

/** The server has one core, so that what a request takes of it is what it can do a second. */
function explainPeer(table: Table, ours: Row | undefined, peer: Row | undefined): string {
  const bare = rowOf(table, BARE);
  const leftUs = 1e6 / (TIMES_BEST_PEER * valueOf(peer));
  return (
    `The bare runtime, which parses and answers and does nothing else, is ${(valueOf(bare) / valueOf(peer)).toFixed(1)} × that peer, ` +
    `and takes ${formatCpu(bare)} µs of its core for it. Ours takes ${formatCpu(ours)} µs, with its checks, its limits, its headers and the commit; ` +
    `the target leaves ${formatNumber(leftUs)} µs.`
  );
}
