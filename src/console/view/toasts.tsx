/** The notes at the foot of the page. They stay while they are looked at. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { act, dismiss, type Toast, TOAST_SECONDS, toasts } from "../state/toasts.ts";
import { Icon } from "./icons.tsx";

export function Toasts(): JSX.Element {
  return (
    <section class="toasts" aria-label="Notes">
      {toasts.value.map((each) => (
        <ToastNote key={each.key} each={each} />
      ))}
    </section>
  );
}

function ToastNote({ each }: { readonly each: Toast }): JSX.Element {
  const isHeld = useSignal(false);
  useEffect(() => {
    if (isHeld.value || each.action?.isNeeded === true) return;
    const seconds = each.action === undefined ? TOAST_SECONDS / 2 : TOAST_SECONDS;
    const timer = setTimeout(() => dismiss(each.key), seconds * 1000);
    return () => clearTimeout(timer);
  }, [isHeld.value]);
  const hold = (): void => {
    isHeld.value = true;
  };
  const release = (): void => {
    isHeld.value = false;
  };
  return (
    <div
      class="toast"
      onMouseEnter={hold}
      onMouseLeave={release}
      onFocusIn={hold}
      onFocusOut={release}
    >
      <p>{each.text}</p>
      {each.action !== undefined && (
        <button type="button" class="toast-action" aria-keyshortcuts="u" onClick={() => act(each)}>
          {each.action.label}
        </button>
      )}
      <button
        type="button"
        class="toast-close"
        aria-label="Dismiss"
        onClick={() => dismiss(each.key)}
      >
        <Icon name="close" />
      </button>
    </div>
  );
}
