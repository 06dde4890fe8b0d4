/** Many plants at once: importing and exporting, beside SQLite alone. */

import { exportLines, importLines, makeLines } from "../bulk.ts";
import { OURS } from "../candidates-ours.ts";
import type { Sample } from "../load.ts";
import { type Candidate, measureTable } from "../measure.ts";
import { servePlants } from "../servers/ours.ts";
import { runLoop } from "../run-loop.ts";
import type { Scenario } from "../scenario.ts";
import { WrongAnswer } from "../servers/server.ts";
import { BULK_ROWS, STORED } from "../settings.ts";
import { atLeast, valueOf } from "../report/statistics.ts";
import { countRows, makeFilledStore, makeStore } from "../stores.ts";

const unit = "plants a second";
const durability = "WAL, synchronous=FULL";

async function importOnce(lines: string): Promise<Sample> {
  const path = makeStore();
  const server = await servePlants(path);
  try {
    const before = countRows(path);
    const sample = await importLines(server, lines, BULK_ROWS);
    const stored = countRows(path) - before;
    if (stored !== BULK_ROWS) throw new WrongAnswer(`${stored} of ${BULK_ROWS} were stored`);
    return sample;
  } finally {
    await server.stop();
  }
}

export const bulkImport: Scenario = {
  name: "import",
  title: "Import plants",
  about: `POST /plants/batch with ${BULK_ROWS.toLocaleString("en")} lines, 512 of them a commit, into an empty store.`,
  chart: "bars",
  measure: async () => {
    const lines = makeLines(BULK_ROWS);
    const loop = (name: string, args: () => readonly [string, string, string]): Candidate => ({
      name,
      role: "limit",
      durability,
      measure: async () => ({ value: await runLoop(...args()) }),
    });
    const table = await measureTable({
      name: "one request",
      unit,
      candidates: [
        { name: OURS, role: "ours", durability, measure: () => importOnce(lines) },
        loop("SQLite alone, 512 rows a commit", () => ["insert", makeStore(), String(BULK_ROWS)]),
        loop("SQLite alone, one row a commit", () => ["insert-singly", makeStore(), "2"]),
      ],
    });
    const [ours, bare] = table.rows;
    return {
      tables: [table],
      targets: [atLeast("batch / SQLite alone", valueOf(ours) / valueOf(bare), 0.4)],
    };
  },
};

export const bulkExport: Scenario = {
  name: "export",
  title: "Export plants",
  about: "GET /plants as NDJSON: a million plants in one stream.",
  chart: "bars",
  measure: async (stack) => {
    const path = await makeFilledStore(STORED);
    const rows = countRows(path);
    // The plant that the start was checked with is in the stream too.
    const server = await servePlants(path);
    stack.defer(server.stop);
    const table = await measureTable({
      name: "one request",
      unit,
      candidates: [
        { name: OURS, role: "ours", measure: () => exportLines(server, rows + 1) },
        {
          name: "SQLite alone, selecting all",
          role: "limit",
          measure: async () => ({ value: await runLoop("select", path) }),
        },
      ],
    });
    return { tables: [table], targets: [] };
  },
};
