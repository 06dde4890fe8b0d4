/** The settings, for the API reference. The build calls this: nothing of the configuration runs in the page. */

import { settings } from "../src/config.ts";

interface SettingFacts {
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
