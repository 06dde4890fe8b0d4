/** Reading from PostgreSQL, and importing into it, with everything on the same cores. */

import { importLines, makeLines } from "../bulk.ts";
import { startOurs } from "../candidates-ours.ts";
import type { Load, Sample } from "../load.ts";
import { measureTable } from "../measure.ts";
import { servePlants } from "../servers/ours.ts";
import { Databases, ON_POSTGRES, ON_SQLITE } from "../servers/postgres.ts";
import type { Table } from "../report/results.ts";
import type { Scenario } from "../scenario.ts";
import { type Server, WrongAnswer } from "../servers/server.ts";
import { BULK_ROWS, STORED } from "../settings.ts";
import { makeFilledStore, makeStore } from "../stores.ts";

export const postgresRead: Scenario = {
  name: "postgres-read",
  title: "Read from PostgreSQL",
  about:
    "A million plants, 64 connections; the service, the database and the load share all cores.",
  chart: "bars",
  measure: async (stack) => {
    const databases = await Databases.start(stack);
    const onPostgres = await databases.startOurs(STORED);
    const oneByOne = await databases.startOneByOne(STORED);
    const onSqlite = await startOurs(stack, await makeFilledStore(STORED), { isShared: true });
    const measureKind = (kind: Load["kind"], name: string, unit: string): Promise<Table> => {
      const load: Load = { kind, isShared: true };
      return measureTable({
        name,
        unit,
        candidates: [
          onPostgres(load),
          onSqlite(load, ON_SQLITE),
          // It lists nothing.
          ...(kind === "list" ? [] : [oneByOne(load)]),
        ],
      });
    };
    const tables = [
      await measureKind("get", "one plant", "reads a second"),
      await measureKind("list", "a page of 100", "pages a second"),
      await measureKind("mixed", "nine reads to one create", "requests a second"),
    ];
    return { tables, targets: [] };
  },
};

export const postgresImport: Scenario = {
  name: "postgres-import",
  title: "Import into PostgreSQL",
  about: `POST /plants/batch with ${BULK_ROWS.toLocaleString("en")} lines into an empty database; everything shares all cores.`,
  chart: "bars",
  measure: async (stack) => {
    const databases = await Databases.start(stack);
    const lines = makeLines(BULK_ROWS);
    const importInto = async (starting: Promise<Server>): Promise<Sample> => {
      const server = await starting;
      try {
        return await importLines(server, lines, BULK_ROWS);
      } finally {
        await server.stop();
      }
    };
    const table = await measureTable({
      name: "one request",
      unit: "plants a second",
      candidates: [
        {
          name: ON_POSTGRES,
          role: "ours",
          measure: async () => {
            const database = await databases.make(0);
            const sample = await importInto(databases.serve(database));
            // The start was checked with one more.
            const rows = await databases.countRows(database);
            if (rows !== BULK_ROWS + 1) throw new WrongAnswer(`${rows} plants were stored`);
            return sample;
          },
        },
        {
          name: ON_SQLITE,
          role: "ours",
          measure: () => importInto(servePlants(makeStore(), { isShared: true })),
        },
      ],
    });
    return { tables: [table], targets: [] };
  },
};
