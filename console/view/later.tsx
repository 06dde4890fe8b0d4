/** A view whose script is loaded when it is first shown. */

import { signal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../text/text.ts";
import { Button, Notice } from "./controls.tsx";

export function later<Props extends object>(load: () => Promise<ComponentType<Props>>) {
  const loaded = signal<{ readonly View: ComponentType<Props> } | undefined>(undefined);
  const hasFailed = signal(false);
  const start = async (): Promise<void> => {
    hasFailed.value = false;
    try {
      loaded.value = { View: await load() };
    } catch {
      hasFailed.value = true;
    }
  };
  const prefetch = (): void => void (loaded.value === undefined && start());
  function Later(props: Props): JSX.Element {
    useEffect(prefetch, []);
    if (loaded.value !== undefined) return <loaded.value.View {...props} />;
    if (!hasFailed.value) return <p class="faint late">{t.shared.loading}</p>;
    return (
      <Notice kind="warning" title={t.shared.notLoaded}>
        <Button onClick={() => void start()}>{t.shared.tryAgain}</Button>
      </Notice>
    );
  }
  return Object.assign(Later, { prefetch });
}
