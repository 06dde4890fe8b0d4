/** Numbers and times as people read them. */

/** 1234567.8 is 1,234,568. */
export const formatCount = (count: number): string => Math.round(count).toLocaleString("en-US");

/** 65 is 1:05, 3661 is 1:01:01. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${twoDigits(m)}:${twoDigits(s)}` : `${m}:${twoDigits(s)}`;
}

const twoDigits = (part: number): string => String(part).padStart(2, "0");

/** Tenths of a second while they matter. */
export function formatSeconds(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${formatDuration(seconds)} ${seconds < 3600 ? "min" : "h"}`;
}

export const describeRetry = (message: string, waitMs: number): string =>
  `${message} Trying again in ${formatSeconds(waitMs / 1000)}.`;
