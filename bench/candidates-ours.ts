/** The candidates that most scenarios have: our service on a SQLite file, and itself without a store. */

import { candidate, limitCandidate } from "./candidates.ts";
import type { Load } from "./load.ts";
import type { Absent, Candidate } from "./measure.ts";
import { serveLimit, servePlants } from "./servers/ours.ts";
import type { ServerOptions } from "./servers/server.ts";
import { countRows } from "./stores.ts";

export const OURS = "plantstore";
export const STORING_NOTHING = "the same, storing nothing";

type Options = Pick<ServerOptions, "isShared" | "env">;

/** Starts the service on a file; what it answers makes a candidate of any load on it. */
export async function startOurs(
  stack: AsyncDisposableStack,
  path: string,
  options: Options = {},
): Promise<(load: Load, name?: string) => Candidate> {
  const server = await servePlants(path, options);
  stack.defer(server.stop);
  return (load, name = OURS) =>
    candidate({ name, role: "ours", server, load, countRows: () => countRows(path) });
}

export async function startStoringNothing(
  stack: AsyncDisposableStack,
  options: Options = {},
): Promise<(load: Load) => Candidate | Absent> {
  const server = await serveLimit("storing-nothing", options);
  stack.defer(server.stop);
  return (load) => limitCandidate(STORING_NOTHING, server, load);
}
