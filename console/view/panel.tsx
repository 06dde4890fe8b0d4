/** The panel beside the list, with a plant or a form. On a phone it covers the screen. */

import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { openPlant } from "../state/route.ts";
import { mayRead } from "../state/session.ts";
import { t } from "../text/text.ts";
import { Button } from "./controls.tsx";
import { focusList } from "./shortcuts.tsx";

interface PanelProps {
  readonly title: string;
  /** The plant's id, shown beside the title. */
  readonly id?: bigint;
  readonly children: ComponentChildren;
}

export function closePanel(): void {
  openPlant(undefined);
  focusList();
}

export function Panel({ title, id, children }: PanelProps): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  const focused = document.activeElement;
  /** The element that had the focus before this title was shown; undefined for a new panel. */
  const before = useRef<Element | null>(undefined);
  // A layout effect runs before the next key event, which belongs to the panel.
  useLayoutEffect(() => {
    const now = document.activeElement;
    // A form focuses its first field, and loses the focus when it closes. The list keeps it for keyboard navigation.
    const isLost =
      before.current === undefined
        ? now?.id !== "plants" && !heading.current?.closest(".panel")?.contains(now)
        : now === document.body;
    if (isLost && before.current?.id === "plants") focusList();
    else if (isLost) heading.current?.focus({ preventScroll: true });
    before.current = focused;
  }, [title]);
  return (
    <section class="panel" aria-labelledby="panel-title">
      <div class="panel-head">
        <h2 id="panel-title" tabIndex={-1} ref={heading}>
          {title}
        </h2>
        {id !== undefined && <IdLabel id={id} />}
        {/* A token that may only write has no list to go back to. */}
        {mayRead.value && (
          <Button
            kind="plain"
            icon="close"
            label={t.shared.close}
            aria-keyshortcuts="Escape"
            onClick={closePanel}
          />
        )}
      </div>
      <div class="panel-body">{children}</div>
    </section>
  );
}

/** An id, styled as a plant label. */
const IdLabel = ({ id }: { readonly id: bigint }): JSX.Element => (
  <p class="label">
    <span class="visually-hidden">{t.shared.id} </span>
    {String(id)}
  </p>
);
