/** Connections that are slow or idle, by the hundreds. The shares are those that even a busy machine keeps to. */

import { expect, test } from "bun:test";
import { runIdleConnections } from "./idle-connections.ts";
import { connectionsMax, missingFigures } from "./service.ts";
import { runSlowClients } from "./slow-clients.ts";

const canRun = missingFigures() === undefined && connectionsMax() > 1_100;
const silent = (): void => undefined;

// At the same time, because both wait for most of theirs.
test.skipIf(!canRun)(
  "slow clients are cut off in their time, idle connections stay usable until theirs is over, and others are served meanwhile",
  async () => {
    const [slow, idle] = await Promise.all([
      runSlowClients({
        slowClients: 130,
        secondsBefore: 1,
        goodputShareMin: 0.2,
        waitMsMax: 2_000,
        tell: silent,
      }),
      runIdleConnections({
        idleConnections: 1_000,
        spellSeconds: 1,
        idleSecondsMax: 12,
        goodputShareMin: 0.2,
        tell: silent,
      }),
    ]);
    expect(slow.faults).toEqual([]);
    expect(slow.figures["acknowledged plants"]).toBeGreaterThan(100);
    expect(idle.faults).toEqual([]);
    expect(idle.figures["used again"]).toBe(100);
  },
);
