/** Proof that the fail-over can lose: a standby that nobody waits for, and that has fallen behind. */

import { signal, stopProcesses } from "../support/processes.ts";
import { compare, openPair } from "./fail-over-scene.ts";
import { findMissingPostgres } from "./postgres-missing.ts";
import type { Scenario } from "./scenario.ts";

const WRITES = 500;
/** Of each kind, and there are dozens. */
const LOSSES_MIN = 5;
const losses = ["lost after", "back after", "not as it was acknowledged"];

export const failOverCheat: Scenario = {
  title: "a standby that nobody waits for is promoted: the losses have to be found",
  missing: findMissingPostgres,
  run: async ({ random }) => {
    await using scene = await openPair({ synchronous: false }, random);
    const { pair, clients } = scene;
    await clients.untilAcknowledged(WRITES);
    const [receiver] = await pair.standby.run<{ pid: number }>(
      "SELECT pid FROM pg_stat_wal_receiver",
    );
    if (receiver === undefined) throw new Error("the standby receives nothing");
    await stopProcesses(receiver.pid);
    await clients.untilAcknowledged(WRITES);
    await pair.primary.kill();
    await clients.stop();
    // It ends before it reads what the system has kept for it.
    signal(receiver.pid, "SIGTERM");
    signal(receiver.pid, "SIGCONT");
    await pair.promote();
    const found = await compare(scene);
    const counts = losses.map(
      (loss) => [loss, found.filter((text) => text.includes(loss)).length] as const,
    );
    return {
      figures: Object.fromEntries(counts),
      faults: counts
        .filter(([, count]) => count <= LOSSES_MIN)
        .map(([loss, count]) => `found ${count} plants “${loss}”, and there have to be more`),
    };
  },
};
