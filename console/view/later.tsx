/** A view whose script is loaded when it is first shown. */

import { signal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
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
  return function Later(props: Props): JSX.Element {
    useEffect(() => {
      if (loaded.value === undefined) void start();
    }, []);
    if (loaded.value !== undefined) return <loaded.value.View {...props} />;
    if (!hasFailed.value) return <p class="faint late">Loading…</p>;
    return (
      <Notice kind="warning" title="This part of the page could not be loaded">
        <Button onClick={() => void start()}>Try again</Button>
      </Notice>
    );
  };
}
