/** Words that several views use, units, and what went wrong. */
export const shared = {
  close: "Close",
  id: "Id",
  open: "Open",
  tryAgain: "Try again",
  loading: "Loading…",
  notLoaded: "This part of the page could not be loaded",
  /** In a sentence. */
  quoted: "“{name}”",
  plantWithoutName: "plant {id}",
  lessThanASecond: "less than a second",
  seconds: { one: "{count} second", other: "{count} seconds" },
  minutes: { one: "{count} minute", other: "{count} minutes" },
  hours: { one: "{count} hour", other: "{count} hours" },
  days: { one: "{count} day", other: "{count} days" },
} as const;
