/** Creates on PostgreSQL, with everything on the same cores, as on a small machine. */

import { startOurs, startStoringNothing, STORING_NOTHING } from "../candidates-ours.ts";
import type { Load } from "../load.ts";
import { measureTable } from "../measure.ts";
import { Databases, ON_POSTGRES, ON_SQLITE, ONE_BY_ONE } from "../servers/postgres.ts";
import type { Table, Target } from "../report/results.ts";
import { atConnections, nameConnections, type Scenario } from "../scenario.ts";
import {
  CONNECTION_LEVELS,
  CONNECTIONS,
  LEVEL_ROUNDS,
  MANY_CONNECTIONS,
  ROUNDS,
} from "../settings.ts";
import { atLeast, rowOf, valueOf } from "../report/statistics.ts";
import { makeStore } from "../stores.ts";

export const postgresCreate: Scenario = {
  name: "postgres-create",
  title: "Create on PostgreSQL",
  about:
    "POST /plants with ascending ids; the service, the database and the load share all cores. One statement a request goes through a pool of ten connections. CPU is that of the service and of PostgreSQL.",
  chart: "lines",
  measure: async (stack) => {
    const databases = await Databases.start(stack);
    const onPostgres = await databases.startOurs();
    const oneByOne = await databases.startOneByOne();
    const onSqlite = await startOurs(stack, makeStore(), { isShared: true });
    const storingNothing = await startStoringNothing(stack, { isShared: true });
    const tables: Table[] = [];
    for (const connections of CONNECTION_LEVELS) {
      const load: Load = { kind: "create", connections, isShared: true };
      tables.push(
        await measureTable({
          name: nameConnections(connections),
          unit: "creates a second",
          rounds: connections < CONNECTIONS ? LEVEL_ROUNDS : ROUNDS,
          candidates: [
            onPostgres(load),
            onSqlite(load, ON_SQLITE),
            oneByOne(load),
            storingNothing(load),
          ],
        }),
      );
    }
    return { tables, targets: targetsOf(atConnections(tables, MANY_CONNECTIONS)) };
  },
};

function targetsOf(table: Table | undefined): Target[] {
  const ours = valueOf(rowOf(table, ON_POSTGRES));
  const over = (name: string): number => ours / valueOf(rowOf(table, name));
  const at = `at ${MANY_CONNECTIONS} connections`;
  return [
    atLeast(`PostgreSQL / one INSERT a request, ${at}`, over(ONE_BY_ONE), 2.5),
    atLeast(`PostgreSQL / storing nothing, ${at}`, over(STORING_NOTHING), 0.8),
    atLeast(`PostgreSQL / SQLite, ${at}`, over(ON_SQLITE), 0.75),
  ];
}
