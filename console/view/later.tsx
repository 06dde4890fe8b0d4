/** A view whose script is loaded when it is first shown. */

import { signal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { isLost, recoveries, tryAgain } from "../api/service.ts";
import { t } from "../text/text.ts";
import { Button, Notice } from "./controls.tsx";

/** An upgraded service no longer has the scripts of this page, and some browsers do not fetch a script twice. */
function NotLoaded(): JSX.Element {
  return isLost.value ? (
    <Notice kind="warning" title={t.shared.notLoaded} text={t.shared.loadedLater} />
  ) : (
    <Notice kind="warning" title={t.shared.notLoaded} text={t.shared.upgraded}>
      <Button onClick={() => location.reload()}>{t.shared.reload}</Button>
    </Notice>
  );
}

/** `title` is the heading of a page until it has its own. */
export function later<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
  title?: string,
) {
  const loaded = signal<{ readonly View: ComponentType<Props> } | undefined>(undefined);
  const hasFailed = signal(false);
  const prefetch = async (): Promise<void> => {
    if (loaded.value !== undefined) return;
    hasFailed.value = false;
    try {
      loaded.value = { View: await load() };
    } catch {
      await tryAgain();
      hasFailed.value = true;
    }
  };
  function Later(props: Props): JSX.Element {
    useEffect(() => void prefetch(), [recoveries.value]);
    if (loaded.value !== undefined) return <loaded.value.View {...props} />;
    if (!hasFailed.value) return <p class="faint late">{t.shared.loading}</p>;
    if (title === undefined) return <NotLoaded />;
    return (
      <div class="single">
        <h1>{title}</h1>
        <NotLoaded />
      </div>
    );
  }
  return Object.assign(Later, { prefetch });
}
