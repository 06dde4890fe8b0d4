/** What stands beside the list: a plant, or the form for one. On a phone it is the whole screen. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { openPlant } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { focusList, panelKeys } from "../state/shortcuts.ts";
import { Icon } from "./icons.tsx";

interface PanelProps {
  readonly title: string;
  readonly keys?: Readonly<Record<string, () => void>>;
  readonly children: ComponentChildren;
}

export function closePanel(): void {
  openPlant(undefined);
  focusList();
}

export function Panel({ title, keys, children }: PanelProps): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    panelKeys.value = { ...(mayRead.value ? { Escape: closePanel } : {}), ...keys };
    return () => {
      panelKeys.value = {};
    };
  }, [keys]);
  useEffect(() => {
    // A form has taken the focus for its first field already.
    if (!heading.current?.closest(".panel")?.contains(document.activeElement))
      heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <section class="panel" aria-labelledby="panel-title">
      <div class="panel-head">
        {mayRead.value && (
          <button
            type="button"
            class="button-plain panel-back"
            aria-label="Back to the list"
            onClick={closePanel}
          >
            <Icon name="back" />
          </button>
        )}
        <h2 id="panel-title" tabIndex={-1} ref={heading}>
          {title}
        </h2>
        {mayRead.value && (
          <button
            type="button"
            class="button-plain panel-close"
            aria-label="Close"
            title="Close"
            onClick={closePanel}
          >
            <Icon name="close" />
          </button>
        )}
      </div>
      <div class="panel-body">{children}</div>
    </section>
  );
}

/** An id as it is printed on a label stuck in a pot. */
export function IdLabel({ id }: { readonly id: bigint }): JSX.Element {
  return (
    <p class="label">
      <span class="visually-hidden">Id </span>
      {String(id)}
    </p>
  );
}
