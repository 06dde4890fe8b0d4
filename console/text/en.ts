/** English. */

import { takeEnglish } from "./take.ts";

export const en = takeEnglish();
