/** Everything that can be done to the service, by the names of the command line. */

import { failOverCheat } from "./fail-over-cheat.ts";
import { failOver } from "./fail-over.ts";
import { postgresCheat } from "./postgres-cheat.ts";
import { postgres } from "./postgres.ts";
import { diskFaults } from "./disk-faults.ts";
import { fuzz } from "./fuzz.ts";
import { idleConnections } from "./idle-connections.ts";
import { kill } from "./kill.ts";
import { powerLossCheat } from "./power-loss-cheat.ts";
import { powerLoss } from "./power-loss.ts";
import { overload } from "./overload.ts";
import { slowClients } from "./slow-clients.ts";
import { soak } from "./soak.ts";
import type { Scenario } from "./scenario.ts";

export const scenarios: Readonly<Record<string, Scenario>> = {
  kill,
  "power-loss": powerLoss,
  "power-loss-cheat": powerLossCheat,
  "disk-faults": diskFaults,
  postgres,
  "postgres-cheat": postgresCheat,
  "fail-over": failOver,
  "fail-over-cheat": failOverCheat,
  overload,
  "slow-clients": slowClients,
  "idle-connections": idleConnections,
  soak,
  fuzz,
};
