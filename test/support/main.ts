/** The command line as the product has it, but with the limits of a test, its step of the schema, and its cheat. */

import { injected } from "../../src/cli/program.ts";
import { steps } from "../../src/store/postgres/schema.ts";
import { migrations } from "../../src/store/sqlite/database.ts";
import { Exchange } from "../../src/http/exchange.ts";
import { LEASELESS, readLimits, STEP_VARIABLE } from "./limits.ts";

Object.assign(injected, readLimits(process.env));
if (process.env[LEASELESS] !== undefined)
  Exchange.prototype.leaseWriter = function (batch) {
    return this.nameWriter(batch);
  };
const step = process.env[STEP_VARIABLE];
if (step !== undefined) {
  (migrations as string[]).push(step);
  (steps as string[][]).push([step]);
}
await import("../../src/main.ts");
