/** Short notes of what was done, some with a way to undo it. */

import { signal } from "@preact/signals";
import { announce } from "./announcements.ts";

export interface Toast {
  readonly key: number;
  readonly text: string;
  readonly action: Action | undefined;
}

interface Action {
  readonly label: string;
  readonly run: () => void;
  /** Stays until it is dismissed: without it, something would be lost. */
  readonly isNeeded?: boolean;
}

export const toasts = signal<readonly Toast[]>([]);

export const TOAST_SECONDS = 10;
const TOASTS_MAX = 3;
let count = 0;

export function toast(text: string, action?: Action): void {
  const added: Toast = { key: ++count, text, action };
  toasts.value = [...toasts.value, added].slice(-TOASTS_MAX);
  announce(action === undefined ? text : `${text} ${action.label}: press U.`);
}

export function dismissAll(): void {
  toasts.value = [];
}

export function dismiss(key: number): void {
  toasts.value = toasts.value.filter((each) => each.key !== key);
}

/** The latest that can be acted on. */
export function latestAction(): Toast | undefined {
  return toasts.value.findLast(({ action }) => action !== undefined);
}

export function act(each: Toast): void {
  dismiss(each.key);
  each.action?.run();
}
