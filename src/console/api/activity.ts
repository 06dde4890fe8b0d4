/** GET /activity: what the service has been doing in the last minutes. */

import { ask, readText } from "./service.ts";

/** Counts are of one interval. */
export interface Sample {
  readonly atMs: number;
  readonly creates: number;
  readonly requests: number;
  readonly errors: number;
  readonly refused: number;
  readonly durableP50Ms: number | null;
  readonly durableP99Ms: number | null;
  readonly waiting: number;
  readonly storeBytes: number | null;
}

export interface Activity {
  readonly intervalMs: number;
  readonly samples: readonly Sample[];
}

export async function readActivity(
  sinceMs: number | undefined,
  signal: AbortSignal,
): Promise<Activity> {
  const query = sinceMs === undefined ? "" : `?since=${sinceMs}`;
  return JSON.parse(await readText(await ask(`activity${query}`, { signal }))) as Activity;
}
