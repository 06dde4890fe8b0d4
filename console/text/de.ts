/** German. */

import { take } from "./take.ts";

export const de = take("de");
