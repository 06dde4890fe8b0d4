/** The picture above the list of changes: dragging over it picks the time of the filter. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { ChangeCount } from "../../client/client.ts";
import { countChanges } from "../api/changes.ts";
import { isAbort } from "../api/service.ts";
import type { ChangeFilter } from "../state/route.ts";
import { INTERVAL, startOf } from "../state/spans.ts";
import { t } from "../text/text.ts";
import { explainHistory } from "./history.tsx";
import { Picture, type Range } from "./picture.tsx";

interface ChangesPictureProps {
  readonly filter: ChangeFilter;
  readonly onPick: (range: Range) => void;
}

export function ChangesPicture({ filter, onPick }: ChangesPictureProps): JSX.Element {
  const counts = useSignal<readonly ChangeCount[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  /** While the pointer is down. */
  const dragged = useSignal<Range | undefined>(undefined);
  const { by, type } = filter;
  useEffect(() => {
    const leaving = new AbortController();
    const from = new Date(startOf("week")).toISOString();
    const query = { from, by, group: ["by"], every: INTERVAL } as const;
    countChanges(query, leaving.signal).then(
      (found) => (counts.value = found),
      (error: unknown) => {
        if (!isAbort(error)) failure.value = error;
      },
    );
    return () => leaving.abort();
  }, [by]);
  if (failure.value !== undefined) return <p class="faint">{explainHistory(failure.value)}</p>;
  if (counts.value === undefined) return <p class="faint late">{t.shared.counting}</p>;
  const { from, to } = filter;
  const chosen = from !== undefined && to !== undefined ? { from, to } : undefined;
  return (
    <Picture
      counts={counts.value}
      span="week"
      type={type}
      range={dragged.value ?? chosen}
      onPick={(range) => (dragged.value = range)}
      onPicked={(range) => {
        dragged.value = undefined;
        onPick(range);
      }}
    />
  );
}
