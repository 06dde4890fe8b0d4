/** Whether the service answers; and, where it does not, trying until it does. */

import { signal } from "@preact/signals";

export const isLost = signal(false);
/** Counts the times that the connection came back, for views to read again what they missed. */
export const recoveries = signal(0);

const DELAYS_MS = [500, 1000, 2000, 4000];

let timer: ReturnType<typeof setTimeout> | undefined;
let attempts = 0;

export function noteLoss(): void {
  if (isLost.value) return;
  isLost.value = true;
  attempts = 0;
  plan();
}

export function noteAnswer(): void {
  if (!isLost.value) return;
  clearTimeout(timer);
  isLost.value = false;
  recoveries.value++;
}

function plan(): void {
  clearTimeout(timer);
  timer = setTimeout(() => void tryAgain(), DELAYS_MS[Math.min(attempts++, DELAYS_MS.length - 1)]);
}

export async function tryAgain(): Promise<void> {
  try {
    await fetch(new URL("livez", new URL(".", document.baseURI)), { cache: "no-store" });
    noteAnswer();
  } catch {
    if (isLost.value) plan();
  }
}

addEventListener("online", () => {
  if (isLost.value) void tryAgain();
});
