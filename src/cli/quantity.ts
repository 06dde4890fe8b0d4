/** Numbers and times as people read them. */

/** 1234567.8 is 1,234,568. */
export const formatCount = (count: number): string => Math.round(count).toLocaleString("en-US");

/** 65 is 1:05, 3661 is 1:01:01. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const padded = (part: number): string => String(part).padStart(2, "0");
  return h > 0 ? `${h}:${padded(m)}:${padded(s)}` : `${m}:${padded(s)}`;
}

/** Tenths while they matter. */
export const formatSeconds = (seconds: number): string =>
  seconds < 60 ? `${seconds.toFixed(1)} s` : `${formatDuration(seconds)} min`;
