/** Reading: one plant, a page of them, and reads mixed with creates. */

import { peerCandidate, startPeers } from "../candidates.ts";
import { startOurs, startStoringNothing } from "../candidates-ours.ts";
import { measureTable } from "../measure.ts";
import type { Scenario } from "../scenario.ts";
import { STORED } from "../settings.ts";
import { atLeast, valueOf } from "../report/statistics.ts";
import { makeFilledStore } from "../stores.ts";

export const get: Scenario = {
  name: "get",
  title: "Read a plant",
  about: "GET /plants/{id}, one of a million at random, at 64 connections.",
  chart: "bars",
  measure: async (stack) => {
    const load = { kind: "get" } as const;
    const ours = await startOurs(stack, await makeFilledStore(STORED));
    const without = await startStoringNothing(stack);
    const peers = await startPeers(stack, { isFilled: true });
    const table = await measureTable({
      name: "64 connections",
      unit: "reads a second",
      candidates: [ours(load), ...peers.map((peer) => peerCandidate(peer, load)), without(load)],
    });
    const ratio = valueOf(table.rows[0]) / valueOf(table.rows.at(-1));
    return { tables: [table], targets: [atLeast("with / without a store", ratio, 0.85)] };
  },
};

export const list: Scenario = {
  name: "list",
  title: "List plants",
  about: "Pages of 100 out of a million plants, at 64 connections; of the peers the first page.",
  chart: "bars",
  measure: async (stack) => {
    const load = { kind: "list" } as const;
    const ours = await startOurs(stack, await makeFilledStore(STORED));
    const peers = await startPeers(stack, { isFilled: true });
    const deepPath = `/plants?limit=100&after=${STORED * 0.9}`;
    const tagPath = "/plants?limit=100&tag=tag%207";
    const table = await measureTable({
      name: "64 connections",
      unit: "pages a second",
      candidates: [
        ours(load, "plantstore, first page"),
        ours({ ...load, listPath: deepPath }, "plantstore, deep page"),
        ours({ ...load, listPath: tagPath }, "plantstore, first page of a tag"),
        ...peers.map((peer) => peerCandidate(peer, load)),
      ],
    });
    const [first, deep] = table.rows;
    return {
      tables: [table],
      targets: [atLeast("deep / first page", valueOf(deep) / valueOf(first), 0.9)],
    };
  },
};

export const mixed: Scenario = {
  name: "mixed",
  title: "Nine reads to one create",
  about: "GET /plants/{id} and POST /plants at random, on a million plants, at 64 connections.",
  chart: "bars",
  measure: async (stack) => {
    const load = { kind: "mixed" } as const;
    const ours = await startOurs(stack, await makeFilledStore(STORED));
    const without = await startStoringNothing(stack);
    const peers = await startPeers(stack, { isFilled: true });
    const table = await measureTable({
      name: "64 connections",
      unit: "requests a second",
      candidates: [ours(load), ...peers.map((peer) => peerCandidate(peer, load)), without(load)],
    });
    return { tables: [table], targets: [] };
  },
};
