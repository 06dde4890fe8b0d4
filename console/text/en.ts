/** English, by area where one suffices. */

import { takeEnglish } from "./take.ts";

export const en = takeEnglish();

export const { imports } = en;
