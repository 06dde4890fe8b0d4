/** Times, durations and rates, as people write them in settings, queries and tokens. */

export interface Rate {
  /** The burst that a token may use, refilled in each window. */
  readonly units: number;
  readonly windowSeconds: number;
}

const windows: Readonly<Record<string, number>> = { s: 1, min: 60, h: 3_600 };
const UNITS_MAX = 1_000_000_000;

export const DAY_MS = 86_400_000;
const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: DAY_MS };

/** As in 90s, 15m, 12h or 90d. */
export function findDurationMs(text: string): number | undefined {
  const [, count, unit] = /^([1-9]\d{0,8})([smhd])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * unitMs[unit as keyof typeof unitMs];
}

/** Turns the limit off for one token. */
export const UNLIMITED = "none";

/** As in 100/s, 6000/min or 100000/h. */
export function findRate(text: string): Rate | undefined {
  const [, count, unit] = /^([1-9]\d{0,9})\/(s|min|h)$/.exec(text) ?? [];
  const units = Number(count);
  const windowSeconds = windows[unit ?? ""];
  return windowSeconds === undefined || units > UNITS_MAX ? undefined : { units, windowSeconds };
}

/** Requires a time zone. Date.parse would accept 31 February, as a day in March. */
export function findTimeMs(text: string): number | undefined {
  const [, day = ""] =
    /^(\d{4}-\d\d-\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/.exec(text) ?? [];
  const isDay = day !== "" && new Date(Date.parse(day) || 0).toISOString().startsWith(day);
  const timeMs = isDay ? Date.parse(text) : Number.NaN;
  return Number.isNaN(timeMs) ? undefined : timeMs;
}

/** Retry-After: seconds or a date, RFC 9110 section 10.2.3. */
export function findRetryAfterMs(header: string | null): number | undefined {
  const text = header ?? "";
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(ms, 0);
}

export const formatTime = (ms: number | undefined): string | null =>
  ms === undefined ? null : new Date(ms).toISOString();
