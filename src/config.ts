/** Flags over environment over defaults, resolved once into one frozen Config. */

import { type Setting, settings } from "./settings.ts";

export type SettingName = keyof typeof settings;

type Value<Name extends SettingName> = Exclude<
  ReturnType<(typeof settings)[Name]["parse"]>,
  undefined
>;

export type Config = Readonly<
  { [Name in Exclude<SettingName, "token">]: Value<Name> } & { token: string | undefined }
>;

type Source = "flag" | "environment" | "default";

export interface Resolved {
  readonly config: Config;
  readonly sources: Readonly<Record<SettingName, Source>>;
}

type Flags = Readonly<Partial<Record<SettingName, string>>>;
type Environment = Readonly<Record<string, string | undefined>>;

/** Names every setting that is wrong, with its value and what is allowed. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export function resolveConfig(flags: Flags, environment: Environment): Resolved {
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  const faults: string[] = [];
  for (const [name, setting] of Object.entries(settings) as [SettingName, Setting<unknown>][]) {
    const [text, source] = pick(flags[name], environment[setting.env], setting.default);
    const { value, reason } = text === undefined ? {} : tryParse(setting, text);
    if (text !== undefined && value === undefined)
      faults.push(describeFault(setting, text, source, reason));
    values[name] = value;
    sources[name] = source;
  }
  if (faults.length === 0) faults.push(...contradictions(values as Config));
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return { config: Object.freeze(values) as Config, sources: sources as Resolved["sources"] };
}

function pick(
  flag: string | undefined,
  variable: string | undefined,
  fallback: string | undefined,
): [string | undefined, Source] {
  if (flag !== undefined) return [flag, "flag"];
  if (variable !== undefined) return [variable, "environment"];
  return [fallback, "default"];
}

/** The value, or, where there is more to say than what is allowed, why there is none. */
export function tryParse(
  setting: Setting<unknown>,
  text: string,
): { readonly value?: unknown; readonly reason?: string } {
  try {
    return { value: setting.parse(text) };
  } catch (error) {
    if (error instanceof TypeError) return { reason: error.message };
    throw error;
  }
}

function describeFault(
  setting: Setting<unknown>,
  text: string,
  source: Source,
  reason: string | undefined,
): string {
  const name = source === "flag" ? setting.flag : setting.env;
  return `${name}: ${describeRefused(setting, text, reason)}`;
}

/** Never what may be a secret. */
export function describeRefused(
  { secret, mask = (text) => text, allowed }: Setting<unknown>,
  text: string,
  reason?: string,
): string {
  const came = secret ? `its ${text.length} characters are` : `${JSON.stringify(mask(text))} is`;
  return `${came} not allowed${reason === undefined ? "" : ` (${reason})`}; expected ${allowed}`;
}

/**
 * The runtime's idle timer also runs while a body trickles in or an answer is awaited, and closes without an
 * answer. It counts in steps of four seconds and may close that much early: ours has to come first.
 */
const IDLE_MARGIN_SECONDS = 5;

function contradictions(config: Config): string[] {
  const faults: string[] = [];
  for (const name of ["readSecondsMax", "queueSecondsMax"] as const) {
    if (config.idleSecondsMax < config[name] + IDLE_MARGIN_SECONDS)
      faults.push(
        `${settings.idleSecondsMax.env}: ${config.idleSecondsMax} is not allowed; expected at least ${config[name] + IDLE_MARGIN_SECONDS}, ` +
          `${IDLE_MARGIN_SECONDS} more than ${settings[name].env}, or requests would be cut off without an answer`,
      );
  }
  if (config.bodyBytesTotalMax < config.bodyBytesMax)
    faults.push(
      `${settings.bodyBytesTotalMax.env}: ${config.bodyBytesTotalMax} is not allowed; ` +
        `expected at least ${config.bodyBytesMax}, the value of ${settings.bodyBytesMax.env}`,
    );
  return faults;
}
