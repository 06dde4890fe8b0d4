/** A button that opens a few choices. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface MenuProps {
  readonly label: string;
  readonly button: ComponentChildren;
  readonly buttonClass: string;
  readonly children: ComponentChildren;
}

/** Links and buttons in a panel: Tab walks through them, Escape or a click beside it closes it. */
export function Menu({ label, button, buttonClass, children }: MenuProps): JSX.Element {
  const isOpen = useSignal(false);
  const root = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (!isOpen.value) return;
    const onOutside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) isOpen.value = false;
    };
    const close = (): void => {
      isOpen.value = false;
    };
    addEventListener("hashchange", close);
    document.addEventListener("pointerdown", onOutside);
    document.addEventListener("focusin", onOutside);
    return () => {
      removeEventListener("hashchange", close);
      document.removeEventListener("pointerdown", onOutside);
      document.removeEventListener("focusin", onOutside);
    };
  }, [isOpen.value]);

  return (
    <div
      class="menu"
      ref={root}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !isOpen.value) return;
        isOpen.value = false;
        opener.current?.focus();
        event.stopPropagation();
      }}
    >
      <button
        type="button"
        class={buttonClass}
        ref={opener}
        aria-label={label}
        title={label}
        aria-expanded={isOpen.value ? "true" : "false"}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        {button}
      </button>
      {isOpen.value && (
        <div
          class="menu-panel"
          onClick={(event) => {
            if ((event.target as Element).closest("button, a") === null) return;
            isOpen.value = false;
          }}
        >
          {children}
        </div>
      )}
    </div>
  );
}
