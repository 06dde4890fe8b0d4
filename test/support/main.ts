/** The command line as the product has it, but with the limits of a test. */

import { injectedLimits } from "../../src/cli/program.ts";
import { readLimits } from "./limits.ts";

Object.assign(injectedLimits, readLimits(process.env));
await import("../../src/main.ts");
