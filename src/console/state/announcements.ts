/** What is said to those who listen instead of looking. */

import { signal } from "@preact/signals";

export const announcement = signal("");

export function announce(text: string): void {
  // The same words twice are said twice.
  announcement.value = announcement.value === text ? `${text}\u00a0` : text;
}
