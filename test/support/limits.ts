/**
 * Shorter limits than the product's own: a test cannot wait as long as a client may.
 *
 * They travel in one environment variable, TEST_LIMITS, because most services and commands of the tests run in other
 * processes. The product does not know it: `main.ts` here in support/, and `startService`, read it.
 */

import { type Config, resolveConfig } from "../../src/config.ts";

/** For parts that are tested without a service. */
export const defaults: Config = resolveConfig({}, {}).config;

const VARIABLE = "TEST_LIMITS";

/** One more setting of a test's service or command, in this process or in another. */
export const limits = (values: Partial<Config>): Record<string, string> => ({
  [VARIABLE]: JSON.stringify(values),
});

type Environment = Readonly<Record<string, string | undefined>>;

export const STEP_VARIABLE = "TEST_STEP";

/** One more step of the schema, for a command alone: the threads of a service do not have it. */
export const FURTHER_STEP = { [STEP_VARIABLE]: "CREATE TABLE IF NOT EXISTS shelves (id int)" };

/** A cheat: a service whose commits check neither job nor token. */
export const LEASELESS = "TEST_LEASELESS";

export const hasLimits = (environment: Environment): boolean =>
  VARIABLE in environment || STEP_VARIABLE in environment;

/** Deadlines that a busy machine keeps too. A test about a deadline has its own. */
const patient = { queueSecondsMax: 30, statementSecondsMax: 15, countSecondsMax: 60 };

export const readLimits = (environment: Environment): Partial<Config> => ({
  ...patient,
  ...(JSON.parse(environment[VARIABLE] ?? "{}") as Partial<Config>),
});
