/** Short messages, some with an action such as undo. Screen readers announce all of them. */

import { signal } from "@preact/signals";
import { hasShortcuts } from "./storage.ts";

export interface Toast {
  readonly key: number;
  readonly text: string;
  readonly action: Action | undefined;
}

interface Action {
  readonly label: string;
  readonly run: () => void;
  /** The toast stays until it is dismissed, because without the action something is lost. */
  readonly isNeeded?: boolean;
}

export const toasts = signal<readonly Toast[]>([]);
export const announcement = signal("");

const TOASTS_MAX = 3;
let count = 0;

export function toast(text: string, action?: Action): void {
  // A toast without an action makes room for the next.
  const kept = toasts.value.filter((each) => each.action !== undefined);
  const first = kept.find(({ action: offered }) => offered?.isNeeded !== true) ?? kept[0];
  const rest = kept.length < TOASTS_MAX ? kept : kept.filter((each) => each !== first);
  toasts.value = [...rest, { key: ++count, text, action }];
  const hint = hasShortcuts.value ? ": press U" : "";
  announce(action === undefined ? text : `${text} ${action.label}${hint}.`);
}

/** For screen readers only. */
export function announce(text: string): void {
  // Screen readers announce a text again only if it differs.
  announcement.value = announcement.value === text ? `${text}\u00a0` : text;
}

export function dismiss(key: number): void {
  toasts.value = toasts.value.filter((each) => each.key !== key);
}

export function act({ key, action }: Toast): void {
  dismiss(key);
  action?.run();
}
