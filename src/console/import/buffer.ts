/** The CSV library uses the global `Buffer`, which browsers lack. Import this module first. */

import { Buffer } from "node:buffer";

Object.assign(globalThis, { Buffer });
