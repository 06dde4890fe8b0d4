/** Creates under other conditions: into many plants, with the index on tags, under random ids. */

import { startOurs } from "../candidates-ours.ts";
import { measureTable } from "../measure.ts";
import { runLoop } from "../run-loop.ts";
import type { Scenario } from "../scenario.ts";
import { STORED, STORED_MANY } from "../settings.ts";
import { atLeast, valueOf } from "../report/statistics.ts";
import { fillStore, makeFilledStore, makeStore } from "../stores.ts";

const unit = "creates a second";

export const size: Scenario = {
  name: "size",
  title: "Create into a store that is already large",
  about: "POST /plants with ascending ids, at 64 connections.",
  chart: "bars",
  measure: async (stack) => {
    const load = { kind: "create" } as const;
    const empty = await startOurs(stack, makeStore());
    const large = await startOurs(stack, await makeFilledStore(STORED));
    // Of a gigabyte there is one, which is written to: nobody else needs it.
    const huge = await startOurs(stack, await fillStore(STORED_MANY));
    const table = await measureTable({
      name: "64 connections",
      unit,
      candidates: [
        empty(load, "0 plants before"),
        large(load, "1 million plants before"),
        huge(load, "10 million plants before"),
      ],
    });
    const [fromEmpty, , fromHuge] = table.rows;
    const target = atLeast("10 million / empty", valueOf(fromHuge) / valueOf(fromEmpty), 0.9);
    return { tables: [table], targets: [target] };
  },
};

export const tagIndex: Scenario = {
  name: "tag-index",
  title: "Create: what the index on tags costs",
  about: "Fifty tags at random, so that every commit touches as many places of the index.",
  chart: "bars",
  measure: async (stack) => {
    const load = { kind: "create-tagged" } as const;
    const path = makeStore();
    await runLoop("drop-tag-index", path);
    const without = await startOurs(stack, path);
    const indexed = await startOurs(stack, makeStore());
    const table = await measureTable({
      name: "64 connections",
      unit,
      candidates: [indexed(load, "with the index on tags"), without(load, "without it")],
    });
    const [a, b] = table.rows;
    return {
      tables: [table],
      targets: [atLeast("with / without the index", valueOf(a) / valueOf(b), 0.85)],
    };
  },
};

export const random: Scenario = {
  name: "random",
  title: "Create under random ids",
  about: "Into a million plants: random ids touch another page of the table with every plant.",
  chart: "bars",
  measure: async (stack) => {
    const ascending = await startOurs(stack, await makeFilledStore(STORED));
    const scattered = await startOurs(stack, await makeFilledStore(STORED));
    const table = await measureTable({
      name: "64 connections",
      unit,
      candidates: [
        ascending({ kind: "create" }, "ascending ids"),
        scattered({ kind: "create-random" }, "random ids"),
      ],
    });
    return { tables: [table], targets: [] };
  },
};
