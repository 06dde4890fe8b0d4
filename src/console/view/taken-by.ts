/** Who has an id, while it is being typed. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { findInt64 } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import { findTaken } from "../api/plants.ts";
import { mayRead } from "../state/session.ts";

const DELAY_MS = 250;

export function useTakenBy(text: string): Plant | undefined {
  const taken = useSignal<Plant | undefined>(undefined);
  const id = findInt64(text.trim());
  useEffect(() => {
    taken.value = undefined;
    if (id === undefined || !mayRead.value) return;
    const controller = new AbortController();
    const look = async (): Promise<void> => {
      // Only a help: the answer to sending it is what counts.
      const found = await findTaken(id, controller.signal).catch(() => undefined);
      if (!controller.signal.aborted) taken.value = found;
    };
    const timer = setTimeout(() => void look(), DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [id]);
  return taken.value?.id === id ? taken.value : undefined;
}
