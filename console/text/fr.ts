/** French. */

import { take } from "./take.ts";

export const fr = take("fr");
