/** What a scenario is: a name to call it by, and servers that it measures for as long as it runs. */

import type { ScenarioResult, Table, Target } from "./report/results.ts";

export interface Scenario extends Pick<ScenarioResult, "name" | "title" | "about" | "chart"> {
  /** Whatever it starts goes with the stack. */
  readonly measure: (stack: AsyncDisposableStack) => Promise<{
    readonly tables: readonly Table[];
    readonly targets: readonly Target[];
  }>;
}

/** The table of a number of connections. */
export const atConnections = (tables: readonly Table[], connections: number): Table | undefined =>
  tables.find(({ name }) => name === nameConnections(connections));

export const nameConnections = (connections: number): string =>
  connections === 1 ? "1 connection" : `${connections} connections`;
