/** Other limits than the product's own, because a test cannot wait as long as a client may. */

import type { Limits } from "../../src/config.ts";

const VARIABLE = "TEST_LIMITS";

/** One more setting of a test's service or command, in this process or in another. */
export const limits = (given: Partial<Limits>): Record<string, string> => ({
  [VARIABLE]: JSON.stringify(given),
});

type Environment = Readonly<Record<string, string | undefined>>;

export const hasLimits = (environment: Environment): boolean => VARIABLE in environment;

export const readLimits = (environment: Environment): Partial<Limits> =>
  JSON.parse(environment[VARIABLE] ?? "{}") as Partial<Limits>;
