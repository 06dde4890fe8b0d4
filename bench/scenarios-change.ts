/** Upserts and changes by filter, beside a batch that creates as many plants. */

import { changeTag, importInto, makeLines } from "./load.ts";
import { type Candidate, measureTable, type Run, type Scenario } from "./measure.ts";
import { ratioAtLeast, type Table, type Target, valueOf } from "./results.ts";
import { type Server, servePlants, startDatabases } from "./servers.ts";
import { CHANGED_ROWS } from "./settings.ts";
import { makePath } from "./stores.ts";

const CREATED_FROM = 1_000_000_000;
const UPSERT = "?upsert=true";
const names = ["Monstera", "Monstera deliciosa"] as const;
const tags = ["spring", "autumn"] as const;

/** Each round of a candidate leaves the store as the next one needs it. */
async function makeCandidates(server: Server): Promise<Candidate[]> {
  let [created, replaced, tagged] = [0, 0, 0];
  const send = (lines: Buffer, query = "", done?: string) =>
    importInto(server, lines, query, CHANGED_ROWS, done);
  const stored = makeLines(0, CHANGED_ROWS, names[0]);
  await send(stored);
  const same = makeLines(CHANGED_ROWS, CHANGED_ROWS);
  await send(same);
  const tagging = makeLines(2 * CHANGED_ROWS, CHANGED_ROWS);
  await send(Buffer.from(String(tagging).replaceAll(/"tag \d+"/g, `"${tags[0]}"`)));
  const measures: Readonly<Record<string, Candidate["measure"]>> = {
    "batch that creates": () =>
      send(makeLines(CREATED_FROM + CHANGED_ROWS * created++, CHANGED_ROWS)),
    "upsert that replaces every plant": () =>
      send(
        makeLines(0, CHANGED_ROWS, names[++replaced % 2]),
        UPSERT,
        '"status":200,"replaced":true}',
      ),
    "upsert that changes nothing": () => send(same, UPSERT, '"status":200,"replayed":true}'),
    "change of a tag by filter": () =>
      changeTag(server, tags[tagged++ % 2] as string, tags[tagged % 2] as string, CHANGED_ROWS),
  };
  return Object.entries(measures).map(([name, measure]) => ({ name, role: "ours", measure }));
}

async function measureOn(run: Run, name: string, server: Server): Promise<Table> {
  run.stack.defer(server.stop);
  const candidates = await makeCandidates(server);
  return measureTable(run.isQuick, { name, unit: "plants a second", candidates });
}

function toTarget({ name, rows }: Table): Target {
  const [creates, ...others] = rows;
  const [slowest] = others.toSorted((one, other) => valueOf(one) - valueOf(other));
  return ratioAtLeast(
    `${name}: the slowest of these changes (${slowest?.name ?? "none"}) / batch that creates`,
    slowest,
    creates,
    0.5,
    "A plant that is changed is read first, and the journal keeps it as it was and as it is.",
  );
}

export const change: Scenario = {
  name: "change",
  title: "Change many plants",
  about: `POST /plants/batch?upsert=true with ${CHANGED_ROWS.toLocaleString("en")} lines, and PATCH /plants by a tag that as many plants have, beside a batch that creates as many. On PostgreSQL the service, the database and the load share all cores.`,
  user: "staff who import a price list again, or rename a tag",
  measure: async (run) => {
    const sqlite = await measureOn(run, "SQLite", await servePlants(`sqlite:${makePath()}`));
    const { make, options } = await startDatabases(run.stack);
    const { url } = await make(0);
    const postgres = await measureOn(run, "PostgreSQL", await servePlants(url, options));
    return {
      tables: [sqlite, postgres],
      targets: [toTarget(sqlite), toTarget(postgres)],
    };
  },
};
