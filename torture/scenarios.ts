/** Everything that can be done to the service, by the names of the command line. */

import type { Scenario } from "./scenario.ts";

export const scenarios: Readonly<Record<string, Scenario>> = {};
