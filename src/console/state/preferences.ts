/** Choices of this browser that outlive a session. Only deviations from the default are stored. */

import { signal } from "@preact/signals";

const KEY = "plantstore.shortcuts";

/** Single-key shortcuts get in the way of speech input, so they can be turned off (WCAG 2.1.4). */
export const hasShortcuts = signal(readShortcuts());

export function setShortcuts(isOn: boolean): void {
  hasShortcuts.value = isOn;
  try {
    if (isOn) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, "off");
  } catch {
    // The browser may forbid storage. The choice then ends with the page.
  }
}

function readShortcuts(): boolean {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}
