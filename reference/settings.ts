/** The settings of the service. The build calls this: nothing of the service's configuration runs in the page. */

import { settings } from "../src/config.ts";

export interface SettingFacts {
  readonly variable: string;
  readonly fallback: string;
  readonly meaning: string;
  readonly allowed: string;
}

export const listSettings = (): SettingFacts[] =>
  Object.values(settings).map(({ env, default: fallback = "", meaning, allowed }) => ({
    variable: env,
    fallback,
    meaning,
    allowed,
  }));
