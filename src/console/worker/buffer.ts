/** The library that reads tables expects the runtime's own bytes. To be imported before anything that reads. */

import { Buffer } from "node:buffer";

Object.assign(globalThis, { Buffer });
