/** The command line as the product has it, but with the limits of a test. */

import { injectLimits } from "../../src/cli/program.ts";
import { readLimits } from "./limits.ts";

injectLimits(readLimits(process.env));
await import("../../src/main.ts");
