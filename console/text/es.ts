/** Spanish. */

import { take } from "./take.ts";

export const es = take("es");
