/** The spans of time that charts of changes show, in bars that follow the clock of this place. */

const HOUR_MS = 3_600_000;

const spans = {
  day: { bars: 24, barHours: 1 },
  week: { bars: 28, barHours: 6 },
} as const;
export type Span = keyof typeof spans;

/** Zones have offsets of whole, half and quarter hours. */
export const INTERVAL = new Date().getTimezoneOffset() % 60 === 0 ? "1h" : "15m";

/**
 * Where each bar begins, and the last one ends: at full hours, or at quarters of a day. When the clock changes, a
 * quarter has 5 or 7 hours, and a day 23 or 25 bars of an hour.
 */
export function edgesOf(span: Span, now = new Date()): number[] {
  const { bars, barHours } = spans[span];
  const sinceHourMs = (now.getMinutes() * 60 + now.getSeconds()) * 1000 + now.getMilliseconds();
  const quarter = Math.floor(now.getHours() / barHours);
  const [year, month, day] = [now.getFullYear(), now.getMonth(), now.getDate()];
  return Array.from({ length: bars + 1 }, (_, index) => {
    const at = index - bars + 1;
    // A local time would be ambiguous in the hour that occurs twice.
    if (barHours === 1) return now.getTime() - sinceHourMs + at * HOUR_MS;
    return new Date(year, month, day, (quarter + at) * barHours).getTime();
  });
}

export const startOf = (span: Span): number => edgesOf(span)[0] ?? 0;
