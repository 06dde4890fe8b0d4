/** plantstore config: what the service would run with, and where each value comes from. */

import { type Resolved, type Setting, type SettingName, settings } from "../config.ts";
import { printTable } from "./table.ts";

export function showConfig({ config, sources }: Resolved, asJson: boolean): void {
  const rows = (Object.entries(settings) as [SettingName, Setting<unknown>][]).map(
    ([name, setting]) => ({
      setting: setting.env,
      value:
        setting.secret && config[name] !== undefined ? "********" : show(setting, config[name]),
      source: sources[name],
    }),
  );
  if (asJson) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  else
    printTable(
      ["SETTING", "VALUE", "FROM"],
      rows.map((row) => Object.values(row)),
    );
}

function show({ mask = (text) => text }: Setting<unknown>, value: unknown): string {
  return mask(
    Array.isArray(value) ? value.join(",") : String((value as string | number | undefined) ?? ""),
  );
}
