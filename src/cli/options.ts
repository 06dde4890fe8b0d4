/** Settings as flags of a command. */

import { type Command, Option } from "commander";
import {
  type Limits,
  type Resolved,
  resolveConfig,
  type Setting,
  type SettingName,
  settings,
} from "../config.ts";

/** Adds the flags of these settings; of all of them where none are named. */
export function addSettings(
  command: Command,
  names: readonly SettingName[] = Object.keys(settings) as SettingName[],
): Command {
  for (const name of names) {
    const setting: Setting<unknown> = settings[name];
    if (setting.flag === undefined) continue;
    const fallback = setting.default === "" ? "none" : setting.default;
    command.addOption(
      new Option(
        `${setting.flag} <value>`,
        `${setting.meaning} (${setting.env}; default ${fallback})`,
      ),
    );
  }
  return command;
}

let injectedLimits: Partial<Limits> = {};

/** For tests, which cannot wait as long as a client may. */
export function injectLimits(limits: Partial<Limits>): void {
  injectedLimits = limits;
}

/** The flags given to a command, with the environment and the defaults behind them. */
export function resolveOptions(options: Readonly<Record<string, unknown>>): Resolved {
  const flags: Partial<Record<SettingName, string>> = {};
  for (const name of Object.keys(settings) as SettingName[]) {
    const value = options[name];
    if (typeof value === "string") flags[name] = value;
  }
  return resolveConfig(flags, process.env, injectedLimits);
}
