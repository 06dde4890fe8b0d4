/** State of the signed-in person. It is reset when they leave, so the next person never sees it. */

import { batch, type Signal, signal } from "@preact/signals";

const resets: (() => void)[] = [];

/** Runs when the person leaves, in the order of the imports. */
export const whenLeft = (reset: () => void): void => void resets.push(reset);

/** A signal that is as it was at first when the person leaves. */
export function personal<Value>(first: Value): Signal<Value> {
  const own = signal(first);
  whenLeft(() => (own.value = first));
  return own;
}

export const forgetPerson = (): void => batch(() => resets.forEach((reset) => reset()));
