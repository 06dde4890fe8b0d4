/** Short messages, some with an action such as undo. Screen readers announce all of them. */

import { effect } from "@preact/signals";
import type { Plant } from "../../src/domain/plant.ts";
import { fill, plural, t } from "../text/text.ts";
import { formatName } from "./format.ts";
import { personal } from "./person.ts";
import { findDraft, hasShortcuts } from "./storage.ts";

export interface Toast {
  readonly key: number;
  readonly text: string;
  readonly action: Action | undefined;
  /** Beside the action. */
  readonly also?: Action | undefined;
  readonly done?: Done;
}

export type Verb = keyof typeof t.plants.done;

/** What was done, and how it is undone, by the id of the plant. */
interface Done {
  readonly verb: Verb;
  readonly undos: ReadonlyMap<bigint, (isOnly: boolean) => unknown>;
  readonly plants: readonly Plant[];
}

export interface Action {
  readonly label: string;
  readonly run: () => void;
  /** The toast stays until it is dismissed, because without the action something is lost. */
  readonly isNeeded?: boolean;
  /** The toast says that this draft is not saved, and goes with it. */
  readonly draft?: bigint | "new" | undefined;
}

export const toasts = personal<readonly Toast[]>([]);
export const announcement = personal("");

const TOASTS_MAX = 3;
let count = 0;

export const toast = (text: string, action?: Action, also?: Action): void =>
  show({ key: ++count, text, action, also });

const isTrue = ({ action }: Toast): boolean =>
  action?.draft === undefined || findDraft(action.draft) !== undefined;

export const startToasts = (): void =>
  void effect(() => {
    if (!toasts.value.every(isTrue)) toasts.value = toasts.value.filter(isTrue);
  });

/** While the toast is shown, the next plant is counted in it: "Added 5 plants." One undo is for all. */
export function toastDone(verb: Verb, plant: Plant, undo: (isOnly: boolean) => unknown): void {
  const earlier = toasts.value.find(({ done }) => done?.verb === verb);
  const undos = new Map(earlier?.done?.undos).set(plant.id, undo);
  const what = undos.size === 1 ? formatName(plant) : plural(t.shared.plants, undos.size);
  const run = async (): Promise<void> => {
    for (const each of [...undos.values()].toReversed()) await each(undos.size === 1);
  };
  const key = earlier?.key ?? ++count;
  const action = { label: t.shared.undo, run: () => void run() };
  const plants = [...(earlier?.done?.plants ?? []).filter(({ id }) => id !== plant.id), plant];
  show({ key, text: fill(t.plants.done[verb], { what }), action, done: { verb, undos, plants } });
}

function show(next: Toast): void {
  // A toast without an action makes room for the next, and so does one that says the same and loses nothing.
  const isAgain = (each: Toast): boolean =>
    each.text === next.text && each.action?.isNeeded !== true && each.done === undefined;
  const kept = toasts.value.filter(
    (each) => each.action !== undefined && each.key !== next.key && !isAgain(each),
  );
  const first = kept.find(({ action: offered }) => offered?.isNeeded !== true) ?? kept[0];
  const rest = kept.length < TOASTS_MAX ? kept : kept.filter((each) => each !== first);
  toasts.value = [...rest, next];
  const { text, action } = next;
  const withAction = hasShortcuts.value ? t.plants.pressU : t.plants.withAction;
  announce(action === undefined ? text : fill(withAction, { text, action: action.label }));
}

/** For screen readers only. */
export function announce(text: string): void {
  // Screen readers announce a text again only if it differs.
  announcement.value = announcement.value === text ? `${text}\u00a0` : text;
}

export function dismiss(key: number): void {
  toasts.value = toasts.value.filter((each) => each.key !== key);
}

export function act({ key, action }: Pick<Toast, "key" | "action">): void {
  dismiss(key);
  action?.run();
}
