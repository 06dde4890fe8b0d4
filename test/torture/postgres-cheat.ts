/** Proof that the scenario can fail: a server that says it has committed, and has not. */

import type { StoredPlant } from "../support/plants.ts";
import { findMissingPostgres } from "./postgres-missing.ts";
import { openScene } from "./postgres-scene.ts";
import type { Scenario } from "./scenario.ts";

const WRITES = 500;

/** Nothing of the log is written before somebody asks for it to be synced, and nobody does. */
const LAZY = {
  wal_buffers: "16MB",
  wal_writer_delay: "10s",
  wal_writer_flush_after: "1GB",
};

/** Behind the back of the service, which refuses a server that says so. */
const CHEAT = `CREATE FUNCTION cheat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); RETURN NULL; END $$;
  CREATE TRIGGER cheat AFTER INSERT OR UPDATE OR DELETE ON plants EXECUTE FUNCTION cheat()`;

export const postgresCheat: Scenario = {
  title:
    "a PostgreSQL server that acknowledges too early, and is killed: the losses have to be found",
  missing: findMissingPostgres,
  run: async ({ random }) => {
    await using scene = await openScene(random, LAZY);
    const { server, database, clients, quarrel } = scene;
    // To tell somebody that a plant is there syncs what was written before.
    await quarrel.stop();
    for (const statement of CHEAT.split(/;\s+(?=CREATE)/)) await server.run(statement, database);
    await clients.untilAcknowledged(WRITES);
    await server.kill();
    await clients.stop();
    await server.start();
    const rows = await server.run<StoredPlant>("SELECT id, name, tag FROM plants", database);
    const found = clients.compare(rows.filter(({ id }) => id >= 0n));
    return {
      figures: { "losses found": found.length },
      faults: found.length > 0 ? [] : ["no loss was found, and there has to be some"],
    };
  },
};
